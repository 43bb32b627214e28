"""Gates of queues' capacity with several schedulers that share nodes and queues, each in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.process.scheduler import SchedulerProcess
from tests.support.embedded import until
from tests.support.installation import NOWHERE, Installation
from tests.support.shared import SharedCluster, batch, batch_cluster, scheduler


def admits(runtime: SchedulerProcess) -> bool:
    """Return whether the process removes gates now."""
    return runtime.fast_path is not None and runtime.fast_path.ledger.usage.gated.admits


@asynccontextmanager
async def two(shared: SharedCluster) -> AsyncIterator[tuple[Installation, Installation]]:
    """Yield a process of the fast path alone, `a`, and one with a batch scheduler, `b`.

    Each has a node of 4 CPUs, and the queue `full` has one.
    """
    async with scheduler(shared, "a", nodes="n0") as a, batch(shared, "b", nodes="n1") as b:
        await b.queue("full", capability={"cpu": "1"})
        await until(lambda: admits(b.runtime))
        yield Installation(shared, a), b


async def test_the_process_with_the_batch_scheduler_alone_removes_gates_whoever_schedules_the_pods() -> None:
    async with batch_cluster(2) as shared, two(shared) as (a, b):
        assert not admits(a.runtime)
        await b.pod("of-a", scheduler="a", queue="full", **NOWHERE)
        await until(lambda: b.says("of-a", "Unschedulable"))
        await a.stands("of-a", Standing.RESERVED)
        await b.stands("of-a", Standing.RESERVED)
        for name in ("a", "b", "batch-b"):
            await b.pod(f"late-{name}", scheduler=name, queue="full")
        await b.stays_held("late-a", "late-b", "late-batch-b")
        await b.end_pod("of-a")
        await until(lambda: b.all_let_past("late-a", 1))
        await until(lambda: b.is_bound("late-a"))
        await a.stands("late-a", Standing.BOUND)
        await b.stands("late-a", Standing.BOUND)
        await b.stays_held("late-b", "late-batch-b")
        await b.end_pod("late-a")
        await until(lambda: b.is_bound("late-b"))


@pytest.mark.parametrize("leaves", ["its annotation", "for good"])
async def test_a_pod_of_another_scheduler_that_no_longer_waits_keeps_no_room(leaves: str) -> None:
    async with batch_cluster(2) as shared, two(shared) as (a, b):
        await b.pod("p", scheduler="batch-b", queue="full", **NOWHERE)
        await a.stands("p", Standing.RESERVED)
        if leaves == "for good":
            await b.end_pod("p")
        else:
            body = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-allocation-gate": None}}}
            await shared.patch("/api/v1/namespaces/default/pods/p", body)
            await a.stands("p", None)
        await b.pod("next", scheduler="a", queue="full")
        await until(lambda: b.is_bound("next"))


async def test_of_two_processes_with_a_batch_scheduler_one_removes_gates_and_then_the_other() -> None:
    async with batch_cluster(2) as shared, batch(shared, "b") as stays:
        world = stays
        await stays.queue("full", capability={"cpu": "2"})
        await until(lambda: admits(stays.runtime))
        async with batch(shared, "c") as other:
            await world.pod("first", scheduler="batch-c", queue="full", **NOWHERE)
            await until(lambda: world.is_let_past("first"))
            assert not admits(other.runtime)
            stays.runtime.stop()
            await until(lambda: admits(other.runtime))
            assert not admits(stays.runtime)
            await world.pod("second", scheduler="batch-b", queue="full")
            await until(lambda: world.is_let_past("second"))


async def test_without_a_batch_scheduler_the_one_that_is_told_to_removes_gates() -> None:
    async with (
        batch_cluster(2) as shared,
        scheduler(shared, "a", more="gateRemoval: always") as a,
        scheduler(shared, "b") as b,
    ):
        world = Installation(shared, a)
        await world.queue("full", capability={"cpu": "1"})
        await until(lambda: admits(a))
        await world.pod("p", scheduler="b", queue="full")
        await until(lambda: world.is_let_past("p"))
        assert not admits(b)
