"""Shares of GPUs from the watch to the bind, and back from the API server after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.state.gpus import ANNOTATION, RESOURCE
from agent_scheduler.fastpath import checking
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.objects import container, node
from tests.support.running import Running, scheduling, settings_from

HIGH = "system-cluster-critical"


async def add_node(cluster: EmbeddedCluster, name: str, devices: int, **labels: str) -> None:
    body = node(name, cpu="16", memory="64Gi", extended={RESOURCE: f"{devices}000"}, labels=labels)
    await cluster.ask("POST", "/api/v1/nodes", body)


async def add_pod(cluster: EmbeddedCluster, name: str, amount: int, **spec: Any) -> Any:
    amounts = {RESOURCE: str(amount)}
    asks = container(requests={"cpu": "100m", **amounts}, limits=amounts)
    return await cluster.add_pod(name, containers=[asks], **spec)


async def placed_pod(cluster: EmbeddedCluster, name: str, amount: int) -> tuple[str, str | None]:
    """Create a pod and return, once it has a node, that and its devices."""
    await add_pod(cluster, name, amount)
    found: tuple[str, str | None] = await until(lambda: is_given(cluster, name))
    return found


async def bind(cluster: EmbeddedCluster, pod: str, node: str, devices: str | None) -> None:
    """Bind a pod like another scheduler."""
    metadata = {"name": pod} | ({"annotations": {ANNOTATION: devices}} if devices is not None else {})
    body = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
    await cluster.ask("POST", f"{PODS}/{pod}/binding", body)


async def given(cluster: EmbeddedCluster) -> dict[str, tuple[str, str | None]]:
    """Return name -> node and devices, of the pods that have a node."""
    return {
        name: (pod["spec"]["nodeName"], (pod["metadata"].get("annotations") or {}).get(ANNOTATION))
        for name, pod in (await cluster.pods()).items()
        if pod["spec"].get("nodeName")
    }


async def is_given(cluster: EmbeddedCluster, name: str) -> tuple[str, str | None] | None:
    return (await given(cluster)).get(name)


def free(running: Running, node: str = "n1") -> tuple[int, ...]:
    ledger = running.fast_path.ledger
    return ledger.columns.gpus[ledger.rows[node]]


@pytest.mark.promise("L20")
async def test_devices_are_told_and_found_again_after_a_restart() -> None:
    async with embedded_cluster() as cluster:
        await add_node(cluster, "n1", 2)
        async with scheduling(cluster.transport) as running:
            for name, amount in (("a", 600), ("b", 600), ("c", 300)):
                await placed_pod(cluster, name, amount)
            first = {"a": ("n1", "0"), "b": ("n1", "1"), "c": ("n1", "0")}
            assert await given(cluster) == first
            assert free(running) == (100, 400)
            assert running.reports.failures == []
        async with scheduling(cluster.transport) as running:
            assert free(running) == (100, 400)
            await add_pod(cluster, "d", 350)
            await add_pod(cluster, "e", 100)
            await until(lambda: is_given(cluster, "d"))
            await until(lambda: is_given(cluster, "e"))
            assert await given(cluster) == first | {"d": ("n1", "1"), "e": ("n1", "0")}
            assert free(running) == (0, 50)
            assert running.fast_path.ledger.bound_with.keys() == {
                pod["metadata"]["uid"] for name, pod in (await cluster.pods()).items() if name in "de"
            }


@pytest.mark.promise("S38", "S39")
async def test_a_burst_fills_devices_to_the_last_thousandth_and_no_further() -> None:
    """Several binds are under way at once."""
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        for name in ("n1", "n2"):
            await add_node(cluster, name, 2)
        for number in range(24):
            await add_pod(cluster, f"p{number}", 200)
        await until(lambda: running.reports.attempts["scheduled"] == 20)
        await until(lambda: running.fast_path.queue.pending().unschedulable == 4)
        assert free(running, "n1") == free(running, "n2") == (0, 0)
        placed = await given(cluster)
        counts = [list(placed.values()).count((node, device)) for node in ("n1", "n2") for device in "01"]
        assert counts == [5, 5, 5, 5]
        assert running.reports.failures == []


async def test_a_pod_waits_while_no_device_has_enough_left_and_is_woken_when_one_has() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await add_node(cluster, "n1", 2)
        for name in ("a", "b"):
            await placed_pod(cluster, name, 600)
        await add_pod(cluster, "large", 700)
        condition = await until(lambda: cluster.condition("large"))
        assert condition["message"].startswith("0/1 nodes are available: 1 node(s) didn't have a GPU with enough left.")
        await cluster.end_pod("b")
        assert await until(lambda: is_given(cluster, "large")) == ("n1", "1")
        assert free(running) == (400, 300)
        assert running.reports.counts["after flush"] == 0


@pytest.mark.promise("S39", "L20")
async def test_pods_that_others_bound_count_on_the_devices_that_they_name() -> None:
    async with embedded_cluster() as cluster:
        await add_node(cluster, "n1", 3)
        for name, amount, devices in (
            ("a", 600, "2"),
            ("b", 600, "2"),
            ("c", 1000, "0"),
            ("d", 300, None),
            ("e", 200, "x"),
        ):
            await add_pod(cluster, name, amount, scheduler="another")
            await bind(cluster, name, "n1", devices)
        async with scheduling(cluster.transport) as running:
            assert free(running) == (0, 1000, -200)
            assert await placed_pod(cluster, "mine", 300) == ("n1", "1")


# ---- the target workload

LEARNING = """
profiles: [{plugins: {score: {disabled: [{name: "*"}], enabled: [{name: Fragmentation}]}}}]
"""


def requests(running: Running) -> list[tuple[int, float]]:
    return [(dict(kind.requests)[RESOURCE], share) for kind, share in running.fast_path.cluster.target_workload.kinds]


async def test_what_comes_is_learnt_while_a_profile_asks_and_counted_once() -> None:
    learning, plain = (settings_from(text) for text in (LEARNING, ""))
    async with embedded_cluster() as cluster:
        await add_node(cluster, "n1", 4)
        for name, amount in (("a", 300), ("b", 1000)):
            await add_pod(cluster, name, amount, scheduler="another")
        async with scheduling(cluster.transport, plain) as running:
            await until(lambda: len(running.fast_path.cluster.pods) == 2)
            workload = running.fast_path.cluster.target_workload
            assert (workload.wanted, workload.kinds) == (False, ())
            for _ in range(2):
                running.fast_path.reconfigure(learning)
                assert workload.wanted
                assert (requests(running), workload._total) == ([(300, 0.5), (1000, 0.5)], 2)
                running.fast_path.reconfigure(plain)
                assert not workload.wanted
            running.fast_path.reconfigure(learning)
            for number in range(2):
                await placed_pod(cluster, f"c{number}", 300)
            assert requests(running) == [(300, 0.75), (1000, 0.25)]
            assert running.reports.failures == []


# ---- the self-check


async def test_the_self_check_finds_devices_that_are_counted_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SETTLES", 0.05)
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        fast_path = running.fast_path
        await add_node(cluster, "n1", 2)
        await placed_pod(cluster, "a", 600)
        await until(lambda: not fast_path.ledger.assumed)

        async def said() -> list[str]:
            report = await fast_path.selfcheck.run()
            return [f"{each.where}: {each.kind} {each.name}: {each.problem}" for each in report.differences]

        assert await said() == []
        (placement,) = fast_path.ledger.placements.values()
        pod = placement.pod
        fast_path.ledger._regive(placement, (1,))
        assert await said() == ["ledger: Pod default/a: counts it on the GPUs (1,), and it was given (0,)"]
        fast_path.ledger.set_pod(pod, "n1")
        assert await said() == []
        fast_path.snapshot.columns.set_gpus(0, (1000, 1000))
        assert await said() == ["snapshot:  : node n1: has other GPUs free than the ledger"]
        fast_path.ledger.touch(["n1"])
        fast_path.ledger.columns.set_gpus(0, (1000, 1000))
        assert "ledger:  : node n1: GPUs are out of step with its pods" in await said()
        fast_path.ledger.columns.recount_gpus(0, fast_path.ledger.pods_on("n1"))
        fast_path.ledger.touch(["n1"])
        assert await said() == []
