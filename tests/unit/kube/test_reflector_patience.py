"""How long somebody waits for a list that does not come, and what the view is worth afterwards."""

from __future__ import annotations

import asyncio

import pytest

from agent_scheduler.kube.waiting import NotListed
from tests.support.scripted import Stream, eventually, status

from .test_reflector import SILENT, World, bookmark, event, listing, pod


async def test_who_has_waited_long_enough_is_told_why_and_not_a_whole_pause_later() -> None:
    world = World([listing(11), status(403, "Forbidden")], [SILENT])
    async with world.run():
        await world.watching(1)
        with pytest.raises(NotListed, match="403 Forbidden"):
            await asyncio.wait_for(world.reflector.relist(patience=5), 5)
        # The third pause would be of 4 seconds, and ends with the patience of 5.
        assert world.time.slept[:3] == [1, 2, 2]
        assert world.counts["list_renewed"] == 4


async def test_the_watch_goes_on_from_where_it_was_when_nobody_waits_for_the_list() -> None:
    world = World(
        [listing(11, pod("a", 10)), status(403, "Forbidden")],
        [SILENT, Stream([event("ADDED", pod("b", 12))], end="hang")],
    )
    async with world.run():
        await world.watching(1)
        with pytest.raises(NotListed):
            await asyncio.wait_for(world.reflector.relist(patience=0), 5)
        await eventually(lambda: world.names == {"a": "10", "b": "12"})
        assert world.watched_from() == ["11", "11"]


async def test_one_without_patience_goes_on_waiting_beside_one_that_gives_up() -> None:
    world = World([listing(11), status(503), status(503), listing(30, pod("a", 30))], [SILENT])
    async with world.run():
        await world.watching(1)
        waiting = asyncio.ensure_future(world.reflector.relist())
        with pytest.raises(NotListed, match="503"):
            await asyncio.wait_for(world.reflector.relist(patience=0), 5)
        await asyncio.wait_for(waiting, 5)
        assert world.names == {"a": "30"}


async def test_lists_watches_and_bookmarks_are_signs_of_life_and_refusals_are_none() -> None:
    told = asyncio.Event()
    world = World([listing(11), status(500)], [Stream([told, bookmark(12)]), status(500)])
    began = world.time.now
    async with world.run():
        await world.watching(1)
        world.time.now += 100
        told.set()
        await eventually(lambda: world.reflector.last_contact == began + 100)
        await world.watching(4)
        assert world.reflector.last_contact == began + 100 < world.time.now


@pytest.mark.parametrize(("marks", "fresh", "stale"), [(True, 179, 181), (False, 689, 691)])
async def test_a_view_is_stale_after_a_silence_that_a_watch_which_is_well_does_not_have(
    marks: bool, fresh: int, stale: int
) -> None:
    """Bookmarks come every minute; without them a watch of ten minutes may bring nothing."""
    lines = [bookmark(12)] if marks else [event("ADDED", pod("a", 12))]
    world = World([listing(11)], [Stream([*lines], end="hang")])
    async with world.run():
        await eventually(lambda: world.reflector.view.version == "12")
        world.time.now = world.reflector.last_contact + fresh
        assert not world.reflector.is_stale
        world.time.now = world.reflector.last_contact + stale
        assert world.reflector.is_stale
