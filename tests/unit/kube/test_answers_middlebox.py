"""Each kind of write, over the real transport, to a real API server behind something that answers in its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from agent_scheduler.kube.bind import BindOutcome, BindPolicy, Binds
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.create import create_once, delete_once
from agent_scheduler.kube.eviction import Evicted, evict
from agent_scheduler.kube.patch import patch_once
from agent_scheduler.kube.recorder import EventRecorder, ObjectReference
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.status import PodCondition, StatusWriter
from agent_scheduler.kube.transport import PodKey
from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster
from tests.support.scripted import FakeTime, running

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SAYS = (
    "badGateway",
    "empty",
    "emptyObject",
    "forbidden",
    "gatewayTimeout",
    "loginPage",
    "notFound",
    "redirect",
    "serviceUnavailable",
    "tooManyRequests",
    "unauthorized",
)
LIES: list[dict[str, Any]] = [{"middlebox": {"says": says}} for says in SAYS]
#: In whose place the request was carried out all the same. Who turns a request away with 401 or 429 passes none on.
COMMITTED: list[dict[str, Any]] = [
    {"middlebox": {"says": says, "commit": True}}
    for says in SAYS
    if says not in ("tooManyRequests", "unauthorized")
]
CUT: list[dict[str, Any]] = [{"cutBody": {}}, {"cutBody": {"bytes": 0}}]


def first_of_each(faults: list[dict[str, Any]], *always: int) -> list[Any]:
    """The faults, all but those at these places for `make verify` alone."""
    return [
        pytest.param(fault, id=name_of(fault), marks=() if at in always else pytest.mark.wide)
        for at, fault in enumerate(faults)
    ]


def name_of(fault: dict[str, Any]) -> str:
    return json.dumps(fault).replace('"', "")


@asynccontextmanager
async def lying(
    *rules: dict[str, Any],
) -> AsyncIterator[tuple[EmbeddedCluster, Callable[[], dict[str, int]]]]:
    """A cluster with node n1 and pod p, whose first answers that a rule matches are lies from when `p` is there."""
    injector = Injector(plan_of(json.dumps({"rules": list(rules)})))
    live = False
    async with embedded_cluster(disturb=lambda request: injector(request) if live else None) as cluster:
        await cluster.add_node("n1")
        await cluster.add_pod("p")
        live = True
        yield cluster, lambda: injector.fired


async def uid_of(cluster: EmbeddedCluster) -> str:
    return str((await pod_of(cluster))["metadata"]["uid"])


async def pod_of(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Of the list, which no rule here is about."""
    return (await cluster.pods())["p"]


def quick() -> Timing:
    return replace(FakeTime().timing, clock=asyncio.get_running_loop().time)


def always() -> bool:
    return True


async def binds(cluster: EmbeddedCluster) -> None:
    uid = await uid_of(cluster)
    result = await Binds(cluster.transport, policy=BindPolicy(), timing=quick()).bind(
        PodKey("default", "p", uid), "n1"
    )
    assert result.outcome is BindOutcome.BOUND
    assert (await pod_of(cluster))["spec"]["nodeName"] == "n1"


async def patches(cluster: EmbeddedCluster) -> None:
    meta = (await pod_of(cluster))["metadata"]
    named = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    body = json.dumps({"metadata": {**named, "labels": {"a": "b"}}}).encode()
    patched = await patch_once(cluster.transport, f"{PODS}/p", body, wanted=always, timing=quick())
    assert patched.failure is None
    after = (await pod_of(cluster))["metadata"]
    assert after["labels"] == {"a": "b"}
    assert after["resourceVersion"] == patched.resource_version


async def creates(cluster: EmbeddedCluster) -> None:
    body = json.dumps({"metadata": {"name": "c"}, "spec": {}}).encode()
    made = await create_once(cluster.transport, CLAIMS, "c", body, wanted=always, timing=quick())
    assert made.failure is None
    (found,) = (await cluster.ask("GET", CLAIMS))["items"]
    assert found["metadata"]["uid"] == made.found["metadata"]["uid"]


async def deletes(cluster: EmbeddedCluster) -> None:
    uid = await uid_of(cluster)
    assert await delete_once(cluster.transport, f"{PODS}/p", uid, wanted=always, timing=quick()) is None
    assert await cluster.pods() == {}


