"""How far a reader has to go who follows one plain pod, or one event: files entered, and changes from file to file.

Measured on Python 3.11, as calls, files and changes of file (wanted: 30 and 80; 18 and 45):

    date          a plain pod        a node event to a woken pod
    2026-11-22    315, 58, 195       187, 34, 100
    2026-11-23    147, 42, 101       121, 24, 57
    2026-11-24    140, 30, 77        103, 18, 40

A plain pod's are the decision (class, snapshot, ledger, kept answers, one plugin with its score), a request on its way
(bind, fence, HTTP, connections, what the answer means), the queue with its places and sub-queues, and reflector,
cluster, workers and binder. Half of a node event's are a node being read and taken into the ledger's columns.
"""

from __future__ import annotations

import asyncio

from agent_scheduler.binding.binder import Binder
from agent_scheduler.kube.reflector import Reflector
from agent_scheduler.kube.watch_events import View
from tests.support.virtual import virtual_time

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
    assert len(walk.files) <= 30
    assert walk.changes <= 77


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
            await asyncio.sleep(0.0015)
        after = queue.where("last")
    assert walk.is_over and (before, after) == ("unschedulable", "in_flight")
    print(walk.chain(), walk, sep="\n")
    assert len(walk.files) <= 18
    assert walk.changes <= 40
