"""How far a reader has to go who follows one plain pod, or one event: files entered, and changes from file to file."""

from __future__ import annotations

import asyncio

from agent_scheduler.binding.binder import Binder
from agent_scheduler.kube.reflector import Reflector
from agent_scheduler.kube.view import View
from tests.virtual import virtual_time

from .walk import Running, Walk, node, pod

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


@virtual_time
async def test_a_plain_pod_of_a_known_class_from_its_watch_event_to_the_answer_to_its_bind() -> None:
    async with Running() as running:
        for name in ("first", "second", "third"):
            await running.apply(PODS, pod(name))
        with Walk(View.receive, Binder._finish_answered) as walk:
            await running.apply(PODS, pod("last"))
        placement = running.fast_path.ledger.placements["last"]
    print(walk.chain(), walk, sep="\n")
    assert walk.is_over and not placement.assumed
    assert len(walk.files) <= 42
    assert walk.changes <= 101


@virtual_time
async def test_a_node_event_to_a_pod_that_it_wakes() -> None:
    async with Running() as running:
        await running.apply(PODS, pod("first", cpu="20"))
        await running.apply(NODES, node("node-2", cpu="10"))
        await running.apply(NODES, node("node-2", cpu="20"))
        await running.apply(PODS, pod("last", cpu="20"))
        await asyncio.sleep(60)
        queue = running.fast_path.queue
        before = queue.where("last")
        with Walk(View.receive, Reflector._receive) as walk:
            running.server.tell(NODES, node("node-2", cpu="40"))
            for _ in range(3):
                await asyncio.sleep(0)
        after = queue.where("last")
    assert walk.is_over and (before, after) == ("unschedulable", "in_flight")
    print(walk.chain(), walk, sep="\n")
    assert len(walk.files) <= 24
    assert walk.changes <= 57
