"""Objects as deeply nested, and as large, as kube-apiserver stores them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_kubernetes.nesting import DEEP, MOST_LEVELS, dumps, has_deep, loads

from ..support import (
    APPLY,
    CLAIMS,
    DEFINITIONS,
    JSON_PATCH,
    MAPS,
    MERGE,
    METADATA,
    RESOURCE,
    STRATEGIC,
    TABLE,
    TEMPLATES,
    Object,
    World,
    config_map,
    definition,
    labelling,
    mutation,
    named,
    rule,
    webhook,
)

#: Levels around each limit: of this decoder, of orjson's encoder and decoder, of Python's calls, of Go's decoder.
LEVELS = (DEEP - 10, DEEP, DEEP + 1, 2 * DEEP + 1, 400, 1500, 9980)


def nested(levels: int) -> bytes:
    pairs = levels // 2
    return b'{"a":[' * pairs + b'"]}[{\\""' + b"]}" * pairs


def written(obj: Any, levels: int) -> bytes:
    """Return JSON with a nested value instead of the string `deep`."""
    return json.dumps(obj).encode().replace(b'"deep"', nested(levels))


def claim(name: str = "c", value: Any = "deep") -> Object:
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": value}}]
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}], "config": config}
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return named(name, **about, spec={"devices": devices})


def device_class() -> Object:
    config = claim()["spec"]["devices"]["config"]
    return named("c", apiVersion="resource.k8s.io/v1", kind="DeviceClass", spec={"config": config})


def template() -> Object:
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return named("c", **about, spec={"spec": claim()["spec"]})


def widget(**more: Any) -> Object:
    return named("c", apiVersion="example.com/v1", kind="Widget", spec={"free": "deep"}, **more)


WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"free": FREE}}}}
KINDS: list[tuple[str, Callable[[], Object]]] = [
    (CLAIMS, claim),
    (TEMPLATES, template),
    (f"{RESOURCE}/deviceclasses", device_class),
    (WIDGETS, widget),
]


@pytest.fixture
def world() -> World:
    found = World()
    found.post(DEFINITIONS, definition(schema=SCHEMA))
    return found


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize(("path", "made"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
def test_every_verb_takes_and_returns_such_an_object(
    world: World, path: str, made: Callable[[], Object], levels: int
) -> None:
    deep, body, one = nested(levels), written(made(), levels), f"{path}/c"
    watch = world.watch(f"{path}?watch=true")

    def answered(method: str, path: str, body: bytes = b"", **more: Any) -> bytes:
        answer = world.send(method, path, body, **more)
        assert answer.status < 300, answer.body[:300]
        return answer.body

    assert answered("POST", f"{path}?dryRun=All", body).count(deep) == 1
    assert answered("POST", path, body).count(deep) == 1
    for read in (one, path, f"{path}?limit=1"):
        assert answered("GET", read).count(deep) == 1
        answered("GET", read, accept="application/yaml")
    answered("GET", path, accept=TABLE)
    answered("GET", one, accept=METADATA)
    version = loads(answered("GET", one))["metadata"]["resourceVersion"]
    # Nothing changes, so there is no new version.
    same = written(made() | {"metadata": {"name": "c", "resourceVersion": version}}, levels)
    assert loads(answered("PUT", one, same))["metadata"]["resourceVersion"] == version
    labelled = {"metadata": {"labels": {"a": "b"}}}
    operations = [{"op": "add", "path": "/metadata/labels/c", "value": "d"}]
    for kind, patch in ((MERGE, labelled), (JSON_PATCH, operations)):
        assert answered("PATCH", one, json.dumps(patch).encode(), kind=kind).count(deep) == 1
    assert answered("PATCH", f"{one}?fieldManager=f&force=true", body, kind=APPLY).count(deep) == 1
    assert answered("PATCH", f"{one}?fieldManager=f", body, kind=APPLY).count(deep) == 1
    if path != WIDGETS:
        assert answered("PATCH", one, json.dumps(labelled).encode(), kind=STRATEGIC).count(deep) == 1
    answered("DELETE", one)
    assert all(b'"DELETED"' not in line or deep in line for line in watch.stream.watcher.take(1 << 30))


@pytest.mark.parametrize("levels", [400, 9980])
def test_patches_put_such_a_value_in_and_replace_it(world: World, levels: int) -> None:
    world.post(WIDGETS, widget() | {"spec": {"free": {}}})
    path, deep = f"{WIDGETS}/c", nested(levels)
    for kind, patch in (
        (MERGE, {"spec": {"free": "deep"}}),
        (JSON_PATCH, [{"op": "replace", "path": "/spec/free", "value": "deep"}]),
        (JSON_PATCH, [{"op": "test", "path": "/spec/free", "value": "deep"}]),
        (JSON_PATCH, [{"op": "copy", "from": "/spec/free", "path": "/spec/free/b"}]),
    ):
        assert deep in world.send("PATCH", path, written(patch, levels), kind=kind).body
    world.patch(path, {"spec": {"free": {"a": None}}})
    assert deep in world.send("GET", path).body
    assert "a" not in loads(world.send("GET", path).body)["spec"]["free"]


@pytest.mark.parametrize("levels", [400, 9980])
async def test_policies_and_webhooks_see_objects_with_such_a_value(levels: int) -> None:
    world = World(hooks={"h": lambda review: labelling("h")})
    world.post(DEFINITIONS, definition(schema=SCHEMA))
    world.configure("Mutating", webhook("h", "widgets"))
    rules = {"matchConstraints": {"resourceRules": [rule("widgets", group="example.com")]}}
    checks = (
        "object.spec == object.spec",
        "has(object.spec.free)",
        "size(object.spec.free.a) == 1",
        "oldObject == null",
    )
    world.policy("Validating", {**rules, "validations": [{"expression": each} for each in checks]})
    expression = "[JSONPatch{op: 'add', path: '/spec/free/b', value: object.spec.free}]"
    world.policy("Mutating", {**rules, "mutations": [mutation(expression)]})
    body, kind = written(widget(), levels), {"Content-Type": "application/json"}
    status, _, raw = await world.door.request("POST", WIDGETS, body=body, headers=kind)
    deep = nested(levels)
    assert (status, raw.count(deep), raw.count(deep[:-1])) == (201, 1, 2), raw[:500]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (written(widget(), MOST_LEVELS - 2), 201),
        (written(widget(), MOST_LEVELS), 400),
        (b"[" * 100_000, 400),
        (written(widget(), 400)[:-1], 400),
        (written(widget(), 400).replace(b"[", b"{", 300), 400),
    ],
    ids=["the limit", "beyond the limit", "only brackets", "cut off", "mismatched"],
)
def test_beyond_the_limit_and_malformed_is_a_bad_request(world: World, body: bytes, status: int) -> None:
    assert world.send("POST", WIDGETS, body).status == status


def test_a_typed_field_is_refused_and_an_unknown_one_dropped(world: World) -> None:
    typed = {**config_map("c"), "data": "deep"}
    assert world.send("POST", MAPS, written(typed, 400)).status in (400, 422)
    unknown = {**config_map("c"), "more": "deep"}
    assert world.send("POST", MAPS, written(unknown, 400)).status == 201


@pytest.mark.parametrize(("size", "status"), [(1_500_000, 201), (1_600_000, 500)])
def test_an_object_is_limited_as_by_etcd(world: World, size: int, status: int) -> None:
    body = json.dumps({**widget(), "spec": {"free": {"a": "x" * size}}}).encode()
    answer = world.send("POST", WIDGETS, body)
    assert answer.status == status
    if status == 500:
        assert loads(answer.body)["message"] == "etcdserver: request is too large"
        assert world.call("GET", f"{WIDGETS}/c")[0] == 404


# ---- the decoder

TEXTS = st.sampled_from(["", '"', "[", "]", "}{", '\\"]', "\\", "é🚀"])


@given(st.lists(st.tuples(st.booleans(), TEXTS), max_size=700), st.sampled_from([None, 1]))
def test_values_of_any_depth_are_written_as_they_were(steps: list[tuple[bool, str]], indent: int | None) -> None:
    text = json.dumps("core")
    for is_list, beside in steps:
        other = json.dumps(beside)
        text = f"[{other},{text}]" if is_list else f"{{{other}:{other},{json.dumps(beside + 'x')}:{text}}}"
    spaced = text.replace(",", " ,\n ") if indent and not any("," in each for _, each in steps) else text
    value = loads(spaced)
    assert json.loads(dumps(value)) == json.loads(text) if len(steps) < 300 else dumps(value)
    assert loads(dumps(value)) == value
    assert has_deep(spaced.encode()) is (len(steps) > DEEP)
