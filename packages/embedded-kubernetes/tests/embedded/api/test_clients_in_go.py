"""Requests as client-go, kube-controller-manager and kube-scheduler write them: protobuf wherever it is allowed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from embedded_kubernetes import nesting, protobuf
from embedded_kubernetes.builtin import BUILTIN

from ..in_go import ACCEPT, METADATA, METADATA_LIST, PROTOBUF, events, sent
from ..sockets import serving
from ..support import (
    DEFAULT,
    DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    MAPS,
    MERGE,
    PODS,
    STRATEGIC,
    TABLE,
    World,
    config_map,
    container,
    named,
)

_JSON = "application/json"
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
_DEFINITION = yaml.safe_load("""
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
""")


def _ask(world: World, method: str, path: str, obj: Any = None, *, accept: str = ACCEPT) -> tuple[int, Any]:
    """Return status and object of an answer, which is in protobuf."""
    body = None if obj is None else sent(obj)
    response = world.send(method, path, body, kind=PROTOBUF, accept=accept)
    assert response.content_type == PROTOBUF, response.body
    return response.status, protobuf.decode(response.body)


def _watch(world: World, path: str, accept: str = ACCEPT) -> tuple[str, list[tuple[str, Any]]]:
    """Return the media type of a watch, and the events that are there already."""
    stream = world.watch(path, accept=accept).stream
    frames = []
    while taken := stream.watcher.take(1 << 20):
        frames += taken
    return stream.content_type, events(frames)


def _seen(found: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(type_, obj["metadata"].get("name", "")) for type_, obj in found]


def test_leaders_are_elected_by_leases(world: World) -> None:
    now, later = "2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:02.500000Z"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
    lease = named("kcm", kind="Lease", apiVersion="coordination.k8s.io/v1", spec=spec)
    status, refusal = _ask(world, "GET", f"{LEASES}/kcm")
    assert (status, refusal["kind"], refusal["reason"], refusal["code"]) == (404, "Status", "NotFound", 404)
    status, made = _ask(world, "POST", LEASES, lease)
    assert (status, made["spec"]) == (201, spec)
    renewed = {**made, "spec": {**made["spec"], "renewTime": later}}
    assert _ask(world, "PUT", f"{LEASES}/kcm", renewed)[1]["spec"]["renewTime"] == later
    status, refusal = _ask(world, "PUT", f"{LEASES}/kcm", {**renewed, "spec": {**spec, "holderIdentity": "b"}})
    assert (status, refusal["reason"]) == (409, "Conflict")
    assert world.get(f"{LEASES}/kcm")["spec"] == {**spec, "renewTime": later}


def test_an_informer_lists_and_watches(world: World) -> None:
    world.pod("a")
    _, listed = _ask(world, "GET", f"{PODS}?limit=500&resourceVersion=0")
    assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == ("PodList", ["a"])
    since = listed["metadata"]["resourceVersion"]
    made = world.pod("b")
    world.patch(f"{PODS}/b", {"metadata": {"labels": {"x": "y"}}})
    world.delete(f"{PODS}/b", gracePeriodSeconds=0)
    media, found = _watch(world, f"{PODS}?watch=true&allowWatchBookmarks=true&resourceVersion={since}")
    assert media == f"{PROTOBUF};stream=watch"
    assert [type_ for type_, _ in found] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert (found[0][1], found[1][1]["metadata"]["labels"]) == (made, {"x": "y"})


def test_an_informer_may_ask_for_its_list_as_events(world: World) -> None:
    world.pod("a")
    query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    _, found = _watch(world, f"{PODS}?{query}&resourceVersion=")
    assert _seen(found) == [("ADDED", "a"), ("BOOKMARK", "")]
    assert found[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (found[1][1]["kind"], found[1][1]["apiVersion"]) == ("Pod", "v1")


def test_a_version_that_is_too_old_is_an_event_in_protobuf() -> None:
    world = World(history=1)
    for name in "abc":
        world.pod(name)
    ((type_, status),) = _watch(world, f"{PODS}?watch=true&resourceVersion=1")[1]
    assert (type_, status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")


def test_an_event_that_cannot_be_encoded_is_an_error_and_does_not_prevent_the_commit(world: World) -> None:
    view = world.api.registry.stored(("", "pods")).view.in_protobuf
    ((type_, status),) = events([view.line("ADDED", b'{"metadata":{"name":"a"},"spec":{"containers":"none"}}')])
    assert (type_, status["code"], status["reason"]) == ("ERROR", 406, "NotAcceptable")


def test_watchers_of_a_kind_share_its_frames(world: World) -> None:
    first, second = (world.watch(f"{PODS}?watch=true", accept=ACCEPT).stream.watcher for _ in range(2))
    world.pod("a")
    assert first.take(1)[0] is second.take(1)[0]


@pytest.mark.parametrize("path", [MAPS, _WIDGETS])
def test_the_garbage_collector_sees_metadata_of_every_kind(world: World, path: str) -> None:
    world.post(DEFINITIONS, _DEFINITION)
    kind = {"kind": "Widget", "apiVersion": "example.com/v1"} if path == _WIDGETS else {}
    world.post(path, named("x", labels={"a": "b"}, **kind))
    _, listed = _ask(world, "GET", path, accept=METADATA_LIST)
    assert listed["kind"] == "PartialObjectMetadataList"
    (item,) = listed["items"]
    assert item.keys() == {"metadata"} and item["metadata"]["labels"] == {"a": "b"}
    _, found = _watch(world, f"{path}?watch=true", METADATA)
    assert _seen(found) == [("ADDED", "x")] and found[0][1]["kind"] == "PartialObjectMetadata"
    status, obj = _ask(world, "GET", f"{path}/x", accept=METADATA)
    assert (status, obj["kind"], obj["apiVersion"]) == (200, "PartialObjectMetadata", "meta.k8s.io/v1")
    patched = world.send("PATCH", f"{path}/x", {"metadata": {"finalizers": ["a.b/c"]}}, kind=MERGE, accept=METADATA)
    assert protobuf.decode(patched.body)["metadata"]["finalizers"] == ["a.b/c"]
    assert _ask(world, "DELETE", f"{path}/x", _deletion(preconditions={"uid": "other"}))[0] == 409
    # An error has no metadata form, so it is the last alternative.
    assert world.send("GET", f"{path}/y", accept=METADATA).content_type == _JSON


def _deletion(**options: Any) -> Any:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **options}


def test_options_of_deletes_are_read(world: World) -> None:
    for name in "ab":
        world.post(MAPS, config_map(name))
    status, answer = _ask(world, "DELETE", f"{MAPS}/a", _deletion(dryRun=["All"], propagationPolicy="Background"))
    assert (status, answer["kind"], answer["status"]) == (200, "Status", "Success")
    assert world.names(MAPS) == ["a", "b"]
    status, answer = _ask(world, "DELETE", MAPS, {**_deletion(), "apiVersion": "apps/v1"})
    assert (status, answer["kind"], world.names(MAPS)) == (200, "ConfigMapList", [])


def test_the_scheduler_binds_records_and_patches(world: World) -> None:
    world.node("n1")
    world.pod("p")
    target = {"kind": "Node", "name": "n1"}
    binding = named("p", kind="Binding", apiVersion="v1", namespace="default", target=target)
    status, answer = _ask(world, "POST", f"{PODS}/p/binding", binding)
    assert (status, answer["status"]) == (201, "Success")
    assert world.get(f"{PODS}/p")["spec"]["nodeName"] == "n1"
    event = named(
        "p.1",
        kind="Event",
        apiVersion="events.k8s.io/v1",
        namespace="default",
        eventTime="2026-01-01T00:00:00.000001Z",
        reportingController="default-scheduler",
        reportingInstance="host",
        action="Binding",
        reason="Scheduled",
        regarding={"kind": "Pod", "namespace": "default", "name": "p"},
        note="it is bound",
        type="Normal",
    )
    status, made = _ask(world, "POST", _EVENTS, event)
    assert (status, made["note"], made["eventTime"]) == (201, "it is bound", event["eventTime"])
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    answer = world.send("PATCH", f"{_EVENTS}/p.1", series, kind=STRATEGIC, accept=ACCEPT)
    assert protobuf.decode(answer.body)["series"] == series["series"]
    about = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}]}
    answer = world.send("PATCH", f"{PODS}/p/status", {"status": about}, kind=STRATEGIC, accept=ACCEPT)
    assert "SchedulerError" in str(protobuf.decode(answer.body)["status"])


def test_controllers_write_statuses_scales_tokens_and_evictions(world: World) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = named("d", kind="Deployment", apiVersion="apps/v1", spec=spec)
    _, made = _ask(world, "POST", DEPLOYMENTS, deployment)
    _, made = _ask(world, "PUT", f"{DEPLOYMENTS}/d/status", {**made, "status": {"replicas": 2, "readyReplicas": 0}})
    assert made["status"] == {"replicas": 2}
    _, scale = _ask(world, "GET", f"{DEPLOYMENTS}/d/scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 2}, "a=b")
    assert _ask(world, "PUT", f"{DEPLOYMENTS}/d/scale", {**scale, "spec": {}})[1]["spec"] == {}
    assert world.get(f"{DEPLOYMENTS}/d")["spec"]["replicas"] == 0
    world.post(f"{DEFAULT}/serviceaccounts", named("s"))
    asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": 3600}}
    status, token = _ask(world, "POST", f"{DEFAULT}/serviceaccounts/s/token", asked)
    assert status == 201 and token["status"]["token"].count(".") == 2
    world.pod("p")
    eviction = named("p", kind="Eviction", apiVersion="policy/v1", deleteOptions={"gracePeriodSeconds": 0})
    assert _ask(world, "POST", f"{PODS}/p/eviction", eviction)[0] == 201
    assert world.names(PODS) == []
    review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    review["spec"] = {"resourceAttributes": {"verb": "get", "resource": "pods"}}  # type: ignore[assignment]
    status, answer = _ask(world, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (status, answer["status"]["allowed"]) == (201, True)


@pytest.mark.parametrize("resource", BUILTIN, ids=lambda resource: f"{resource.api_version}-{resource.plural}")
def test_every_kind_is_listed_and_watched(world: World, resource: Any) -> None:
    if "list" not in resource.verbs:
        return
    path = f"{resource.path}/{resource.plural}"
    status, listed = _ask(world, "GET", f"{path}?limit=500&resourceVersion=0", accept=PROTOBUF)
    assert (status, listed["kind"], listed["apiVersion"]) == (200, resource.list_kind, resource.api_version)
    answer = world.get(path)
    assert [item["metadata"] for item in listed.get("items", [])] == [item["metadata"] for item in answer["items"]]
    if "watch" in resource.verbs:
        media, found = _watch(world, f"{path}?watch=true", PROTOBUF)
        assert media.startswith(PROTOBUF) and len(found) == len(answer["items"])


@pytest.mark.parametrize(
    ("accept", "path", "media"),
    [
        (PROTOBUF, PODS, PROTOBUF),
        (f"{PROTOBUF}, */*", PODS, PROTOBUF),
        (f"{PROTOBUF}, */*", _WIDGETS, _JSON),
        (f"{_JSON}, {PROTOBUF}", PODS, _JSON),
        (f"{PROTOBUF};q=0.5, {_JSON};q=0.9", PODS, _JSON),
        (f"{_JSON};q=0.1, {PROTOBUF}", PODS, PROTOBUF),
        (f"{TABLE}, {PROTOBUF}", PODS, _JSON),
        (TABLE.replace(_JSON, PROTOBUF) + f", {TABLE}", PODS, _JSON),
        (METADATA_LIST, PODS, PROTOBUF),
        (ACCEPT, "/apis", PROTOBUF),
        (ACCEPT, "/apis/apps/v1", PROTOBUF),
        (ACCEPT, "/version", _JSON),
        (ACCEPT, "/openapi/v3", _JSON),
        (PROTOBUF, "/api/v1/namespaces/default/nothing", PROTOBUF),
    ],
)
def test_an_answer_is_in_the_form_that_its_client_prefers(world: World, accept: str, path: str, media: str) -> None:
    world.post(DEFINITIONS, _DEFINITION)
    response = world.send("GET", path, accept=accept)
    assert response.content_type == media
    obj = protobuf.decode(response.body) if media == PROTOBUF else nesting.loads(response.body)
    assert obj
    watched = world.send("GET", f"{path}?watch=true&resourceVersion=x", accept=accept)
    assert path not in (PODS, _WIDGETS) or watched.status == 500


def test_a_custom_object_has_no_form_in_protobuf(world: World) -> None:
    world.post(DEFINITIONS, _DEFINITION)
    status, refusal = _ask(world, "GET", _WIDGETS, accept=PROTOBUF)
    assert (status, refusal["reason"]) == (406, "NotAcceptable")
    encoded = sent({"kind": "ConfigMap", "apiVersion": "v1"}).replace(b"ConfigMap", b"Widgetttt")
    assert world.refused("POST", _WIDGETS, encoded, kind=PROTOBUF) == (415, "UnsupportedMediaType")


async def test_a_watch_over_http_has_a_length_before_each_event() -> None:
    async with serving() as served:
        client = await served.client()
        client.get(f"{PODS}?watch=true", f"Accept: {ACCEPT}\n")
        status, headers = await client.head()
        assert (status, headers["content-type"]) == (200, f"{PROTOBUF};stream=watch")
        served.world.pod("a")
        assert _seen(events([await client.chunk()])) == [("ADDED", "a")]
