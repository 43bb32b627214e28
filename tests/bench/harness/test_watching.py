"""Load and observer together, against an embedded cluster with kubelets, with binds made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from bench.harness.arrivals import Given
from bench.harness.load import Load
from bench.harness.manifests import encode, given_node, template_of
from bench.harness.model import Batch
from bench.harness.requests import create_all
from bench.harness.specs import NodeSpec, PodSpec
from bench.harness.watching import FreeCapacity, Observer, Track
from kube_client.errors import RequestFailed
from kube_client.testing.scripted import running
from kube_client.transport import Transport
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until

GPU = "example.com/gpu"
NODES = (
    NodeSpec(name="a", cpu_milli=4000, memory=1 << 30, extended={GPU: 2}, labels={"model": "x"}),
    NodeSpec(name="b", cpu_milli=2000, memory=1 << 30, pods=5),
)


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster(kubelets=True) as cluster:
        await create_nodes(cluster.transport, NODES)
        yield cluster


async def create_nodes(transport: Transport, nodes: Iterable[NodeSpec]) -> None:
    bodies = ({**given_node(node), "spec": {}} for node in nodes)
    await create_all(transport, "/api/v1/nodes", map(encode, bodies))


def load_of(embedded: EmbeddedCluster, *pods: PodSpec) -> tuple[Load, Track]:
    times = Given(tuple(pod.arrival for pod in pods))
    track = Track(Batch(name="p", count=len(pods), templates=tuple(map(template_of, pods)), arrival=times))
    return Load(embedded.transport, namespace="default", track=track, scheduler_name="s"), track


@asynccontextmanager
async def observing(embedded: EmbeddedCluster, track: Track) -> AsyncIterator[Observer]:
    free = FreeCapacity({node.name: node.allocatable() for node in NODES})
    observer = Observer(embedded.transport, "default", [track], free)
    async with running(observer.run()):
        await asyncio.wait_for(observer.ready.wait(), 10)
        yield observer


async def test_nodes_arrive_as_they_were_specified(embedded: EmbeddedCluster) -> None:
    node = await embedded.ask("GET", "/api/v1/nodes/a")
    amounts = {"cpu": "4", "memory": "1Gi", "pods": "110", "example.com/gpu": "2"}
    assert node["status"]["allocatable"] == amounts
    assert node["metadata"]["labels"].items() >= {"model": "x", "kubernetes.io/hostname": "a"}.items()
    with pytest.raises(RequestFailed, match=r"POST /api/v1/nodes: 409 AlreadyExists"):
        await create_nodes(embedded.transport, NODES)


async def test_pods_arrive_as_they_were_specified(embedded: EmbeddedCluster) -> None:
    requests = {"cpu": 100, "example.com/gpu": 1}
    load, track = load_of(embedded, PodSpec(name="good", requests=requests, affinity={"model": ("x",)}))
    await load.run()
    pod = await embedded.ask("GET", f"{PODS}/{track.name(0)}")
    assert pod["spec"]["schedulerName"] == "s"
    resources = {"requests": {"cpu": "100m", GPU: "1"}, "limits": {GPU: "1"}}
    assert pod["spec"]["containers"][0]["resources"] == resources
    assert "model" in str(pod["spec"]["affinity"]["nodeAffinity"])


async def test_a_run_is_seen_from_create_to_end(embedded: EmbeddedCluster) -> None:
    load, track = load_of(
        embedded,
        PodSpec(name="short", requests={"cpu": 1000}, life=0.05),
        PodSpec(name="long", requests={"cpu": 1000}),
        PodSpec(name="waits", requests={"cpu": 9000}),
    )
    async with observing(embedded, track) as seen:
        await load.run()
        await embedded.bind(track.name(0), "a")
        await embedded.bind(track.name(1), "b")
        await until(lambda: seen.ended == 1 and seen.running == 1)
        assert track.bound_count == 2
        assert all(track.bound[number] > track.sent[number] for number in range(2))
        assert seen.free.fill("cpu") == [0.0, 0.5]
        assert not seen.rebound
        assert not seen.kubelet_refusals
        await embedded.ask("DELETE", f"{PODS}/{track.name(1)}", {"gracePeriodSeconds": 0})
        await until(lambda: track.gone == 1)
        assert seen.free.fill("cpu") == [0.0, 0.0]
        assert seen.running == 0


async def test_an_overcommit_is_seen_in_what_the_kubelet_refuses(embedded: EmbeddedCluster) -> None:
    load, track = load_of(embedded, *(PodSpec(name=name, requests={"cpu": 1500}) for name in "ab"))
    async with observing(embedded, track) as seen:
        await load.run()
        for number in range(2):
            await embedded.bind(track.name(number), "b")
        await until(lambda: bool(seen.kubelet_refusals))
        assert seen.kubelet_refusals == {"OutOfcpu": 1}
