"""Order, rounds and answers of webhooks, beyond the recording."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from embedded_kubernetes.auth.audit import event

from ..support import (
    ADMISSION,
    EVENTS,
    MAPS,
    MERGE,
    World,
    cases,
    config_map,
    hooked,
    labelling,
    mutation,
    named,
    patching,
    rule,
    webhook,
)


async def test_an_older_answer_needs_no_type_of_its_patch() -> None:
    operations = patching({"op": "add", "path": "/data/x", "value": "y"})
    world = hooked(
        "Mutating", lambda request: {"uid": "other", "patch": operations["patch"]}, admissionReviewVersions=["v1beta1"]
    )
    _, made = await world.ask("POST", MAPS, config_map())
    assert made["data"] == {"k": "v", "x": "y"}


async def test_in_the_second_round_nobody_is_called_for_the_first_time() -> None:
    """A webhook whose selector matches only after the first round is not called."""
    world = World(hooks={"a": lambda request: None, "b": lambda request: labelling("late")})
    late = {"objectSelector": {"matchLabels": {"late": "1"}}, "reinvocationPolicy": "IfNeeded"}
    world.configure("Mutating", webhook("late", **late), webhook("a", reinvocationPolicy="IfNeeded"), webhook("b"))
    assert (await world.ask("POST", MAPS, config_map()))[0] == 201
    assert [name for name, _ in world.asked] == ["a", "b", "a"]


async def test_a_webhook_is_called_again_after_a_policy_of_the_second_round_changed_something() -> None:
    world = World(hooks={"a": lambda request: labelling("x")})
    expression = 'has(object.metadata.labels) ? Object{data: Object.data{seen: "1"}} : Object{}'
    world.policy(
        "Mutating", {"mutations": [mutation(expression, "ApplyConfiguration")], "reinvocationPolicy": "IfNeeded"}
    )
    world.configure("Mutating", webhook("a", reinvocationPolicy="IfNeeded"))
    _, made = await world.ask("POST", MAPS, config_map())
    assert made["data"] == {"k": "v", "seen": "1"}
    assert [request["object"]["data"] for _, request in world.asked] == [{"k": "v"}, {"k": "v", "seen": "1"}]


async def test_validating_webhooks_wait_side_by_side() -> None:
    all_there = asyncio.Event()
    world = World()

    async def waits(request: dict[str, Any]) -> None:
        if len(world.asked) == 3:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), 60)

    world.hooks = dict.fromkeys("abc", waits)
    world.configure("Validating", *(webhook(name) for name in "abc"))
    assert (await world.ask("POST", MAPS, config_map()))[0] == 201


@pytest.mark.parametrize(
    ("policy", "asked"), [("Equivalent", ["events.k8s.io"]), ("Exact", [])], ids=["equivalent", "exact"]
)
async def test_a_write_by_another_version_is_shown_as_the_rules_name_it(policy: str, asked: list[str]) -> None:
    world = World(hooks={"m": lambda request: patching({"op": "add", "path": "/note", "value": "changed"})})
    one = rule("events", group="events.k8s.io")
    world.configure("Mutating", webhook("m", rules=[one], matchPolicy=policy))
    body = named("e", involvedObject={"namespace": "default"}, message="said")
    status, made = await world.ask("POST", EVENTS, body)
    assert [request["kind"]["group"] for _, request in world.asked] == asked
    assert (status, made["message"]) == (201, "changed" if asked else "said")


async def test_the_audit_log_is_told_what_a_webhook_says() -> None:
    told: list[Any] = []
    said = {"auditAnnotations": {"who": "me", "not a key!": "x"}}
    world = World(hooks={"v": lambda request: said}, observer=told.append)
    world.configure("Validating", webhook("v"))
    await world.ask("POST", MAPS, config_map())
    annotations = event(told[-1], "u")["annotations"]
    assert annotations["v.example.com/who"] == "me"
    assert not [key for key in annotations if "!" in key]


async def test_a_patch_that_moves_or_renames_a_stored_object_is_refused() -> None:
    world = World(hooks={"m": lambda request: patching({"op": "add", "path": request["name"], "value": "x"})})
    world.post(MAPS, config_map())
    for field, code in (("name", 422), ("namespace", 400), ("resourceVersion", 409)):
        path = f"/metadata/{field}"
        world.hooks["m"] = lambda request, path=path: patching({"op": "add", "path": path, "value": "9"})
        world.configure("Mutating", webhook("m"), name=field.lower())
        assert (await world.ask("PATCH", f"{MAPS}/c", {"data": {}}, kind=MERGE))[0] == code
        world.delete(f"{ADMISSION}/mutatingwebhookconfigurations/{field.lower()}")


async def test_a_namespace_that_is_gone_meets_its_selector_with_404() -> None:
    world = World(hooks={"v": lambda request: None})
    selector = {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
    world.configure("Validating", webhook("v", "pods/exec", namespaceSelector=selector))
    status, answer = await world.ask("POST", "/api/v1/namespaces/gone/pods/p/exec")
    assert (status, answer["details"]["kind"]) == (404, "namespaces")


@cases(r"""
    operation | said
    {op: add, path: /x/y, value: 1} | 'add operation does not apply: doc is missing path: "/x/y"'
    {op: add, value: 1} | 'add operation failed to decode path: missing value'
    {op: add, path: /metadata/finalizers/9, value: a} | "error in add for path: '/metadata/finalizers/9': Unable to
        access invalid index: 9: invalid index referenced"
    {op: add, path: /metadata/finalizers/x, value: a} | "error in add for path: '/metadata/finalizers/x': value was
        not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax"
    {op: remove, path: /metadata/finalizers/9} | "error in remove for path: '/metadata/finalizers/9': Unable to
        access invalid index: 9: invalid index referenced"
    {op: replace, path: /data/x, value: ''} | 'replace operation does not apply: doc is missing key: /data/x:
        missing value'
    {op: move, from: /data/x, path: /data/y} | "error in move for path: 'x': unable to get nonexistent key: x:
        missing value"
    {op: copy, from: /x/y, path: /data/y} | 'copy operation does not apply: doc is missing from path: /x/y: missing
        value'
    {op: test, path: /data/k, value: w} | 'testing value /data/k failed: test failed'
    {op: test, path: /data/x, value: w} | 'testing path /data/x failed: test failed'
    {path: /data} | 'Unexpected kind: unknown'
    {op: 7} | 'Unexpected kind: unknown'
    null | 'Unexpected kind: unknown'
    {op: remove, path: 7} | 'remove operation failed to decode path: missing value'
    """)
async def test_a_patch_that_does_not_apply_is_told_in_the_librarys_words(operation, said) -> None:
    world = hooked("Mutating", lambda request: patching(operation), failurePolicy="Ignore")
    status, answer = await world.ask("POST", MAPS, config_map(finalizers=["a.b/c"]))
    assert status == 500
    assert answer["message"].startswith(f"Internal error occurred: {said}")


@cases("""
    operation | said
    {op: remove, path: /kind} | ''
    {op: remove, path: /apiVersion} | ''
    {op: replace, path: /kind, value: Pod} | 'converting (v1.Pod) to (core.ConfigMap): unknown conversion'
    {op: replace, path: /apiVersion, value: v9} | 'Internal error occurred: no kind "ConfigMap" is registered for
        version "v9" in scheme "pkg/api/legacyscheme/scheme.go:30"'
    """)
async def test_a_patch_may_leave_out_the_kind_and_not_change_it(operation: dict[str, Any], said: str) -> None:
    world = hooked("Mutating", lambda request: patching(operation))
    status, answer = await world.ask("POST", MAPS, config_map())
    assert (status, answer.get("message", "")) == ((500, said) if said else (201, ""))
