"""Load, observer and audit together, against an embedded cluster, with binds made by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent_scheduler.demo.audit import audit_cluster
from agent_scheduler.demo.load import PodLoad, create_nodes
from agent_scheduler.demo.observe import Observer, node_fill, percentiles
from agent_scheduler.demo.specs import NodeSpec, PodSpec
from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.transport import Transport
from tests.embedded import PODS, EmbeddedCluster, until

NODES = (
    NodeSpec(
        name="a", cpu_milli=4000, memory=1 << 30, extended={"example.com/gpu": 2}, labels={"model": "x"}
    ),
    NodeSpec(name="b", cpu_milli=2000, memory=1 << 30, pods=5),
)


def load_of(embedded: EmbeddedCluster) -> PodLoad:
    return PodLoad(
        embedded.transport, namespace="default", scheduler_name="s", clock=time.monotonic, parallel=4
    )


@asynccontextmanager
async def observing(
    embedded: EmbeddedCluster, load: PodLoad, pods: tuple[PodSpec, ...]
) -> AsyncIterator[Observer]:
    observer = Observer(
        embedded.transport, namespace="default", load=load.result, pods=pods, clock=time.monotonic
    )
    task = asyncio.create_task(observer.run())
    try:
        await asyncio.wait_for(observer.ready.wait(), 10)
        yield observer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_nodes_arrive_as_they_were_specified(embedded: EmbeddedCluster) -> None:
    await create_nodes(embedded.transport, NODES)
    node = await embedded.ask("GET", "/api/v1/nodes/a")
    assert node["status"]["allocatable"] == {
        "cpu": "4",
        "memory": "1Gi",
        "pods": "110",
        "example.com/gpu": "2",
    }
    assert node["metadata"]["labels"]["model"] == "x"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "a"
    with pytest.raises(RequestFailed, match=r"POST /api/v1/nodes: 409 AlreadyExists"):
        await create_nodes(embedded.transport, NODES)


async def test_every_answer_is_counted_and_no_refusal_is_lost(embedded: EmbeddedCluster) -> None:
    pods = (
        PodSpec(name="good", requests={"cpu": 100, "example.com/gpu": 1}, affinity={"model": ("x",)}),
        PodSpec(name="Bad_Name", requests={"cpu": 100}),
    )
    load = load_of(embedded)
    await load.run(pods)
    assert load.result.created == 1
    assert load.result.answers == {201: 1, 422: 1}
    ((error, count),) = load.result.errors.items()
    assert count == 1
    assert error.startswith("422 Invalid")
    pod = await embedded.ask("GET", f"{PODS}/good")
    assert pod["spec"]["schedulerName"] == "s"
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "example.com/gpu": "1"},
        "limits": {"example.com/gpu": "1"},
    }


async def test_a_load_without_a_server_reports_every_pod_as_failed(embedded: EmbeddedCluster) -> None:
    await embedded.server.stop()
    load = load_of(embedded)
    await load.run([PodSpec(name=f"p{number}", requests={}) for number in range(5)])
    assert load.result.created == 0
    assert sum(load.result.errors.values()) == 5


async def test_pods_are_sent_when_they_are_due(embedded: EmbeddedCluster) -> None:
    load = load_of(embedded)
    await load.run([PodSpec(name="now", requests={}), PodSpec(name="later", requests={}, arrival=0.1)])
    times = load.result.times
    assert times["later"].due - times["now"].due == pytest.approx(0.1, abs=1e-6)
    assert times["later"].sent >= times["later"].due


async def test_a_run_is_seen_from_create_to_end(embedded: EmbeddedCluster) -> None:
    await create_nodes(embedded.transport, NODES)
    pods = (
        PodSpec(name="short", requests={"cpu": 1000}, life=0.05),
        PodSpec(name="long", requests={"cpu": 1000}),
        PodSpec(name="waits", requests={"cpu": 9000}),
    )
    load = load_of(embedded)
    async with observing(embedded, load, pods) as observer:
        await load.run(pods)
        seen = observer.observation
        await embedded.bind("short", "a")
        await embedded.bind("long", "b")
        await until(lambda: seen.ended == 1 and seen.running == 1)
        assert seen.bound == 2
        assert len(seen.created_to_bound) == 2
        assert all(seconds > 0 for seconds in seen.created_to_bound)
        assert node_fill(seen, NODES) == [0.0, 0.5]
        assert not seen.rebound
        assert not seen.kubelet_refusals
        await embedded.ask("DELETE", f"{PODS}/long", {"gracePeriodSeconds": 0})
        await until(lambda: seen.deleted == 1)
        assert node_fill(seen, NODES) == [0.0, 0.0]
    audit = await audit_cluster(embedded.transport)
    assert audit.ok
    assert audit.refused == {"(the scheduler has written no condition)": 1}


async def test_an_overcommit_is_seen_in_what_the_kubelet_refuses(embedded: EmbeddedCluster) -> None:
    await create_nodes(embedded.transport, NODES)
    pods = tuple(PodSpec(name=name, requests={"cpu": 1500}) for name in ("first", "second"))
    load = load_of(embedded)
    async with observing(embedded, load, pods) as observer:
        await load.run(pods)
        for pod in pods:
            await embedded.bind(pod.name, "b")
        await until(lambda: bool(observer.observation.kubelet_refusals))
        assert observer.observation.kubelet_refusals == {"OutOfcpu": 1}


async def test_the_observer_goes_on_where_a_watch_was_cut(embedded: EmbeddedCluster) -> None:
    await create_nodes(embedded.transport, NODES)
    pods = tuple(PodSpec(name=name, requests={"cpu": 100}) for name in ("before", "after"))
    load = load_of(embedded)
    async with observing(embedded, load, pods) as observer:
        seen = observer.observation
        await load.run(pods)
        await embedded.bind("before", "a")
        await until(lambda: seen.bound == 1)
        for watcher in embedded.api.registry.stored(("", "pods")).hub.watchers():
            watcher.end()
        await until(lambda: seen.reconnects == 1)
        await embedded.bind("after", "a")
        await until(lambda: seen.bound == 2)
        # Compacted away under a watch that is cut again: listed anew, and nothing is counted twice.
        embedded.api.store.compact(embedded.api.store.rv)
        for watcher in embedded.api.registry.stored(("", "pods")).hub.watchers():
            watcher.end()
        await until(lambda: seen.reconnects >= 2)
        await asyncio.sleep(0.05)
        assert (seen.bound, len(seen.created_to_bound)) == (2, 2)
        assert not seen.rebound


async def test_unbound_pods_that_fit_are_found_through_the_api(embedded: EmbeddedCluster) -> None:
    await create_nodes(embedded.transport, NODES)
    await load_of(embedded).run([PodSpec(name="p", requests={"cpu": 2500})])
    audit = await audit_cluster(embedded.transport)
    assert audit.left_out == ["p is not bound, but fits a"]


def test_percentiles_of_nothing_are_zero() -> None:
    assert percentiles([]) == (0.0, 0.0, 0.0)
    assert percentiles([1.0, 2.0, 3.0], (50,)) == (2.0,)


class Expiring:
    """A transport whose first watch says at once that it cannot go on; later ones do."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.request = inner.request
        self.expired = False

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        async def over() -> AsyncIterator[list[bytes]]:
            yield [b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","code":410}}']

        if not self.expired:
            self.expired = True
            yield over()
            return
        async with self.inner.stream(path, read_timeout=read_timeout) as batches:
            yield batches


async def test_the_observer_lists_again_when_its_watch_has_expired(embedded: EmbeddedCluster) -> None:
    pods = (PodSpec(name="p", requests={"cpu": 100}),)
    load = load_of(embedded)
    observer = Observer(
        Expiring(embedded.transport),  # type: ignore[arg-type]
        namespace="default",
        load=load.result,
        pods=pods,
        clock=time.monotonic,
    )
    task = asyncio.create_task(observer.run())
    try:
        await until(lambda: observer.observation.reconnects == 1)
        await create_nodes(embedded.transport, NODES)
        await load.run(pods)
        await embedded.bind("p", "a")
        await until(lambda: observer.observation.bound == 1)
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
