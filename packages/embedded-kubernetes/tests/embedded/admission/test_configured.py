"""Webhooks and the writes that they review: which are called, when, and with which result."""

from __future__ import annotations

from typing import Any

from embedded.support import (
    ADMISSION,
    DEFINITIONS,
    MAPS,
    MERGE,
    NODES,
    PODS,
    World,
    config_map,
    definition,
    hooked,
    labelling,
    mutation,
    named,
    pod,
    webhook,
)
from embedded_kubernetes.requests import Request, Response


def _denies(request: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": False, "status": {"message": "no"}}


def test_a_policy_without_a_binding_asks_nobody(world: World) -> None:
    world.policy("Validating", {"validations": [{"expression": "false"}]})
    assert world.refused("POST", MAPS, config_map()) == (422, "Invalid")
    world.delete(f"{ADMISSION}/validatingadmissionpolicybindings/b")
    assert not world.api.registry.is_reviewed
    world.post(MAPS, config_map())


def meddle(world: World, configuration: str, *request: Any, **more: Any) -> None:
    """Configure a webhook for configmaps that carries out `request` when it is first called."""

    async def meddles(_: dict[str, Any]) -> None:
        if len(world.asked) == 1:
            await world.ask(*request, **more)

    world.hooks["m"] = meddles
    world.configure(configuration, webhook("m"))


OTHER = ("PATCH", f"{MAPS}/c", {"data": {"other": "1"}})


async def test_a_patch_is_made_anew_of_what_another_wrote_while_webhooks_were_asked(world: World) -> None:
    world.post(MAPS, config_map())
    meddle(world, "Validating", *OTHER, kind=MERGE)
    status, made = await world.ask("PATCH", f"{MAPS}/c", {"data": {"k": "w"}}, kind=MERGE)
    assert (status, made["data"]) == (200, {"k": "w", "other": "1"})
    assert len(world.asked) == 3


async def test_a_webhook_that_always_writes_what_it_is_asked_about_has_the_request_time_out(world: World) -> None:
    world.post(MAPS, config_map())

    async def meddles(request: dict[str, Any]) -> None:
        world.now += 7
        table = world.api.registry.stored(("", "configmaps")).table
        found = world.api.registry.object(("", "configmaps"), "default/c")
        found["data"]["n"] = str(len(world.asked))
        world.store.replace(("", "configmaps"), table.records["default/c"], found)

    world.hooks["m"] = meddles
    world.configure("Validating", webhook("m"))
    status, answer = await world.ask("PATCH", f"{MAPS}/c", {"data": {"k": "w"}}, kind=MERGE)
    assert (status, answer["reason"]) == (504, "Timeout")


async def test_a_put_of_a_version_that_was_overtaken_meanwhile_is_a_conflict(world: World) -> None:
    read = world.post(MAPS, config_map())
    meddle(world, "Mutating", *OTHER, kind=MERGE)
    status, answer = await world.ask("PUT", f"{MAPS}/c", {**read, "data": {"k": "w"}})
    assert (status, answer["reason"]) == (409, "Conflict")


async def test_what_was_deleted_meanwhile_is_not_found(world: World) -> None:
    world.post(MAPS, config_map())
    meddle(world, "Validating", "DELETE", f"{MAPS}/c")
    assert (await world.ask("PATCH", f"{MAPS}/c", {"data": {}}, kind=MERGE))[0] == 404
    assert (await world.ask("DELETE", f"{MAPS}/c"))[0] == 404


async def test_a_name_that_was_taken_meanwhile_is_a_conflict(world: World) -> None:
    meddle(world, "Validating", "POST", MAPS, config_map())
    status, answer = await world.ask("POST", MAPS, config_map())
    assert (status, answer["reason"]) == (409, "AlreadyExists")


async def test_configurations_and_what_the_server_makes_itself_are_shown_to_nobody() -> None:
    world = hooked("Validating", _denies, "*/*")
    world.configure("Mutating", webhook("m"), name="two")
    assert world.api.create(("", "configmaps"), config_map("own", namespace="default")) is not None
    assert world.asked == []


async def test_a_template_is_neither_made_nor_used_of_what_webhooks_see() -> None:
    """The first objects of a burst are templates of the others, and a webhook may have changed them."""
    world = World(hooks={"m": lambda request: labelling("seen")})
    for number in range(3):
        world.pod(f"before-{number}")
    world.configure("Mutating", webhook("m", "pods"))
    for number in range(3):
        status, made = await world.ask("POST", PODS, pod(f"shown-{number}"))
        assert made["metadata"]["labels"] == {"seen": "1"}, status
    world.delete(f"{ADMISSION}/mutatingwebhookconfigurations/one")
    for number in range(3):
        assert "labels" not in world.pod(f"after-{number}")["metadata"]


async def test_a_pod_that_goes_at_once_is_shown_before_and_after_it_was_marked() -> None:
    world = World(hooks={"v": lambda request: None})
    world.pod("p")
    world.configure("Validating", webhook("v", "pods"))
    await world.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    marked = ["deletionTimestamp" in request["oldObject"]["metadata"] for _, request in world.asked]
    assert marked == [False, True]
    assert world.refused("GET", f"{PODS}/p") == (404, "NotFound")


async def test_of_a_collection_each_object_is_shown_and_a_refusal_ends_it(world: World) -> None:
    for name in "abc":
        world.post(MAPS, config_map(name))

    def keeps_b(request: dict[str, Any]) -> dict[str, Any] | None:
        return _denies(request) if request["oldObject"]["metadata"]["name"] == "b" else None

    world.hooks["v"] = keeps_b
    world.configure("Validating", webhook("v"))
    status, _ = await world.ask("DELETE", MAPS)
    assert status == 400
    assert world.names(MAPS) == ["b", "c"]


async def test_an_answer_of_another_form_waits_for_the_webhook_too() -> None:
    world = hooked("Mutating", lambda request: labelling("x"))
    body = b'{"metadata": {"name": "c"}}'
    found = world.api.handle(
        Request("POST", MAPS, body=body, content_type="application/json", accept="application/yaml")
    )
    assert not isinstance(found, Response)
    answer = await found
    assert answer.content_type == "application/yaml"
    assert b"x: '1'" in answer.body


async def test_a_new_definition_is_served_once_webhooks_let_it_pass() -> None:
    world = hooked("Validating", lambda request: None, "customresourcedefinitions")
    assert (await world.ask("POST", DEFINITIONS, definition("things")))[0] == 201
    assert world.names("/apis/example.com/v1/namespaces/default/things") == []
    found = world.get(f"{DEFINITIONS}/things.example.com")
    assert {one["type"] for one in found["status"]["conditions"]} >= {"Established"}


# ---- The server completes objects before webhooks are called.


async def test_a_pod_has_its_priority_also_in_an_update_that_leaves_it_out() -> None:
    world = hooked("Mutating", lambda request: None, "pods")
    body = pod("p")
    await world.ask("POST", PODS, body)
    await world.ask("PUT", f"{PODS}/p", {**body, "metadata": {"name": "p", "labels": {"a": "b"}}})
    assert [request["object"]["spec"]["priority"] for _, request in world.asked] == [0, 0]


async def test_a_binding_has_the_labels_of_its_nodes_place() -> None:
    world = hooked("Mutating", lambda request: None, "pods/binding")
    place = {"topology.kubernetes.io/zone": "z"}
    world.post(NODES, named("n", labels={**place, "other": "1"}))
    world.pod("p")
    binding = named("p", target={"name": "n"})
    assert (await world.ask("POST", f"{PODS}/p/binding", binding))[0] == 201
    assert world.asked[0][1]["object"]["metadata"]["labels"] == place
    assert world.get(f"{PODS}/p")["metadata"]["labels"] == place


def test_a_refusal_names_what_has_no_name_yet_by_what_it_will_have(world: World) -> None:
    expression = "object.metadata.annotations.x"
    mutating = mutation(f'[JSONPatch{{op: "add", path: "/x", value: {expression}}}]')
    world.policy("Mutating", {"mutations": [mutating]})
    _, answer = world.call("POST", MAPS, {"metadata": {"generateName": "gen-"}})
    assert answer["details"]["name"] == "gen-"