async def evicts(cluster: EmbeddedCluster) -> None:
    uid = await uid_of(cluster)
    outcome, failure = await evict(
        cluster.transport, PodKey("default", "p", uid), message="m", wanted=always, timing=quick()
    )
    assert outcome in (Evicted.DELETED, Evicted.GONE), failure
    assert await cluster.pods() == {}


async def tells_status(cluster: EmbeddedCluster) -> None:
    counts: list[str] = []
    writer = StatusWriter(cluster.transport, budget=Budget(), timing=quick(), count=counts.append)
    async with running(writer.run()):
        writer.report(PodKey("default", "p", await uid_of(cluster)), PodCondition("False", "Why"))
        assert await writer.drain(10) == 0
    assert counts == ["written"]
    (condition,) = (await pod_of(cluster))["status"]["conditions"]
    assert condition["reason"] == "Why"


async def tells_event(cluster: EmbeddedCluster) -> None:
    counts: list[str] = []
    recorder = EventRecorder(
        cluster.transport,
        controller="c",
        instance="i",
        budget=Budget(),
        timing=replace(quick(), sleep=_pause),
        count=counts.append,
    )
    async with running(recorder.run()):
        about = ObjectReference("Pod", "default", "p", await uid_of(cluster))
        recorder.once(about, type="Normal", reason="R", action="A", note="n")
        assert await recorder.drain(10) == 0
    assert counts == ["recorded"]
    (event,) = (await cluster.ask("GET", EVENTS))["items"]
    assert event["reason"] == "R"


async def _pause(seconds: float) -> None:
    """The sweep's long one is not over before the test is."""
    await asyncio.sleep(0 if seconds < 20 else seconds)


WRITES: dict[str, tuple[Callable[[EmbeddedCluster], Awaitable[None]], dict[str, Any]]] = {
    "bind": (binds, {"resource": "pods/binding"}),
    "patch": (patches, {"resource": "pods", "verbs": ["patch"]}),
    "create": (creates, {"resource": "resourceclaims", "verbs": ["create"]}),
    "delete": (deletes, {"resource": "pods", "verbs": ["delete"]}),
    "evict": (evicts, {"resource": "pods*", "verbs": ["patch", "delete"]}),
    "status": (tells_status, {"resource": "pods/status", "verbs": ["patch"]}),
    "event": (tells_event, {"resource": "events", "verbs": ["create", "patch"]}),
}


@pytest.mark.parametrize("fault", first_of_each(LIES + COMMITTED + CUT, 1, 5, 7, 16, 20))
@pytest.mark.parametrize("write", WRITES)
async def test_a_write_is_done_once_whatever_answers_in_the_place_of_the_api_server(
    write: str, fault: dict[str, Any]
) -> None:
    carry_out, match = WRITES[write]
    async with lying({"match": match, "count": 2, "fault": fault}) as (cluster, fired):
        await carry_out(cluster)
        assert sum(fired().values()) >= 1


@pytest.mark.parametrize("fault", first_of_each(LIES + CUT, 7))
@pytest.mark.parametrize("write", ["bind", "patch", "create"])
async def test_a_write_that_is_looked_for_is_looked_for_until_the_api_server_tells(
    write: str, fault: dict[str, Any]
) -> None:
    """The write is carried out and its answer lost; what is asked then is answered by something else."""
    carry_out, match = WRITES[write]
    lost = {"match": match, "count": 1, "fault": {"lose": {}}}
    lie = {"match": {"verbs": ["get"], "resource": "*s"}, "count": 2, "fault": fault}
    async with lying(lost, lie) as (cluster, fired):
        await carry_out(cluster)
        assert fired()["lose"] == 1


async def test_a_pod_that_waits_is_not_lost_to_a_load_balancer() -> None:
    lie = {"match": {"name": "p"}, "fault": {"middlebox": {"says": "notFound"}}}
    async with lying(lie) as (cluster, _):
        found = PodKey("default", "p", await uid_of(cluster))
        result = await Binds(cluster.transport, timing=FakeTime().timing).bind(found, "n1")
        assert result.outcome is BindOutcome.UNKNOWN
        assert result.unknown is not None
