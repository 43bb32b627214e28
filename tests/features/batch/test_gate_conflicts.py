"""What comes between the decision to remove a gate and the bind of its pod: each outcome of the removal's request.

A pod is given to nobody who binds until the watch shows it without gates, so no bind has to remove one first.
"""

from __future__ import annotations

import asyncio

import pytest

from agent_scheduler.engine.quotas.book import Standing
from agent_scheduler.kube.transport import Response
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from tests.support.embedded import MERGE, PODS, until
from tests.support.installation import BOTH, OTHER, faulty
from tests.support.transports import Faulty, Send, lost, refused

STRATEGIC = "application/strategic-merge-patch+json"
TAKE_AWAY = {"spec": {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE, "$patch": "delete"}]}}


def removals(transport: Faulty) -> int:
    return sum(each.startswith("PATCH ") and each.endswith("/pods/p") for each in transport.sent)


def binds(transport: Faulty) -> int:
    return sum(each.endswith("/pods/p/binding") for each in transport.sent)


@BOTH
@pytest.mark.promise("GATE-16", "S3")
async def test_no_bind_is_sent_for_a_pod_whose_gate_is_still_there(scheduler: str) -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(send: Send) -> Response:
        asked.set()
        await goes_on.wait()
        answer: Response = await send()
        return answer

    async with faulty() as (world, transport):
        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [slow]
        await world.pod("p", scheduler=scheduler)
        await asked.wait()
        await world.stands("p", Standing.RESERVED)
        await world.rest()
        assert not binds(transport)
        goes_on.set()
        await until(lambda: world.is_bound("p"))
        assert binds(transport) == 1 and removals(transport) == 1


@pytest.mark.parametrize(("status", "reason"), [(409, "Conflict"), (422, "Invalid")])
async def test_a_removal_that_is_refused_for_a_conflict_is_sent_again_while_the_gate_is_there(
    status: int, reason: str
) -> None:
    async with faulty() as (world, transport):
        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [refused(status, reason)]
        await world.pod("p")
        await until(lambda: world.is_bound("p"))
        assert removals(transport) == 2 and binds(transport) == 1


@pytest.mark.parametrize(("status", "reason"), [(409, "Conflict"), (422, "Invalid")])
@pytest.mark.promise("GATE-16")
async def test_a_removal_that_is_refused_since_others_have_removed_the_gate_is_the_last(
    status: int, reason: str
) -> None:
    async with faulty() as (world, transport):

        async def others_were_faster(send: Send) -> Response:
            await world.patch(f"{PODS}/p", TAKE_AWAY, STRATEGIC)
            answer: Response = await refused(status, reason)(send)
            return answer

        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [others_were_faster]
        await world.pod("p")
        await until(lambda: world.is_bound("p"))
        assert removals(transport) == 1 and binds(transport) == 1


async def test_a_removal_of_which_the_answer_is_lost_is_not_sent_again_where_it_was_carried_out() -> None:
    async with faulty() as (world, transport):
        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [lost]
        await world.pod("p")
        await until(lambda: world.is_bound("p"))
        assert removals(transport) == 1 and binds(transport) == 1


async def test_a_removal_for_a_pod_that_is_gone_ends_and_its_room_is_the_next_ones() -> None:
    async with faulty() as (world, transport):

        async def gone(send: Send) -> Response:
            await world.end_pod("p")
            answer: Response = await send()
            assert answer.status == 404
            return answer

        await world.add_node("a")
        await world.queue("full", capability={"cpu": "1"})
        transport.ways["PATCH", "/pods/p"] = [gone]
        await world.pod("p", queue="full")
        await until(lambda: not transport.ways["PATCH", "/pods/p"])
        await world.pod("next", queue="full")
        await until(lambda: world.is_bound("next"))
        assert removals(transport) == 1 and not binds(transport)


async def test_no_gate_of_others_can_come_between_and_one_that_is_there_before_keeps_ours() -> None:
    """The API server lets gates be removed alone."""
    async with faulty() as (world, transport):

        async def add_another(send: Send) -> Response:
            both = {"spec": {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}, {"name": OTHER}]}}
            answer = await world.call("PATCH", f"{PODS}/p", both, content_type=MERGE)
            assert answer.status == 422
            sent: Response = await send()
            return sent

        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [add_another]
        await world.pod("p")
        await until(lambda: world.is_bound("p"))
        await world.pod("both", gates=(OTHER, QUEUE_ALLOCATION_GATE))
        await world.stays_held("both")
        assert await world.is_gated_by("both", OTHER, QUEUE_ALLOCATION_GATE)
