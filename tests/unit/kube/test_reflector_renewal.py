"""A view that is taken anew because somebody has to know that it is no older than now."""

from __future__ import annotations

import asyncio

from tests.support.scripted import Action, FakeTime, Request, eventually, running, status

from .test_reflector import SILENT, World, listing, pod


async def test_a_renewal_leaves_the_watch_and_lists_and_goes_on_watching_from_there() -> None:
    lists = [listing(11, pod("a", 10), pod("b", 11)), listing(30, pod("b", 25), pod("c", 30))]
    world = World([*lists], [SILENT])
    async with world.run():
        await world.watching(1)
        await asyncio.wait_for(world.reflector.relist(), 5)
        assert world.names == {"b": "25", "c": "30"}
        assert world.log[2:] == [("deleted", "a", "10"), ("modified", "b", "25"), ("added", "c", "30")]
        await world.watching(2)
        assert world.watched_from() == ["11", "30"]
        assert world.counts["list_renewed"] == 1
        assert world.time.slept == []


async def test_a_list_that_had_begun_before_is_not_enough() -> None:
    going = asyncio.Event()
    answers = [listing(11, pod("a", 10)), listing(12, pod("a", 12))]

    async def slow() -> Action:
        await going.wait()
        return answers.pop(0)

    class Slow(World):
        def script(self, request: Request) -> Action:
            return SILENT if "watch" in request.query else slow()  # type: ignore[return-value]

    world = Slow([], [])
    async with world.run():
        await eventually(lambda: len(world.server.requests) == 1)
        async with running(world.reflector.relist()) as renewing:
            await asyncio.sleep(0)
            going.set()
            await asyncio.wait_for(asyncio.shield(renewing), 5)
            assert world.names == {"a": "12"}
            assert answers == []


async def test_a_renewal_waits_until_the_server_can_be_listed() -> None:
    world = World([listing(11), status(503), status(500), listing(30, pod("a", 30))], [SILENT])
    async with world.run():
        await world.watching(1)
        await asyncio.wait_for(world.reflector.relist(), 5)
        assert world.names == {"a": "30"}
        assert world.time.slept == [1, 2]


async def test_several_renewals_share_a_list_and_one_that_was_given_up_harms_none() -> None:
    world = World([listing(11), listing(30)], [SILENT])
    async with world.run():
        await world.watching(1)
        given_up = asyncio.create_task(world.reflector.relist())
        others = [asyncio.create_task(world.reflector.relist()) for _ in range(2)]
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait_for(asyncio.gather(*others), 5)
        assert world.counts["list_renewed"] == 1
        assert given_up.cancelled()


async def test_a_renewal_ends_a_pause() -> None:
    pausing = asyncio.Event()

    class Standing(FakeTime):
        """Whoever sleeps sleeps for ever."""

        async def sleep(self, seconds: float) -> None:
            pausing.set()
            await asyncio.Event().wait()

    world = World([listing(11), listing(30, pod("a", 30))], [status(500), SILENT], time=Standing())
    async with world.run():
        await asyncio.wait_for(pausing.wait(), 5)
        await asyncio.wait_for(world.reflector.relist(), 5)
        assert world.names == {"a": "30"}


async def test_what_is_decoded_in_another_way_is_handed_over_again_changed_or_not() -> None:
    lists = [listing(11, pod("a", 10), pod("b", 11)), status(500), listing(30, pod("b", 11), pod("c", 30))]
    world = World([*lists, listing(31, pod("b", 11))], [SILENT])
    async with world.run():
        await world.watching(1)
        world.reflector.redeliver()
        await world.watching(2)
        assert world.log[2:] == [("deleted", "a", "10"), ("modified", "b", "11"), ("added", "c", "30")]
        # And once only.
        await asyncio.wait_for(world.reflector.relist(), 5)
        assert world.log[5:] == [("deleted", "c", "30")]
