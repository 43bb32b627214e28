"""Callers that wait for a list, or for a version of the collection: by when they have it, and what they get else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube_client.reflector import _CATCH_UP
from kube_client.testing.scripted import Action, Answer, Stream, eventually, running, status
from kube_client.waiting import NotListed

from .test_reflector import SILENT, World, bookmark, event, listing, pod


async def test_a_renewal_leaves_the_watch_and_lists_and_goes_on_watching_from_there() -> None:
    lists = [listing(11, pod("a", 10), pod("b", 11)), listing(30, pod("b", 25), pod("c", 30))]
    world = World([*lists], [SILENT])
    async with world.run():
        await world.watching(1)
        await world.renewed()
        assert world.names == {"b": "25", "c": "30"}
        assert world.log[2:] == [("deleted", "a", "10"), ("modified", "b", "25"), ("added", "c", "30")]
        await world.watching(2)
        assert world.watched_from() == ["11", "30"]
        assert world.counts["list_renewed"] == 1
        assert world.time.slept == []


async def test_a_list_that_had_begun_before_is_not_enough() -> None:
    going = asyncio.Event()

    async def slow(version: int) -> Action:
        await going.wait()
        return listing(version, pod("a", version))

    lists: list[Any] = [slow(11), slow(12)]
    world = World(lists, [SILENT])
    async with world.run():
        await eventually(lambda: len(world.server.requests) == 1)
        async with running(world.reflector.relist()) as renewing:
            await asyncio.sleep(0)
            going.set()
            await asyncio.shield(renewing)
            assert world.names == {"a": "12"}


async def test_a_renewal_waits_until_the_server_can_be_listed() -> None:
    world = World([listing(11), status(503), status(500), listing(30, pod("a", 30))], [SILENT])
    async with world.run():
        await world.watching(1)
        await world.renewed()
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
        await asyncio.gather(*others)
        assert world.counts["list_renewed"] == 1
        assert given_up.cancelled()


async def test_a_renewal_ends_a_pause() -> None:
    world = World([listing(11), listing(30, pod("a", 30))], [status(500), SILENT])
    async with world.run():
        await eventually(lambda: bool(world.time.slept))
        await world.renewed()
        assert world.names == {"a": "30"}
        assert world.time.now == 1000


async def test_what_is_decoded_in_another_way_is_handed_over_again_changed_or_not() -> None:
    lists = [listing(11, pod("a", 10), pod("b", 11)), status(500), listing(30, pod("b", 11), pod("c", 30))]
    world = World([*lists, listing(31, pod("b", 11))], [SILENT])
    async with world.run():
        await world.watching(1)
        world.reflector.redeliver()
        await world.watching(2)
        assert world.log[2:] == [("deleted", "a", "10"), ("modified", "b", "11"), ("added", "c", "30")]
        # And once only.
        await world.renewed()
        assert world.log[5:] == [("deleted", "c", "30")]


# ---- how long somebody waits for a list that does not come, and what the view is worth afterwards


@pytest.mark.promise("L14")
async def test_who_has_waited_long_enough_is_told_why_and_not_a_whole_pause_later() -> None:
    world = World([listing(11), status(403, "Forbidden")], [SILENT])
    async with world.run():
        await world.watching(1)
        with pytest.raises(NotListed, match="403 Forbidden"):
            await world.renewed(patience=5)
        # The third pause would be of 4 seconds, and ends with the patience of 5.
        assert world.time.slept[:3] == [1, 2, 2]
        assert world.time.now == 1005
        assert world.counts["list_renewed"] == 4


async def test_the_watch_goes_on_from_where_it_was_when_nobody_waits_for_the_list() -> None:
    world = World(
        [listing(11, pod("a", 10)), status(403, "Forbidden")],
        [SILENT, Stream([event("ADDED", pod("b", 12))], end="hang")],
    )
    async with world.run():
        await world.watching(1)
        with pytest.raises(NotListed):
            await world.renewed(patience=0)
        await eventually(lambda: world.names == {"a": "10", "b": "12"})
        assert world.watched_from() == ["11", "11"]


async def test_one_without_patience_goes_on_waiting_beside_one_that_gives_up() -> None:
    world = World([listing(11), status(503), status(503), listing(30, pod("a", 30))], [SILENT])
    async with world.run():
        await world.watching(1)
        waiting = asyncio.ensure_future(world.reflector.relist())
        with pytest.raises(NotListed, match="503"):
            await world.renewed(patience=0)
        await waiting
        assert world.names == {"a": "30"}


async def test_lists_watches_and_bookmarks_are_signs_of_life_and_refusals_are_none() -> None:
    world = World([listing(11), status(500)], [Stream([100.0, bookmark(12)]), status(500)])
    async with world.run():
        await world.watching(4)
        assert world.reflector.last_contact == 1100 < world.time.now


@pytest.mark.promise("L4")
async def test_a_refusal_lasts_from_one_request_to_the_next_however_late_the_answer_is() -> None:
    """The API server responds late, or the process was stopped meanwhile."""

    async def late() -> Answer:
        await asyncio.sleep(20)
        return status(403, "Forbidden")

    world = World([status(403, "Forbidden"), late(), SILENT], [SILENT])  # type: ignore[list-item]
    async with world.run():
        await eventually(lambda: world.counts["failure"] == 2)
        refused = world.reflector.refused
        assert refused is not None and refused.last - refused.since == 1


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


# ---- waiters until a view has all that is true now


async def catch_up(world: World, at_least: str = "") -> float:
    """The seconds that it took."""
    began = world.time.now
    await asyncio.wait_for(world.reflector.catch_up(at_least=at_least), 600)
    return world.time.now - began


async def test_what_the_watch_has_told_of_already_costs_no_list() -> None:
    world = World([listing(30)], [SILENT], now=listing(20))
    async with world.run():
        await world.watching(1)
        await catch_up(world)
        assert "list_renewed" not in world.counts


async def test_it_waits_for_an_event_or_a_bookmark_of_that_version() -> None:
    watch = Stream([0.25, event("ADDED", pod("a", 15)), 0.25, bookmark(20)], end="hang")
    world = World([listing(11)], [watch], now=listing(20))
    async with world.run():
        await world.watching(1)
        assert await catch_up(world) == 0.5
        assert world.names == {"a": "15"}
        assert "list_renewed" not in world.counts


async def test_where_the_watch_stays_silent_the_collection_is_listed() -> None:
    world = World([listing(11), listing(20, pod("a", 20))], [SILENT], now=listing(20))
    async with world.run():
        await world.watching(1)
        assert await catch_up(world) == _CATCH_UP
        assert world.names == {"a": "20"} and world.counts["list_renewed"] == 1


async def test_a_version_of_another_kind_counts_if_it_is_newer() -> None:
    """An answer to the question may be of a replica that lags; what was written before it is known."""
    world = World([listing(21), listing(25)], [SILENT], now=listing(20))
    async with world.run():
        await world.watching(1)
        await catch_up(world, "21")
        assert "list_renewed" not in world.counts
        await catch_up(world, "25")
        assert world.counts["list_renewed"] == 1


async def test_versions_that_are_no_numbers_and_questions_that_fail_are_answered_by_a_list() -> None:
    world = World([listing(11), listing(12), listing(13)], [SILENT], now=listing(20))
    async with world.run():
        await world.watching(1)
        for answer in (status(500), listing("opaque")):  # type: ignore[arg-type]
            world.now = answer
            await catch_up(world)
        assert world.counts["list_renewed"] == 2
