"""Subresources of pods, workloads and service accounts: resize, scale, token."""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kubernetes.auth.options import Options

from ..support import ACCOUNTS, DEPLOYMENTS, MERGE, PODS, SETS, STRATEGIC, World, cases, container, named, pod

RESIZE = f"{PODS}/p/resize"
WORKLOADS = {
    "deployments": DEPLOYMENTS,
    "replicasets": SETS,
    "statefulsets": "/apis/apps/v1/namespaces/default/statefulsets",
    "replicationcontrollers": "/api/v1/namespaces/default/replicationcontrollers",
}


def _container(name: str = "c", **resources: Any) -> dict[str, Any]:
    return container(name, resources=resources)


def _sized(world: World, *containers: dict[str, Any], **spec: Any) -> Any:
    body = pod("p", labels={"a": "b"}, spec={"containers": list(containers), **spec})
    return world.post(PODS, body)


def _resized(*containers: dict[str, Any], group: str = "containers") -> dict[str, Any]:
    return {"spec": {group: list(containers)}}


def test_a_resize_changes_cpu_and_memory_and_nothing_else(world: World) -> None:
    _sized(world, _container(requests={"cpu": "1", "memory": "1Gi"}), _container("d"))
    wanted = _resized({"name": "c", "image": "other", "resources": {"requests": {"cpu": "2"}}})
    wanted["metadata"] = {"labels": {"a": "changed"}}
    found = world.patch(RESIZE, wanted, kind=STRATEGIC)
    container = found["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}}
    assert (container["image"], found["metadata"]["labels"]) == ("i", {"a": "b"})
    assert found["metadata"]["generation"] == 2
    assert world.get(RESIZE) == found


@cases("""
    change | cause
    {requests: {nvidia.com/gpu: '1'}, limits: {nvidia.com/gpu: '1'}} | only cpu and memory resources are mutable
    {requests: {memory: null}} | resource requests cannot be removed
    {limits: null} | resource limits cannot be removed
    {requests: {cpu: '4'}} | must be less than or equal to cpu limit of 2
    {requests: {cpu: '2'}, limits: {memory: 1Gi}} | '"Burstable": Pod QOS Class may not change as a
        result of resizing'
    """)
def test_a_resize_is_refused_for_what_it_may_not_do(world: World, change: Any, cause: str) -> None:
    _sized(world, _container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "2"}))
    status, answer = world.call("PATCH", RESIZE, _resized({"name": "c", "resources": change}), kind=STRATEGIC)
    assert status == 422
    assert cause in answer["message"]


def test_containers_cannot_be_changed_by_a_resize(world: World) -> None:
    before = _sized(world, _container(requests={"cpu": "1"}))
    there, renamed = before["spec"]["containers"], _container("d", requests={"cpu": "1"})
    for containers, what in (([*there, _container("d")], "added or removed"), ([renamed], "renamed or reordered")):
        body = {**before, "spec": {**before["spec"], "containers": containers}}
        status, answer = world.call("PUT", RESIZE, body)
        assert (status, f"containers may not be {what} on resize" in answer["message"]) == (422, True)


@pytest.mark.parametrize(("policy", "code"), [("Always", 200), (None, 422)])
def test_of_init_containers_only_sidecars_are_resized(world: World, policy: str | None, code: int) -> None:
    init = _container("s", requests={"cpu": "1"}) | ({"restartPolicy": policy} if policy else {})
    _sized(world, _container(requests={"cpu": "1"}), initContainers=[init])
    change = {"name": "s", "resources": {"requests": {"cpu": "2"}}}
    status, answer = world.call("PATCH", RESIZE, _resized(change, group="initContainers"), kind=STRATEGIC)
    assert status == code
    if code == 422:
        assert "resources for non-sidecar init containers are immutable" in answer["message"]


def _workload(world: World, plural: str) -> str:
    selector: dict[str, Any] = {"matchLabels": {"app": "x"}}
    if plural == "replicationcontrollers":
        selector = selector["matchLabels"]
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container()]}}
    spec = {"replicas": 3, "selector": selector, "template": template}
    world.post(WORKLOADS[plural], named("w", spec=spec))
    return f"{WORKLOADS[plural]}/w/scale"


@pytest.mark.parametrize("plural", WORKLOADS)
def test_a_workload_is_scaled_through_its_scale(world: World, plural: str) -> None:
    path = _workload(world, plural)
    scale = world.get(path)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 0, "selector": "app=x"}
    scale["spec"]["replicas"] = 5
    assert world.put(path, scale)["spec"] == {"replicas": 5}
    assert world.patch(path, {"spec": {"replicas": 0}})["spec"] == {}
    found = world.get(path.removesuffix("/scale"))
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (0, 3)


def test_a_scale_is_refused_when_stale_negative_or_of_another_object(world: World) -> None:
    path = _workload(world, "deployments")
    scale = world.get(path)
    world.patch(path, {"spec": {"replicas": 4}})
    assert world.refused("PUT", path, scale) == (409, "Conflict")
    assert world.refused("PATCH", path, {"spec": {"replicas": -1}}, kind=MERGE) == (422, "Invalid")
    assert world.refused("PUT", path, named("other", spec={})) == (400, "BadRequest")
    assert world.refused("PUT", path, {"kind": "Pod"}) == (400, "BadRequest")
    assert world.refused("GET", path.replace("/w/", "/none/")) == (404, "NotFound")
    assert world.refused("DELETE", path)[0] == 405
    assert world.get(path)["spec"] == {"replicas": 4}


def _account(world: World) -> str:
    world.post(ACCOUNTS, named("a"))
    return f"{ACCOUNTS}/a/token"


@cases("""
    spec | code
    {expirationSeconds: 599} | 422
    {expirationSeconds: 8589934592} | 422
    {boundObjectRef: {kind: Pod, name: none}} | 404
    {boundObjectRef: {kind: Deployment, name: d}} | 400
    {boundObjectRef: {kind: Node, name: n1, uid: another}} | 409
    """)
def test_a_token_is_refused_for_a_bad_lifetime_or_a_missing_object(
    world: World, spec: dict[str, Any], code: int
) -> None:
    world.node()
    assert world.refused("POST", _account(world), {"spec": spec})[0] == code


def test_a_token_needs_its_account_and_is_only_ever_posted(world: World) -> None:
    path = _account(world)
    assert world.refused("POST", path.replace("/a/", "/none/"), {})[0] == 404
    assert world.refused("GET", path)[0] == 405


def test_a_token_of_an_account_does_not_open_another_server() -> None:
    world = World(nodes="n1")
    token = world.post(_account(world), {})["status"]["token"]
    guarded = World(auth=Options.one_token("secret"))
    status, _ = guarded.call("GET", PODS, authorization=f"Bearer {token}")
    assert status == 401
