"""Volcano #5174 (of the agent scheduler: #5167, #5819): scheduling began before everything listed had been taken in.

What happened: a start waited until the informers had their lists, not until the handlers had put them into
the scheduler's own cache. The first decisions after a restart saw some of the pods and nodes, and
overcommitted nodes whose pods had not been taken in yet, or met half-made entries and panicked.

Conditions: a restart on a cluster with pods, and a list that takes more than a moment to be taken in.

Ours: nothing is decided before the last object of the first lists of nodes and of pods is in the ledger or
the queue.
"""

from __future__ import annotations

import pytest

from embedded_kubernetes.requests import Disturbance, Request
from tests.features.fastpath.test_runtime import running as process
from tests.support.embedded import embedded_cluster, until

from .links import Tap, is_watch
from .stages import refusal


async def test_nothing_is_decided_on_a_part_of_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    # Objects are taken in one by one, and others get their turn in between.
    monkeypatch.setattr("agent_scheduler.kube.reflector.SLICE", 1)
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="1")
        # Lists are in the order of names.
        await cluster.add_pod("a", cpu="1")
        for number in range(20):
            await cluster.add_pod(f"m{number}", scheduler="another")
        await cluster.add_pod("z", cpu="1", scheduler="another")
        await cluster.bind("z", "n1")
        async with process(cluster):
            assert await refusal(cluster, "a") == "0/1 nodes are available: 1 Insufficient cpu."
            assert await cluster.placed() == {"z": "n1"}


async def test_nobody_is_refused_before_the_nodes_are_known() -> None:
    tap = Tap()

    def late(request: Request) -> Disturbance | None:
        nodes = request.path == "/api/v1/nodes" and not is_watch(request)
        return Disturbance(delay=0.3) if nodes else None

    async with embedded_cluster(disturb=tap) as cluster:
        await cluster.add_node("n1")
        await cluster.add_pod("a")
        tap.harm = late
        async with process(cluster) as scheduler:
            await until(cluster.placed)
            refused = 'scheduler_schedule_attempts_total{result="unschedulable",profile="agent-scheduler"}'
            assert scheduler.metrics()[refused] == 0
