"""Faults between a session and its binds have no lasting effect, and gangs become complete."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent_scheduler.batch import scheduler, writing
from agent_scheduler.engine.session.session import Session
from kube_client.transport import Headers, Response
from tests.support.batched import add_group
from tests.support.embedded import until
from tests.support.installation import PREEMPTING, faulty
from tests.support.transports import Send, Way, lost, refused


@pytest.mark.parametrize("way", [refused(422, "Invalid"), refused(403, "Forbidden"), lost])
@pytest.mark.promise("L16")
async def test_a_member_whose_bind_goes_wrong_is_tried_again_and_the_others_stay(way: Way) -> None:
    async with faulty() as (world, transport):
        transport.ways["POST", "/pods/g-1/binding"] = [way]
        await world.add_node("a")
        await world.gang("g", 3)
        await until(lambda: world.has_placed("g", 3))
        binds = [each for each in transport.sent if each.endswith("/binding")]
        assert sum("g-0" in each for each in binds) == sum("g-2" in each for each in binds) == 1


async def test_a_status_that_came_too_late_is_decided_anew() -> None:
    async with faulty() as (world, transport):
        transport.ways["PATCH", "/podgroups/g"] = [refused(409, "Conflict")] * 2
        await world.add_node("a")
        await world.gang("g", 2)
        await until(lambda: world.has_placed("g", 2))
        await until(lambda: world.is_in_phase("g", "Running"))
        assert not transport.ways["PATCH", "/podgroups/g"]


@pytest.mark.parametrize("changed", [True, False], ids=["undone since", "there already"])
async def test_a_status_that_the_watch_does_not_show_is_not_waited_for_without_end(
    changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_SEEN_WITHIN", 0.1)
    monkeypatch.setattr(scheduler, "_FLUSH_SECONDS", 0.05)
    async with faulty() as (world, transport):

        async def said_to_be_written(_: Send) -> Response:
            group = await world.get("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/g")
            if changed:
                group["metadata"]["resourceVersion"] += "0"
            return Response(200, json.dumps(group).encode(), Headers([]))

        transport.ways["PATCH", "/podgroups/g"] = [said_to_be_written]
        batch = world.batch
        await world.gang("g", 2)
        await until(lambda: not transport.ways["PATCH", "/podgroups/g"])
        if changed:
            await until(lambda: world.is_in_phase("g", "Inqueue"))
        await until(lambda: not batch._messages.statuses._unseen)


async def test_a_fault_in_a_session_ends_neither_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    run, faults = Session.run, ["once", "twice"]

    def fail(self: Session) -> Any:
        yield from run(self)
        if faults and self.jobs:
            raise RuntimeError(faults.pop())

    async with faulty() as (world, _):
        monkeypatch.setattr(Session, "run", fail)
        await world.add_node("a", cpu="4")
        await world.gang("g", 2)
        await until(lambda: world.has_placed("g", 2))
        await world.gang("h", 1)
        await until(lambda: world.has_placed("h", 1))
        await world.add_pod("p")
        await until(lambda: world.has_placed("p", 1))
        assert not faults


async def test_a_member_that_is_deleted_while_a_session_goes_on_is_not_bound_and_neither_is_its_gang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, deleted = Session.run, asyncio.Event()

    async with faulty() as (world, transport):
        runtime = world.runtime
        assert runtime.fast_path is not None and runtime.batch is not None
        cluster, groups = runtime.fast_path.cluster, runtime.batch.waiting.groups

        def held(self: Session) -> Any:
            """Delete a member between two steps, when another has a node already, and let the watch deliver it."""
            for step in run(self):
                job = self.jobs.get("default/g")
                placed = [] if job is None else [task for task in job.tasks.values() if task.row >= 0]
                if len(placed) == 2 and not deleted.is_set():
                    deleted.set()
                    cluster.delete_pod(placed[0].uid)
                    groups.delete_pod(placed[0].uid)
                yield step

        monkeypatch.setattr(Session, "run", held)
        await world.add_node("a", cpu="4")
        await world.gang("g", 3)
        await until(deleted.is_set)
        await world.rest()
        assert not [each for each in transport.sent if each.endswith("/binding")]
        assert not runtime.fast_path.ledger.placements


@pytest.mark.promise("S30")
async def test_an_eviction_that_is_refused_is_asked_for_again_until_there_is_room() -> None:
    async with faulty(text=PREEMPTING, kubelets=True) as (world, transport):
        await world.add_priorities(low=1, high=100)
        await world.add_node("a", cpu="2")
        await add_group(world, "low", minMember=1, queue="q", priorityClassName="low")
        for number in range(2):
            await world.member(f"low-{number}", "low", priorityClassName="low")
        await until(lambda: world.has_placed("low", 2))
        ways = transport.ways["DELETE", "/pods/low-"] = [refused(403, "Forbidden")] * 3
        await add_group(world, "high", minMember=1, queue="q", priorityClassName="high")
        await world.member("high-0", "high", priorityClassName="high")
        await until(lambda: world.is_bound("high-0"))
        assert not ways
        assert await world.count_placed("low") == 1
