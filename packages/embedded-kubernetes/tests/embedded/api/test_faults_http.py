"""Injected faults as a client sees them: over real sockets, byte by byte, and without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import uvloop

from embedded_kubernetes.inproc import Door, Lost

from ..in_go import ACCEPT, PROTOBUF
from ..sockets import Client, Served, faulty, injector
from ..support import PODS, World, pod, until

WATCH = f"{PODS}?watch=1&resourceVersion="
HOUR = 3600.0


@asynccontextmanager
async def deleting(fault: Any) -> AsyncIterator[tuple[Served, Client]]:
    """Yield a client that requests to delete the pod `a`, and gets this fault."""
    async with faulty({"match": {"verbs": ["delete"]}, "fault": fault}) as served:
        served.world.pod("a")
        client = await served.client()
        client.delete(f"{PODS}/a")
        yield served, client


async def carried_out(served: Served, commits: bool) -> None:
    """Return once the server has handled the delete: the pod is gone, or a timer waits before it would go."""
    await until(lambda: served.world.names(PODS) == [] if commits else served.timers.waiting)


@pytest.mark.parametrize("after", [{}, {"after": "1h"}])
@pytest.mark.parametrize(("kind", "committed"), [("drop", False), ("lose", True)])
async def test_a_reset_comes_before_or_after_the_commit(kind: str, after: Any, committed: bool) -> None:
    async with deleting({kind: after}) as (served, client):
        if after:
            await carried_out(served, committed)
            assert await client.silent()
            served.timers.advance(HOUR)
        assert await client.rest() == (b"", "reset")
        assert served.world.names(PODS) == ([] if committed else ["a"])


@pytest.mark.parametrize("commit", [False, True])
async def test_a_request_that_hangs_is_not_answered_until_its_connection_is_reset(commit: bool) -> None:
    for lasts in ({}, {"lasts": "1h"}):
        async with deleting({"hang": {"commit": commit, **lasts}}) as (served, client):
            await carried_out(served, commit)
            assert await client.silent()
            assert served.world.names(PODS) == ([] if commit else ["a"])
            served.timers.advance(HOUR)
            assert await (client.silent() if not lasts else client.ended())


async def test_a_refusal_has_its_status_its_reason_and_its_retry_after() -> None:
    faults: list[dict[str, Any]] = [
        {"error": {"status": 429, "retryAfter": 3}},
        {"error": {"status": 503}},
        {"error": {"status": 422, "reason": "Invalid", "message": "said so"}},
        {"conflict": {"of": "uid"}},
        {"error": {"status": 500, "commit": True}},
    ]
    async with faulty(*({"count": 1, "fault": fault} for fault in faults)) as served:
        served.world.pod("a")
        client = await served.client()
        client.delete(f"{PODS}/a")
        status, headers = await client.head()
        body = orjson.loads(await client.reader.readexactly(int(headers["content-length"])))
        assert (status, headers["retry-after"], body["reason"]) == (429, "3", "TooManyRequests")
        assert body["details"]["retryAfterSeconds"] == 3
        for code, reason, message in (
            (503, "ServiceUnavailable", "injected"),
            (422, "Invalid", "said so"),
            (409, "Conflict", "Precondition failed: UID"),
        ):
            client.delete(f"{PODS}/a")
            status, answer = await client.answer()
            body = orjson.loads(answer)
            assert (status, body["code"], body["reason"]) == (code, code, reason)
            assert message in body["message"]
        assert served.world.names(PODS) == ["a"]
        client.delete(f"{PODS}/a")
        assert await client.statuses() == [500]
        assert served.world.names(PODS) == []


MIDDLEBOX = {
    "badGateway": 502,
    "empty": 200,
    "emptyObject": 200,
    "forbidden": 403,
    "gatewayTimeout": 504,
    "loginPage": 200,
    "notFound": 404,
    "redirect": 302,
    "serviceUnavailable": 503,
    "tooManyRequests": 429,
    "unauthorized": 401,
}


@pytest.mark.parametrize("says", MIDDLEBOX)
async def test_a_middlebox_answers_with_no_object_of_the_api(says: str) -> None:
    for commit in (False, True):
        async with deleting({"middlebox": {"says": says, "commit": commit}}) as (served, client):
            status, body = await client.answer()
            assert (status, b"apiVersion" in body) == (MIDDLEBOX[says], False)
            assert served.world.names(PODS) == ([] if commit else ["a"])
            assert await client.is_alive()


@pytest.mark.parametrize("size", [None, 0, 7])
async def test_a_body_is_cut_and_framed_as_if_it_were_whole(size: int | None) -> None:
    cut_body = {"cutBody": {} if size is None else {"bytes": size}}
    async with faulty({"first": 1, "match": {"verbs": ["get"]}, "fault": cut_body}) as served:
        served.world.pod("a")
        client = await served.client()
        for _ in range(2):
            client.get(f"{PODS}/a")
        (_, cut), (_, whole) = await client.answer(), await client.answer()
        assert cut == whole[: len(whole) // 2 if size is None else size]


async def test_a_slow_request_is_carried_out_though_its_client_has_gone() -> None:
    async with deleting({"delay": {"before": "1h"}}) as (served, client):
        await carried_out(served, False)
        assert served.server._shared is not None
        client.writer.transport.abort()
        await until(lambda: not served.server._shared.connections)  # type: ignore[union-attr]
        assert served.world.names(PODS) == ["a"]
        served.timers.advance(HOUR)
        assert served.world.names(PODS) == []


@pytest.mark.parametrize("fault", [{"delay": {"after": "1h"}}, {"delay": {"before": "1h"}}, {"lose": {"after": "1h"}}])
async def test_a_watch_that_nobody_waits_for_any_more_is_forgotten(fault: Any) -> None:
    async with faulty({"match": {"verbs": ["watch"]}, "fault": fault}) as served:
        client = await served.client()
        client.get(f"{WATCH}{served.world.store.rv}")
        await until(lambda: served.timers.waiting)
        client.writer.transport.abort()
        await until(lambda: not served.server._shared.connections)  # type: ignore[union-attr]
        served.timers.advance(HOUR)
        assert len(served.hub) == 0


# ---- open watches


def lines_of(chunks: bytes) -> list[bytes]:
    """Return the lines of a chunked body, with or without its last chunk."""
    found, rest = b"", chunks
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        found, rest = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return found.splitlines(keepends=True)


@pytest.mark.parametrize("place", [{"events": 2}, {"bytes": 300}, {"events": 0}, {"bytes": 0}])
@pytest.mark.parametrize("kind", ["close", "reset"])
async def test_a_watch_ends_at_a_place_in_good_order_or_not(kind: str, place: Any) -> None:
    async with faulty({"first": 1, "fault": {kind: place}}) as served:
        client = await served.watching()
        for name in "abc":
            served.world.pod(name)
        if kind == "close":
            # The connection stays open, as after any complete answer.
            sent = await client.reader.readuntil(b"\r\n0\r\n\r\n" if any(place.values()) else b"0\r\n\r\n")
            assert await client.is_alive()
        else:
            sent, how = await client.rest()
            assert (how, sent.endswith(b"0\r\n\r\n")) == ("reset", False)
        lines = lines_of(sent)
        if "bytes" in place:
            assert len(b"".join(lines)) == place["bytes"]
            assert not lines or not lines[-1].endswith(b"\n")
        else:
            assert len(lines) == place["events"]
        assert len(served.hub) == 0


async def test_a_stalled_watch_is_silent_and_stays_open_past_its_deadline() -> None:
    async with faulty({"fault": {"stall": {"events": 1}}}) as served:
        client = await served.client()
        await client.watch(f"{WATCH}{served.world.store.rv}&timeoutSeconds=1")
        for name in "ab":
            served.world.pod(name)
        assert await client.event() == "ADDED a"
        served.timers.advance(HOUR)
        assert await client.silent()
    assert await client.ended(), "the server itself ends all the same"


async def test_a_client_that_leaves_a_stalled_watch_takes_it_with_it() -> None:
    async with faulty({"fault": {"stall": {"events": 0, "lasts": "1m"}}}) as served:
        client = await served.watching()
        assert len(served.hub) == 1
        client.writer.transport.abort()
        await until(lambda: len(served.hub) == 0)
        served.timers.advance(60)


def test_uvloops_transports_are_broken_as_thoroughly_as_asyncios() -> None:
    """The cluster command runs on uvloop, which sends data later than it is written."""

    async def broken() -> None:
        watches: list[dict[str, Any]] = [
            {"first": 1, "fault": {"reset": {"bytes": 300}}},
            {"first": 1, "fault": {"reset": {"events": 0}}},
            {"fault": {"stall": {"events": 1}}},
        ]
        deletes: list[dict[str, Any]] = [{"first": 1, "fault": {"lose": {}}}, {"fault": {"hang": {}}}]
        rules = [{"match": {"verbs": ["delete"]}, **rule} for rule in deletes]
        rules += [{"match": {"verbs": ["watch"]}, **rule} for rule in watches]
        async with faulty(*rules, real_time=True) as served:
            served.world.pod("a")
            client = await served.client()
            client.delete(f"{PODS}/a")
            assert await client.rest() == (b"", "reset")
            assert served.world.names(PODS) == []
            client = await served.client()
            client.delete(f"{PODS}/a")
            assert await client.silent()
            client = await served.watching()
            served.world.pod("b")
            sent, how = await client.rest()
            assert (len(b"".join(lines_of(sent))), how) == (300, "reset")
            assert await (await served.watching()).rest() == (b"", "reset")
            client = await served.watching()
            served.world.pod("c")
            assert await client.event() == "ADDED c"
            served.world.pod("d")
            assert await client.silent()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(broken())


# ---- without sockets


async def opened(*rules: dict[str, Any]) -> tuple[World, Door]:
    world = World()
    return world, Door(world.api, disturb=injector(*rules))


async def test_the_door_without_sockets_knows_faults_of_requests() -> None:
    def once(verb: str, fault: Any) -> dict[str, Any]:
        return {"first": 1, "match": {"verbs": [verb]}, "fault": fault}

    world, door = await opened(
        {"first": 1, "fault": {"middlebox": {"says": "notFound", "commit": True}}},
        once("list", {"cutBody": {"bytes": 9}}),
        once("list", {"stale": {"versions": 1}}),
        once("watch", {"middlebox": {"says": "loginPage"}}),
        once("create", {"error": {"status": 500, "commit": True}}),
    )
    world.pod("a")
    status, headers, body = await door.request("DELETE", f"{PODS}/a")
    plain = "text/plain; charset=utf-8"
    assert (status, headers["content-type"], body) == (404, plain, b"default backend - 404")
    assert world.names(PODS) == []
    assert (await door.request("GET", PODS))[2] == b'{"kind":"'
    for name in "bc":
        world.pod(name)
    listed = orjson.loads((await door.request("GET", PODS))[2])["items"]
    assert [item["metadata"]["name"] for item in listed] == ["b"]
    (page,) = [each async for each in await door.watch(f"{PODS}?watch=1")]
    assert page.startswith(b"<html>")
    json = {"Content-Type": "application/json"}
    status, _, _ = await door.request("POST", PODS, body=orjson.dumps(pod("d")), headers=json)
    assert (status, world.names(PODS)) == (500, ["b", "c", "d"])
    door.close()


async def test_the_door_without_sockets_knows_faults_of_watches() -> None:
    faults: list[Any] = [{"reset": {"events": 1}}, {"duplicate": {"every": 1}}]
    world, door = await opened(*({"first": 1, "fault": fault} for fault in faults))
    watch = await door.watch(f"{WATCH}{world.store.rv}")
    world.pod("a")
    assert b'"ADDED"' in await anext(watch)
    with pytest.raises(Lost):
        await anext(watch)
    watch = await door.watch(f"{WATCH}{world.store.rv}")
    world.pod("b")
    assert await anext(watch) == await anext(watch)
    await watch.aclose()
    door.close()


async def test_a_watch_with_a_fault_is_in_json_if_its_client_accepts_that() -> None:
    for accept, begins in ((ACCEPT, b"{"), (PROTOBUF, b"\0")):
        world, door = await opened({"fault": {"duplicate": {"every": 1}}})
        watch = await door.watch(f"{WATCH}{world.store.rv}", headers={"Accept": accept})
        world.pod("a")
        assert (await anext(watch))[:1] == begins
        await watch.aclose()
        door.close()
