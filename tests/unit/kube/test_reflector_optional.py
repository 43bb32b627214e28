"""A collection that a server may not serve: taken for empty until it is there, and never taken for gone."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scripted import Action, Answer, eventually, status

from .test_reflector import SILENT, World, listing, pod, serving

#: What kube-apiserver says where a path leads nowhere, and what a load balancer says that has lost its backend.
NOWHERE = [
    status(404, "", "the server could not find the requested resource"),
    Answer(404, b"default backend"),
]


@pytest.mark.parametrize("nowhere", NOWHERE)
async def test_a_collection_that_the_server_does_not_have_is_empty_until_it_is_there(nowhere: Answer) -> None:
    world = World([nowhere, nowhere, listing(11, pod("a", 10))], [SILENT])
    async with world.run(optional=True):
        await world.reflector.synced.wait()
        await world.after(("added", "a", "10"))
        await world.watching(1)
    assert world.counts["absent"] == 2
    assert "failure" not in world.counts
    assert world.time.slept == [1, 2]


async def test_whoever_wants_the_view_anew_does_not_wait_for_what_is_not_there() -> None:
    world = World([NOWHERE[0]], [SILENT])
    async with world.run(optional=True):
        await eventually(lambda: world.counts.get("absent", 0) >= 1)
        await world.renewed()
        assert world.names == {}


@pytest.mark.parametrize(
    "served",
    [
        serving("nodes", "pods"),
        Answer(404, b"default backend"),
        Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"}),
        Answer(body={"kind": "APIResourceList", "groupVersion": "v1"}),
        Answer(body={"kind": "APIResourceList", "groupVersion": "v2", "resources": []}),
        status(503, "ServiceUnavailable"),
        status(403, "Forbidden"),
    ],
)
async def test_a_404_does_not_mean_absence_unless_discovery_says_so(served: Action) -> None:
    world = World([NOWHERE[1], NOWHERE[1], listing(11, pod("a", 10))], [SILENT], served=served)
    async with world.run(optional=True):
        await world.after(("added", "a", "10"))
    assert "absent" not in world.counts
    assert world.counts["failure"] == 2


@pytest.mark.parametrize("nowhere", NOWHERE)
async def test_a_collection_that_was_there_is_not_forgotten_for_a_404(nowhere: Answer) -> None:
    lists = [listing(11, pod("a", 10)), nowhere, nowhere, listing(30, pod("a", 25))]
    world = World(lists, [status(410), SILENT])
    async with world.run(optional=True):
        await world.after(("added", "a", "10"), ("modified", "a", "25"))
    assert "absent" not in world.counts


async def test_nor_is_one_that_was_there_and_empty() -> None:
    """What has been made in it meanwhile is not known: who wants the view anew has to wait."""
    world = World([listing(11), NOWHERE[0], listing(30, pod("a", 25))], [status(410), SILENT])
    async with world.run(optional=True):
        await world.after(("added", "a", "25"))
    assert "absent" not in world.counts


async def test_whoever_wants_a_known_collection_anew_is_not_told_before_it_was_listed() -> None:
    listed = asyncio.Event()

    class Late(World):
        def script(self, request):  # type: ignore[no-untyped-def]
            if "watch" in request.query or request.path == "/api/v1" or not self.held or listed.is_set():
                return super().script(request)
            return NOWHERE[0]

    world = Late([listing(11, pod("a", 10)), listing(30, pod("a", 25))], [SILENT])
    async with world.run(optional=True):
        await world.after(("added", "a", "10"))
        renewed = asyncio.create_task(world.reflector.relist())
        await eventually(lambda: world.counts.get("failure", 0) >= 2)
        assert not renewed.done()
        listed.set()
        await renewed
        assert world.names == {"a": "25"}


async def test_a_collection_that_has_to_be_there_is_waited_for() -> None:
    world = World([NOWHERE[0], listing(11, pod("a", 10))], [SILENT])
    async with world.run():
        await world.after(("added", "a", "10"))
    assert world.counts["failure"] == 1
    assert "absent" not in world.counts


@pytest.mark.parametrize(
    "page",
    [
        Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"}),
        Answer(200, b""),
        Answer(200, b"{}"),
        Answer(200, b'{"metadata":{"resourceVersion":"99"},"items":[]}'),
        Answer(200, b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"99"},"items":['),
        Answer(200, b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}'),
        Answer(200, b'{"kind":"Status","apiVersion":"v1","metadata":{"resourceVersion":"99"}}'),
        Answer(403, b"<html>Forbidden</html>", {"Content-Type": "text/html"}),
        Answer(302, b"<html>Found</html>", {"Location": "http://login/"}),
    ],
)
async def test_what_is_no_list_of_the_api_server_is_no_empty_collection(page: Answer) -> None:
    world = World([listing(11, pod("a", 10)), page, listing(30, pod("a", 25))], [status(410), SILENT])
    async with world.run():
        await world.after(("added", "a", "10"), ("modified", "a", "25"))
    assert world.counts["failure"] == 2
