"""Waiters until a view has all that is true now: by what the watch brings, and by a list where it brings nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from agent_scheduler.kube import reflector
from tests.support.scripted import Action, Request, Stream, running, status

from .test_reflector import SILENT, World, bookmark, event, listing, pod


@dataclass
class Asked(World):
    """One that can be told to catch up."""

    now: Action = field(default_factory=lambda: listing(20))

    async def catch_up(self, at_least: str = "") -> None:
        async with asyncio.timeout(5):
            await self.reflector.catch_up(at_least=at_least)


async def test_what_the_watch_has_told_of_already_costs_no_list() -> None:
    world = Asked([listing(30)], [SILENT])
    async with world.run():
        await world.watching(1)
        await world.catch_up()
        assert "list_renewed" not in world.counts


async def test_it_waits_for_an_event_or_a_bookmark_of_that_version() -> None:
    going = asyncio.Event()

    async def later() -> Stream:
        await going.wait()
        return Stream([event("ADDED", pod("a", 15)), bookmark(20)])

    class Later(Asked):
        def script(self, request: Request) -> Action:
            if "watch" in request.query and request.query["resourceVersion"] == "11":
                return later()  # type: ignore[return-value]
            return super().script(request)

    world = Later([listing(11)], [SILENT])
    async with world.run():
        await world.watching(1)
        async with running(world.catch_up()) as waiting:
            await asyncio.sleep(0.05)
            assert not waiting.done()
            going.set()
            await waiting
        assert world.names == {"a": "15"}
        assert "list_renewed" not in world.counts


async def test_where_the_watch_stays_silent_the_collection_is_listed(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(reflector, "_CATCH_UP", 0.01)
    world = Asked([listing(11), listing(20, pod("a", 20))], [SILENT])
    async with world.run():
        await world.watching(1)
        await world.catch_up()
        assert world.names == {"a": "20"} and world.counts["list_renewed"] == 1


async def test_a_version_of_another_kind_counts_if_it_is_newer(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """An answer to the question may be of a replica that lags; what was written before it is known."""
    monkeypatch.setattr(reflector, "_CATCH_UP", 0.01)
    world = Asked([listing(21), listing(25)], [SILENT])
    async with world.run():
        await world.watching(1)
        await world.catch_up(at_least="21")
        assert "list_renewed" not in world.counts
        await world.catch_up(at_least="25")
        assert world.counts["list_renewed"] == 1


async def test_versions_that_are_no_numbers_and_questions_that_fail_are_answered_by_a_list() -> None:
    world = Asked([listing(11), listing(12), listing(13)], [SILENT])
    async with world.run():
        await world.watching(1)
        for answer in (status(500), listing("opaque")):  # type: ignore[arg-type]
            world.now = answer
            await world.catch_up()
        assert world.counts["list_renewed"] == 2
