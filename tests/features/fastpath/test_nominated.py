"""The binder keeps the room of pods that are nominated after a decision was made."""

from __future__ import annotations

import pytest

from agent_scheduler.binding.result import ScheduleResult
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling


@pytest.mark.promise("S16")
async def test_a_node_is_passed_over_when_somebody_was_nominated_to_it_meanwhile() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, workers=1) as running:
        fast_path = running.fast_path
        for name in ("n1", "n2"):
            await cluster.add_node(name, cpu="2")
        await until(lambda: len(fast_path.ledger.rows) == 2)
        await cluster.add_pod("big", cpu="3", priorityClassName="system-cluster-critical")
        await until(lambda: running.reports.attempts["unschedulable"])
        (big,) = fast_path.cluster.pods.values()
        submit, nominated = fast_path.binder.submit, []

        def nominate_and_submit(result: ScheduleResult) -> None:
            """Between decision and bind."""
            if not nominated:
                nominated.append(result.placement.candidates[0].node_name)
                fast_path.queue.nominator.add(big, nominated[0])
            submit(result)

        fast_path.binder.submit = nominate_and_submit  # type: ignore[method-assign]
        await cluster.add_pod("a", cpu="1")
        placed = await until(cluster.placed)
        assert placed["a"] != nominated[0]


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_a_nominated_pod_goes_to_its_node_though_another_one_is_better(node: str) -> None:
    async with embedded_cluster() as cluster:
        for name, cpu in (("n1", "4"), ("n2", "64")):
            await cluster.add_node(name, cpu=cpu)
        await cluster.add_pod("a", cpu="3")
        nomination = {"status": {"nominatedNodeName": node}}
        await cluster.merge(f"{PODS}/a/status", nomination)
        async with scheduling(cluster.transport, workers=1):
            assert await until(cluster.placed) == {"a": node}
