"""What the server itself completes is there before webhooks are asked."""

from __future__ import annotations

from ..support import (
    MAPS,
    NODES,
    PODS,
    World,
    mutation,
    named,
    pod,
    webhook,
)


def _world(*resources: str) -> World:
    world = World(hooks={"m": lambda request: None})
    world.configure("Mutating", webhook("m", *resources))
    return world


async def test_a_pod_has_its_priority_also_in_an_update_that_leaves_it_out() -> None:
    world = _world("pods")
    body = pod("p")
    await world.ask("POST", PODS, body)
    await world.ask("PUT", f"{PODS}/p", {**body, "metadata": {"name": "p", "labels": {"a": "b"}}})
    assert [request["object"]["spec"]["priority"] for _, request in world.asked] == [0, 0]


async def test_a_binding_has_the_labels_of_its_nodes_place() -> None:
    world = _world("pods/binding")
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
