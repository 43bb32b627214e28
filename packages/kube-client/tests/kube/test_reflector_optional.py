"""A collection that a server may not serve: taken for empty until it is there, and never taken for gone."""

from __future__ import annotations

import asyncio

import pytest

from kube_client.testing.scripted import LOGIN_PAGE, Action, Answer, eventually, status

from .test_reflector import SILENT, World, listing, pod, serving

#: What kube-apiserver says where a path leads nowhere, and what a load balancer says that has lost its backend.
NOWHERE = [status(404, "", "the server could not find the requested resource"), Answer(404, b"default backend")]


A = pod("a", 10)
LISTED, LATER = listing(11, A), listing(30, pod("a", 25))
ADDED, CHANGED = ("added", "a", "10"), ("modified", "a", "25")
#: What does not say that the collection is not served.
UNSURE: list[Action] = [
    serving("nodes", "pods"),
    Answer(404, b"default backend"),
    LOGIN_PAGE,
    Answer(body={"kind": "APIResourceList", "groupVersion": "v1"}),
    Answer(body={"kind": "APIResourceList", "groupVersion": "v2", "resources": []}),
    status(503, "ServiceUnavailable"),
    status(403, "Forbidden"),
]
NO_LISTS = [LOGIN_PAGE, Answer(302, b"<html>Found</html>", {"Location": "http://login/"})]


@pytest.mark.parametrize(
    ("lists", "served", "optional", "log", "counts"),
    [
        # A collection that the server does not have is empty until it is there.
        *(([each, each, LISTED], None, True, [ADDED], {"absent": 2}) for each in NOWHERE),
        *(([NOWHERE[1]] * 2 + [LISTED], said, True, [ADDED], {"failure": 2}) for said in UNSURE),
        # One that was there is not forgotten, nor one that was there and empty: what has been made is not known.
        *(([LISTED, each, each, LATER], None, True, [ADDED, CHANGED], {"failure": 3}) for each in NOWHERE),
        ([listing(11), NOWHERE[0], LATER], None, True, [("added", "a", "25")], {"failure": 2}),
        ([NOWHERE[0], LISTED], None, False, [ADDED], {"failure": 1}),
        *(([LISTED, each, LATER], None, False, [ADDED, CHANGED], {"failure": 2}) for each in NO_LISTS),
    ],
)
async def test_what_is_no_list_means_absence_only_where_discovery_says_so(
    lists: list[Action], served: Action | None, optional: bool, log: list[tuple[str, str, str]], counts: dict[str, int]
) -> None:
    # What was listed first has to be listed again.
    watches = [status(410), SILENT] if isinstance(lists[0], Answer) and lists[0].status == 200 else [SILENT]
    world = World([*lists], watches, **({} if served is None else {"served": served}))
    async with world.run(optional=optional):
        await world.reflector.synced.wait()
        await world.after(*log)
        await world.watching(1)
    assert {each: world.counts[each] for each in ("absent", "failure") if each in world.counts} == counts
    if "absent" in counts:
        assert world.time.slept == [1, 2]


async def test_whoever_wants_the_view_anew_does_not_wait_for_what_is_not_there() -> None:
    world = World([NOWHERE[0]], [SILENT])
    async with world.run(optional=True):
        await eventually(lambda: world.counts.get("absent", 0) >= 1)
        await world.renewed()
        assert world.names == {}


async def test_whoever_wants_a_known_collection_anew_is_not_told_before_it_was_listed() -> None:
    world = World([LISTED, NOWHERE[0]], [SILENT])
    async with world.run(optional=True):
        await world.after(("added", "a", "10"))
        renewed = asyncio.create_task(world.reflector.relist())
        await eventually(lambda: world.counts.get("failure", 0) >= 2)
        assert not renewed.done()
        world.lists[:] = [LATER]
        await renewed
        assert world.names == {"a": "25"}
