"""Creates, updates, patches, bindings and evictions, beyond the recording."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ..support import (
    DEFINITIONS,
    LEASES,
    MAPS,
    MERGE,
    METADATA,
    PODS,
    PRIORITIES,
    TABLE,
    Object,
    World,
    cases,
    config_map,
    definition,
    named,
    owner,
    pod,
)

JSON, YAML = "application/json", "application/yaml"


@pytest.mark.parametrize(
    ("method", "body", "kind", "refusal"),
    [
        ("PUT", config_map("a", uid="other"), JSON, (409, "Conflict")),
        ("PUT", config_map("b"), JSON, (400, "BadRequest")),
        ("PUT", config_map("a", namespace="kube-system"), JSON, (400, "BadRequest")),
        ("PATCH", {"metadata": {"name": "b"}}, MERGE, (400, "BadRequest")),
        ("PATCH", {"metadata": {"namespace": "kube-system"}}, MERGE, (400, "BadRequest")),
        ("POST", config_map("b", resourceVersion="5"), JSON, (500, "")),
        ("POST", config_map("b"), "application/cbor", (415, "UnsupportedMediaType")),
        ("POST", config_map("b"), "text/plain", (415, "UnsupportedMediaType")),
        ("POST", b"a: [", YAML, (400, "BadRequest")),
        *(("POST", body, JSON, (400, "BadRequest")) for body in (b"", b"[]", b"null", b"3", b'{"kind": 7}')),
        ("POST", b'{"metadata": 3}', JSON, (400, "BadRequest")),
    ],
)
def test_a_write_is_refused_for_what_its_body_is(
    world: World, method: str, body: Any, kind: str, refusal: tuple[int, str]
) -> None:
    world.post(MAPS, config_map("a"))
    path = MAPS if method == "POST" else f"{MAPS}/a"
    assert world.refused(method, path, body, kind=kind) == refusal


def test_only_kinds_that_allow_it_are_created_by_an_update(world: World) -> None:
    lease = named("l", apiVersion="coordination.k8s.io/v1", kind="Lease", spec={})
    assert world.send("PUT", f"{LEASES}/l", lease).status == 201
    assert world.refused("PUT", f"{LEASES}/l", lease) == (422, "Invalid"), "leases name their version"
    assert world.refused("PUT", f"{MAPS}/a", config_map("a")) == (404, "NotFound")


def test_generated_names_are_the_prefix_and_five_letters_and_differ(world: World) -> None:
    names = set()
    for _ in range(50):
        names.add(world.post(MAPS, {"metadata": {"generateName": "run-"}})["metadata"]["name"])
    assert len(names) == 50
    assert all(re.fullmatch(r"run-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_bodies_may_be_yaml(world: World) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
    assert world.post(MAPS, text, kind=YAML)["data"] == {"k": "v"}


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 1_000_000,
        b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [%b]\n" % (n, n, b"*a%d, " % (n - 1) * 9) for n in range(1, 40)),
        b"&a [*a]",
        b"!!bool x",
    ],
    ids=["deep", "aliases", "cycle", "type"],
)
def test_a_yaml_body_beyond_the_limits_is_refused(world: World, text: bytes) -> None:
    assert world.refused("POST", MAPS, text, kind=YAML) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (named("b", target={"name": "n1"}), (400, "BadRequest")),
        (named("a", target={"kind": "Pod", "name": "n1"}), (500, "")),
        (named("a"), (500, "")),
        (named("a", namespace="x", target={"name": "n1"}), (400, "BadRequest")),
        (named("a", resourceVersion="1", target={"name": "n1"}), (409, "Conflict")),
        (named("a", kind="Pod", target={"name": "n1"}), (400, "BadRequest")),
        (named("a", target="n1"), (400, "BadRequest")),
        (named("a", apiVersion="v2", target={"name": "n1"}), (400, "BadRequest")),
        (b"{", (400, "BadRequest")),
    ],
)
def test_bad_bindings_are_refused(world: World, body: Any, refusal: tuple[int, str]) -> None:
    world.pod("a")
    assert world.refused("POST", f"{PODS}/a/binding", body) == refusal
    assert "nodeName" not in world.get(f"{PODS}/a")["spec"]


@cases("""
    method | paths | refusal
    GET | [/api/v1/nosuch, /api/v1/pods/a, /api/v1/namespaces/default/pods/a/nosuch] | [404, NotFound]
    GET | [/apis/apps/v0, /apis/apps/v0/deployments, /api/v0/pods] | [404, NotFound]
    PUT | [/api/v1/namespaces/default/pods] | [405, MethodNotAllowed]
    POST | [/api/v1/pods] | [405, MethodNotAllowed]
    GET | [/api/v1/namespaces/default/pods/a/binding] | [405, MethodNotAllowed]
    """)
def test_unknown_paths_kinds_and_methods_are_told_apart(
    world: World, method: str, paths: list[str], refusal: list[Any]
) -> None:
    for path in paths:
        assert [*world.refused(method, path, pod("a"))] == refusal
    answer = world.send("GET", "/apis/nobody.example.com/v1/things")
    assert (answer.status, answer.content_type[:10]) == (404, "text/plain")


def boxes_definition() -> Object:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    return definition("boxes", {"type": "object", "properties": {"spec": spec}})


def test_a_custom_kind_is_served_as_soon_as_its_definition_is_created_and_no_longer(world: World) -> None:
    boxes = "/apis/example.com/v1/namespaces/default/boxes"
    assert world.send("GET", boxes).status == 404
    world.post(DEFINITIONS, boxes_definition())
    conditions = world.get(f"{DEFINITIONS}/boxes.example.com")["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions} == {"NamesAccepted": "True", "Established": "True"}
    box = named("b", apiVersion="example.com/v1", kind="Box", spec={"size": 1})
    world.post(boxes, box)
    watch = world.watch(f"{boxes}?watch=1&resourceVersion={world.store.rv}")
    listed = world.get(boxes)
    assert listed["kind"] == "BoxList" and listed["items"][0]["kind"] == "Box"
    assert world.refused("POST", boxes, {**box, "spec": {"size": "big"}})[0] == 422
    assert world.refused("PUT", f"{boxes}/b", box) == (422, "Invalid"), "custom kinds name their version"
    world.delete(f"{DEFINITIONS}/boxes.example.com")
    world.collect()
    assert watch.stream.watcher.ended
    assert world.send("GET", boxes).status == 404
    world.post(DEFINITIONS, boxes_definition())
    assert world.names(boxes) == []


def test_a_definition_waits_for_the_objects_of_its_kind(world: World) -> None:
    boxes = "/apis/example.com/v1/namespaces/default/boxes"
    for _ in range(2):
        world.post(DEFINITIONS, boxes_definition())
        box = named("b", apiVersion="example.com/v1", kind="Box")
        held = {**box, "metadata": {"name": "held", "finalizers": ["example.com/x"]}}
        world.post(boxes, box)
        world.post(boxes, held)
        answer = world.delete(f"{DEFINITIONS}/boxes.example.com")
        assert answer["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        assert answer["status"]["conditions"][-1]["type"] == "Terminating"
        assert "deletionTimestamp" in answer["metadata"] and answer["metadata"]["generation"] == 1
        assert "deletionGracePeriodSeconds" not in answer["metadata"]
        assert world.refused("POST", boxes, {**box, "metadata": {"name": "c"}}) == (405, "MethodNotAllowed")
        world.collect()
        assert world.names(boxes) == ["held"]
        world.patch(f"{boxes}/held", {"metadata": {"finalizers": None}})
        world.collect()
        assert world.names(DEFINITIONS) == []
        assert world.send("GET", boxes).status == 404


def test_without_controllers_only_what_an_api_server_does_itself_is_done() -> None:
    world = World(controllers=False)
    made = world.post(MAPS, config_map("owner"))
    world.post(MAPS, config_map("dependent", ownerReferences=[owner(made)]))
    world.delete(f"{MAPS}/owner")
    world.namespace("t")
    world.delete("/api/v1/namespaces/t")
    world.post(DEFINITIONS, boxes_definition())
    world.delete(f"{DEFINITIONS}/boxes.example.com")
    world.collect()
    assert world.names(MAPS) == ["dependent"]
    assert world.get("/api/v1/namespaces/t")["status"]["phase"] == "Terminating"
    assert world.names(DEFINITIONS) == []


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("fieldManager=" + "x" * 129, ["fieldManager"]),
        ("dryRun=Some&fieldManager=a%07&fieldValidation=Maybe", ["fieldManager", "dryRun", "fieldValidation"]),
        ("force=true", ["force"]),
    ],
)
def test_every_wrong_option_of_a_patch_is_told(world: World, query: str, fields: list[str]) -> None:
    world.pod("a")
    status, answer = world.call("PATCH", f"{PODS}/a?{query}", {}, kind=MERGE)
    assert (status, answer["details"]["kind"]) == (422, "PatchOptions")
    assert [cause["field"] for cause in answer["details"]["causes"]] == fields


def test_a_write_answers_in_the_form_that_was_asked_for(world: World) -> None:
    assert world.post(PODS, pod("a"), accept=METADATA)["kind"] == "PartialObjectMetadata"
    assert world.ok("DELETE", f"{PODS}/a", accept=TABLE)["rows"][0]["cells"][0] == "a"


@cases("""
    path | accept | details
    /api/v1/namespaces/default/pods | application/xml | {}
    /api/v1/namespaces/default/pods | application/json;as=Heap;v=v1;g=meta.k8s.io | null
    /api/v1/namespaces/default/pods | application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io | null
    /api/v1/namespaces/default/pods/a | application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io | null
    """)
def test_a_form_that_cannot_be_had_is_not_acceptable(world: World, path: str, accept: str, details: Any) -> None:
    world.pod("a")
    status, answer = world.call("GET", path, accept=accept)
    assert (status, answer["reason"], answer.get("details")) == (406, "NotAcceptable", details)


def test_there_is_one_default_priority_class_at_most(world: World) -> None:
    world.post(PRIORITIES, named("a", value=1, globalDefault=True))
    second = named("b", value=2, globalDefault=True)
    assert world.refused("POST", PRIORITIES, second) == (403, "Forbidden")
    world.post(PRIORITIES, {**second, "globalDefault": False})
    assert world.refused("PATCH", f"{PRIORITIES}/b", {"globalDefault": True}, kind=MERGE) == (403, "Forbidden")
    world.patch(f"{PRIORITIES}/a", {"description": "still the one"})


def test_a_device_taint_is_dated(world: World) -> None:
    spec = {
        "driver": "d.io",
        "nodeName": "n",
        "pool": {"name": "n", "resourceSliceCount": 1},
        "devices": [{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}],
    }
    made = world.post("/apis/resource.k8s.io/v1/resourceslices", named("s", spec=spec))
    taint = made["spec"]["devices"][0]["taints"][0]
    assert taint["timeAdded"] == made["metadata"]["creationTimestamp"]
