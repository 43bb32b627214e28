"""A collection that a server may be without: taken for empty until it is there, and never taken for gone."""

from __future__ import annotations

import asyncio

from .scripted import eventually, status
from .test_reflector import SILENT, World, listing, pod


async def test_a_collection_that_the_server_does_not_have_is_empty_until_it_is_there() -> None:
    world = World([status(404), status(404), listing(11, pod("a", 10))], [SILENT])
    async with world.run(optional=True):
        await asyncio.wait_for(world.reflector.synced.wait(), 5)
        await world.after(("added", "a", "10"))
        await world.watching(1)
    assert world.counts["absent"] == 2
    assert "failure" not in world.counts
    assert world.time.slept == [1, 2]


async def test_whoever_wants_the_view_anew_does_not_wait_for_what_is_not_there() -> None:
    world = World([status(404)], [SILENT])
    async with world.run(optional=True):
        await eventually(lambda: world.counts.get("absent", 0) >= 1)
        await asyncio.wait_for(world.reflector.renew(), 5)
        assert world.names == {}


async def test_a_collection_that_was_there_is_not_forgotten_for_a_404() -> None:
    lists = [listing(11, pod("a", 10)), status(404), status(404), listing(30, pod("a", 25))]
    world = World(lists, [status(410), SILENT])
    async with world.run(optional=True):
        await world.after(("added", "a", "10"), ("modified", "a", "25"))
    assert "absent" not in world.counts


async def test_nor_is_one_that_was_there_and_empty() -> None:
    """What has been made in it meanwhile is not known: who wants the view anew has to wait."""
    world = World([listing(11), status(404), listing(30, pod("a", 25))], [status(410), SILENT])
    async with world.run(optional=True):
        await world.after(("added", "a", "25"))
    assert "absent" not in world.counts


async def test_a_collection_that_has_to_be_there_is_waited_for() -> None:
    world = World([status(404), listing(11, pod("a", 10))], [SILENT])
    async with world.run():
        await world.after(("added", "a", "10"))
    assert world.counts["failure"] == 1
    assert "absent" not in world.counts
