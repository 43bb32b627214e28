"""ResourceQuotas and LimitRanges: what they refuse, in kube-apiserver's words, what they set, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import (
    DEFAULT,
    PODS,
    PVCS,
    SERVICES,
    World,
    asking,
    cases,
    config_map,
    container,
    named,
    pod,
    volume_claim,
)
from embedded_kubernetes.quotas import Quotas

QUOTAS, LIMITS = f"{DEFAULT}/resourcequotas", f"{DEFAULT}/limitranges"


@pytest.fixture
def world() -> World:
    made = World(nodes="n1")
    made.controllers = [Quotas(made.api.registry)]
    return made


def quota(world: World, name: str = "q", *, spec: dict[str, Any] | None = None, **hard: str) -> None:
    world.post(
        QUOTAS, named(name, spec={"hard": {key.replace("_", "."): text for key, text in hard.items()}, **(spec or {})})
    )
    world.settle()


def used(world: World, name: str = "q") -> Any:
    return world.get(f"{QUOTAS}/{name}")["status"]["used"]


def message(world: World, path: str, body: Any) -> str:
    status, answer = world.call("POST", path, body)
    assert status == 403, answer
    return str(answer["message"])


def test_pods_count_from_their_creation_until_they_end_or_are_gone(world: World) -> None:
    world.pod("before", spec={"containers": [asking(cpu="500m", memory="256Mi")]})
    quota(world, pods="3", cpu="2", requests_memory="1Gi", limits_cpu="8")
    assert used(world) == {"pods": "1", "cpu": "500m", "requests.memory": "256Mi", "limits.cpu": "0"}
    spec = {"containers": [asking(cpu="1", memory="256Mi", limits={"cpu": "2"})]}
    world.pod("a", spec=spec)
    # The use is counted at once, without the controller.
    assert used(world) == {"pods": "2", "cpu": "1500m", "requests.memory": "512Mi", "limits.cpu": "2"}
    said = 'pods "b" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=1500m, limited: cpu=2'
    assert message(world, PODS, pod("b", spec=spec)) == said
    world.settle()
    assert used(world)["cpu"] == "1500m"
    world.set_status("a", phase="Succeeded")
    world.settle()
    assert used(world) == {"pods": "1", "cpu": "500m", "requests.memory": "256Mi", "limits.cpu": "0"}
    world.delete(f"{PODS}/before", gracePeriodSeconds=0)
    world.settle()
    assert used(world)["pods"] == "0"


def test_a_burst_of_equal_pods_does_not_exceed_a_quota_and_a_dry_run_uses_nothing(world: World) -> None:
    for number in range(3):
        world.pod(f"before-{number}")
    quota(world, pods="5")
    answers = [world.call("POST", PODS, pod(f"p-{number}"))[0] for number in range(4)]
    assert answers == [201, 201, 403, 403]
    world.delete(f"{PODS}/p-0", gracePeriodSeconds=0)
    world.settle()
    assert world.call("POST", f"{PODS}?dryRun=All", pod("p-9"))[0] == 201
    assert used(world) == {"pods": "4"}


def test_each_container_must_say_what_a_quota_counts(world: World) -> None:
    quota(world, requests_cpu="4", limits_memory="4Gi")
    spec = {"containers": [container("a"), asking("b", cpu="1")]}
    said = 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: a,b; requests.cpu for: a'
    assert message(world, PODS, pod("p", spec=spec)) == said


def test_other_kinds_are_counted(world: World) -> None:
    hard = {
        "count/configmaps": "1",
        "requests.storage": "10Gi",
        "fast.storageclass.storage.k8s.io/requests.storage": "1Gi",
    }
    world.post(QUOTAS, named("q", spec={"hard": {**hard, "services.nodeports": "1", "persistentvolumeclaims": "2"}}))
    world.settle()
    world.post(f"{DEFAULT}/configmaps", config_map("a"))
    assert "exceeded quota: q, requested: count/configmaps=1" in message(
        world, f"{DEFAULT}/configmaps", config_map("b")
    )
    world.post(PVCS, volume_claim("a", size="1Gi", storageClassName="fast"))
    said = message(world, PVCS, volume_claim("b", size="1Gi", storageClassName="fast"))
    assert "requested: fast.storageclass.storage.k8s.io/requests.storage=1Gi, used: " in said
    world.post(PVCS, volume_claim("c", size="2Gi", storageClassName=""))
    ports = {"type": "NodePort", "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}
    assert "services.nodeports=2" in message(world, SERVICES, named("s", spec=ports))
    assert used(world)["requests.storage"] == "3Gi"


@cases("""
    scope | fits | other
    {scopes: [BestEffort]} | {} | {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}
    {scopes: [NotBestEffort]} | {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]} | {}
    {scopes: [Terminating]} | {activeDeadlineSeconds: 5} | {}
    {scopes: [NotTerminating]} | {} | {activeDeadlineSeconds: 5}
    {scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [system-node-critical]}]}}
        | {priorityClassName: system-node-critical} | {}
    """)
def test_a_quota_counts_the_pods_of_its_scopes(world: World, scope: Any, fits: Any, other: Any) -> None:
    quota(world, spec=scope, pods="1")
    world.pod("other", spec=other)
    world.pod("fits", spec=fits)
    world.settle()
    assert used(world) == {"pods": "1"}
    assert "exceeded quota" in message(world, PODS, pod("more", spec=fits))


def limits(world: World, **item: Any) -> None:
    world.post(LIMITS, named("l", spec={"limits": [{"type": "Container", **item}]}))


def test_a_limit_range_sets_what_containers_lack(world: World) -> None:
    for number in range(3):
        world.pod(f"before-{number}")
    limits(world, default={"cpu": "2"}, defaultRequest={"cpu": "1", "memory": "1Gi"}, max={"memory": "4Gi"})
    made = world.pod("p", spec={"containers": [container("c", requests={"memory": "2Gi"})]})
    resources = {"requests": {"memory": "2Gi", "cpu": "1"}, "limits": {"cpu": "2", "memory": "4Gi"}}
    assert made["spec"]["containers"][0]["resources"] == resources
    applied = "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c"
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == applied
    world.delete(f"{LIMITS}/l")
    assert world.pod("before-3")["spec"]["containers"][0]["resources"] == {}


@cases("""
    item | resources | said
    {min: {cpu: 1}, max: {cpu: 2}} | {requests: {cpu: 500m}, limits: {cpu: 1}} | minimum cpu usage per Container is
        1, but request is 500m
    {max: {cpu: 2}} | {requests: {cpu: 1}, limits: {cpu: 3}} | maximum cpu usage per Container is 2, but limit is 3
    {type: Pod, max: {cpu: 2}} | {requests: {cpu: 3}} | maximum cpu usage per Pod is 2.  No limit is specified
    {type: Pod, min: {memory: 1Gi}} | {} | minimum memory usage per Pod is 1Gi.  No request is specified
    {maxLimitRequestRatio: {cpu: 2}} | {requests: {cpu: 1}, limits: {cpu: 4}} | cpu max limit to request ratio per
        Container is 2, but provided ratio is 4.000000
    {type: Pod, min: {cpu: 2}, max: {cpu: 3}} | {requests: {cpu: 1}, limits: {cpu: 4}} | '[minimum cpu usage per Pod
        is 2, but request is 1, maximum cpu usage per Pod is 3, but limit is 4]'
    """)
def test_a_limit_range_refuses_what_is_out_of_bounds(world: World, item: Any, resources: Any, said: str) -> None:
    limits(world, **item)
    spec = {"containers": [container("c", resources=resources)]}
    assert message(world, PODS, pod("p", spec=spec)) == f'pods "p" is forbidden: {said}'


def test_a_limit_range_bounds_claims(world: World) -> None:
    limits(world, type="PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "2Gi"})
    about = "storage usage per PersistentVolumeClaim is"
    assert f"minimum {about} 1Gi, but request is 512Mi" in message(world, PVCS, volume_claim("a", size="512Mi"))
    assert f"maximum {about} 2Gi, but request is 3Gi" in message(world, PVCS, volume_claim("a", size="3Gi"))
    world.post(PVCS, volume_claim("a", size="2Gi"))
