"""Injected faults as a client meets them: over real sockets, byte by byte."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args, get_type_hints

import orjson
import pytest
import uvloop

from embedded_kubernetes import fault_plan
from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from embedded_kubernetes.inproc import Door, Lost

from ..support import PODS, World, pod, until
from .test_http import Client, Served, serving

WATCH = f"{PODS}?watch=1&resourceVersion="


def injector(*rules: dict[str, Any]) -> Injector:
    return Injector(plan_of(orjson.dumps({"rules": rules}).decode()))


@asynccontextmanager
async def faulty(*rules: dict[str, Any]) -> AsyncIterator[Served]:
    async with serving(disturb=injector(*rules)) as served:
        yield served


async def how_it_ended(client: Client) -> tuple[bytes, str]:
    """What is left to read, and `closed` or `reset`."""
    found = b""
    try:
        while data := await asyncio.wait_for(client.reader.read(1 << 16), 5):
            found += data
    except ConnectionResetError:
        return found, "reset"
    return found, "closed"


async def silent(client: Client, seconds: float = 0.1) -> bool:
    """Whether nothing comes, not even an end."""
    try:
        await asyncio.wait_for(client.reader.read(1), seconds)
    except TimeoutError:
        return True
    return False


DELETE = f"DELETE {PODS}/a HTTP/1.1\n\n"


@pytest.mark.parametrize(
    ("fault", "committed"),
    [
        ({"drop": {}}, False),
        ({"drop": {"after": "20ms"}}, False),
        ({"lose": {}}, True),
        ({"lose": {"after": "20ms"}}, True),
    ],
)
async def test_a_reset_comes_before_or_after_the_commit(fault: Any, committed: bool) -> None:
    async with faulty({"match": {"verbs": ["delete"]}, "fault": fault}) as served:
        served.world.pod("a")
        client = await served.client()
        client.send(DELETE)
        assert await how_it_ended(client) == (b"", "reset")
        assert served.world.names(PODS) == ([] if committed else ["a"])


@pytest.mark.parametrize("commit", [False, True])
async def test_a_request_that_hangs_is_not_answered_and_its_connection_stays_open(commit: bool) -> None:
    async with faulty({"match": {"verbs": ["delete"]}, "fault": {"hang": {"commit": commit}}}) as served:
        served.world.pod("a")
        client = await served.client()
        client.send(DELETE)
        assert await silent(client)
        assert served.world.names(PODS) == ([] if commit else ["a"])


@pytest.mark.parametrize("commit", [False, True])
async def test_a_hanging_connection_may_be_reset_in_the_end(commit: bool) -> None:
    fault = {"hang": {"commit": commit, "lasts": "30ms"}}
    async with faulty({"match": {"verbs": ["delete"]}, "fault": fault}) as served:
        served.world.pod("a")
        client = await served.client()
        client.send(DELETE)
        assert await how_it_ended(client) == (b"", "reset")


async def test_a_refusal_has_its_status_its_reason_and_its_retry_after() -> None:
    rules: list[dict[str, Any]] = [
        {"count": 1, "fault": {"error": {"status": 429, "retryAfter": 3}}},
        {"count": 1, "fault": {"error": {"status": 503}}},
        {"count": 1, "fault": {"error": {"status": 422, "reason": "Invalid", "message": "said so"}}},
        {"count": 1, "fault": {"conflict": {"of": "uid"}}},
        {"count": 1, "fault": {"error": {"status": 500, "commit": True}}},
    ]
    async with faulty(*rules) as served:
        served.world.pod("a")
        client = await served.client()
        client.send(DELETE)
        status, headers = await client.head()
        body = orjson.loads(await client.reader.readexactly(int(headers["content-length"])))
        assert (status, headers["retry-after"], body["reason"]) == (429, "3", "TooManyRequests")
        assert body["details"]["retryAfterSeconds"] == 3
        for code, reason, message in (
            (503, "ServiceUnavailable", "injected"),
            (422, "Invalid", "said so"),
            (409, "Conflict", "Precondition failed: UID"),
        ):
            client.send(DELETE)
            status, answer = await client.answer()
            body = orjson.loads(answer)
            assert (status, body["code"], body["reason"]) == (code, code, reason)
            assert message in body["message"]
        assert served.world.names(PODS) == ["a"]
        client.send(DELETE)
        assert (await client.answer())[0] == 500
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


def test_every_answer_of_a_middlebox_is_tried() -> None:
    assert set(MIDDLEBOX) == set(get_args(get_type_hints(fault_plan.Middlebox)["says"]))


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("says", MIDDLEBOX)
async def test_a_middlebox_answers_with_no_object_of_the_api(says: str, commit: bool) -> None:
    fault = {"middlebox": {"says": says, "commit": commit}}
    async with faulty({"match": {"verbs": ["delete"]}, "fault": fault}) as served:
        served.world.pod("a")
        client = await served.client()
        client.send(DELETE)
        status, body = await client.answer()
        assert status == MIDDLEBOX[says]
        assert b"apiVersion" not in body
        assert served.world.names(PODS) == ([] if commit else ["a"])
        client.get("/healthz")
        assert await client.answer() == (200, b"ok"), "the connection lives on"


async def test_a_middlebox_answers_a_watch_with_a_page() -> None:
    async with faulty({"fault": {"middlebox": {"says": "loginPage"}}}) as served:
        client = await served.client()
        client.get(f"{WATCH}{served.world.store.rv}")
        status, headers = await client.head()
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert len(served.world.api.registry.stored(("", "pods")).hub) == 0


@pytest.mark.parametrize("size", [None, 0, 7])
async def test_a_body_is_cut_and_framed_as_if_it_were_whole(size: int | None) -> None:
    fault: dict[str, Any] = {"cutBody": {} if size is None else {"bytes": size}}
    async with faulty({"first": 1, "match": {"verbs": ["get"]}, "fault": fault}) as served:
        served.world.pod("a")
        client = await served.client()
        client.get(f"{PODS}/a")
        _, cut = await client.answer()
        client.get(f"{PODS}/a")
        _, whole = await client.answer()
        assert cut == whole[: len(whole) // 2 if size is None else size]


async def test_a_middlebox_and_a_cut_body_are_the_same_without_sockets() -> None:
    world = World()
    rules: list[dict[str, Any]] = [
        {"first": 1, "fault": {"middlebox": {"says": "notFound", "commit": True}}},
        {"first": 1, "match": {"verbs": ["list"]}, "fault": {"cutBody": {"bytes": 9}}},
        {"first": 1, "match": {"verbs": ["watch"]}, "fault": {"middlebox": {"says": "loginPage"}}},
    ]
    door = Door(world.api, disturb=injector(*rules))
    world.pod("a")
    status, headers, body = await door.request("DELETE", f"{PODS}/a")
    assert (status, headers["content-type"], body) == (
        404,
        "text/plain; charset=utf-8",
        b"default backend - 404",
    )
    assert world.names(PODS) == []
    assert (await door.request("GET", PODS))[2] == b'{"kind":"'
    (page,) = [each async for each in await door.watch(f"{PODS}?watch=1")]
    assert page.startswith(b"<html>")
    door.close()


async def test_a_slow_request_is_carried_out_though_its_client_has_gone() -> None:
    rule = {"match": {"verbs": ["delete"]}, "fault": {"delay": {"before": "50ms"}}}
    async with faulty(rule) as served:
        served.world.pod("a")
        client = await served.client()
        client.send(DELETE)
        await asyncio.sleep(0.02)
        client.writer.transport.abort()
        assert served.world.names(PODS) == ["a"]
        await until(lambda: served.world.names(PODS) == [])


async def test_an_answer_may_come_late_and_keeps_its_place() -> None:
    rule = {"match": {"verbs": ["delete"]}, "fault": {"delay": {"after": "50ms"}}}
    async with faulty(rule) as served:
        served.world.pod("a")
        client = await served.client()
        client.send(DELETE)
        client.get("/healthz")
        await until(lambda: served.world.names(PODS) == [])
        assert (await client.answer())[0] == 200
        assert await client.answer() == (200, b"ok")


@pytest.mark.parametrize(
    "fault", [{"delay": {"after": "50ms"}}, {"delay": {"before": "50ms"}}, {"lose": {"after": "50ms"}}]
)
async def test_a_watch_that_nobody_waits_for_any_more_is_forgotten(fault: Any) -> None:
    async with faulty({"match": {"verbs": ["watch"]}, "fault": fault}) as served:
        hub = served.world.api.registry.stored(("", "pods")).hub
        client = await served.client()
        client.get(f"{WATCH}{served.world.store.rv}")
        await asyncio.sleep(0.02)
        client.writer.transport.abort()
        await asyncio.sleep(0.1)
        assert len(hub) == 0


async def test_a_late_watch_tells_what_happened_meanwhile() -> None:
    async with faulty({"match": {"verbs": ["watch"]}, "fault": {"delay": {"after": "50ms"}}}) as served:
        client = await served.client()
        client.get(f"{WATCH}{served.world.store.rv}")
        await asyncio.sleep(0.02)
        served.world.pod("a")
        assert (await client.head())[0] == 200
        assert orjson.loads(await client.chunk())["object"]["metadata"]["name"] == "a"


async def test_a_stale_list_is_an_older_one_in_all_its_pages() -> None:
    rule = {"match": {"verbs": ["list"]}, "first": 1, "fault": {"stale": {"versions": 2}}}
    async with faulty(rule) as served:
        for name in "abcd":
            served.world.pod(name)
        then = served.world.store.rv - 2
        client = await served.client()
        client.get(f"{PODS}?limit=1")
        page = orjson.loads((await client.answer())[1])
        client.get(f"{PODS}?limit=1&continue={page['metadata']['continue']}")
        second = orjson.loads((await client.answer())[1])
        names = [item["metadata"]["name"] for item in page["items"] + second["items"]]
        assert names == ["a", "b"]
        assert page["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"] == str(then)
        assert "continue" not in second["metadata"]
        client.get(PODS)
        assert len(orjson.loads((await client.answer())[1])["items"]) == 4


async def test_a_stale_watch_begins_before_the_version_asked_for() -> None:
    async with faulty({"fault": {"stale": {"versions": 1}}}) as served:
        for name in "ab":
            served.world.pod(name)
        client = await served.client()
        client.get(f"{WATCH}{served.world.store.rv}")
        await client.head()
        assert orjson.loads(await client.chunk())["object"]["metadata"]["name"] == "b"


# ---- open watches


async def watching(served: Served) -> Client:
    """A client whose watch of pods was answered with 200."""
    client = await served.client()
    client.get(f"{WATCH}{served.world.store.rv}")
    assert (await client.head())[0] == 200
    return client


def lines_of(chunks: bytes) -> list[bytes]:
    """The lines of a chunked body, whether or not it has its last chunk."""
    found, rest = b"", chunks
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        found, rest = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return found.splitlines(keepends=True)


@pytest.mark.parametrize("place", [{"events": 2}, {"bytes": 300}, {"events": 0}, {"bytes": 0}])
@pytest.mark.parametrize("kind", ["close", "reset"])
async def test_a_watch_ends_at_a_place_in_good_order_or_not(kind: str, place: Any) -> None:
    async with faulty({"first": 1, "fault": {kind: place}}) as served:
        client = await watching(served)
        for name in "abc":
            served.world.pod(name)
        if kind == "close":
            # The connection lives on, as behind any whole answer.
            client.get("/healthz")
            sent = await client.reader.readuntil(b"\r\n0\r\n\r\n" if any(place.values()) else b"0\r\n\r\n")
            assert await client.answer() == (200, b"ok")
        else:
            sent, how = await how_it_ended(client)
            assert how == "reset"
            assert not sent.endswith(b"0\r\n\r\n")
        lines = lines_of(sent)
        if "bytes" in place:
            assert len(b"".join(lines)) == place["bytes"]
            assert not lines or not lines[-1].endswith(b"\n")
        else:
            assert len(lines) == place["events"]
        assert len(served.world.api.registry.stored(("", "pods")).hub) == 0


async def test_a_stalled_watch_is_silent_and_stays_open_past_its_deadline() -> None:
    async with faulty({"fault": {"stall": {"events": 1}}}) as served:
        client = await served.client()
        client.get(f"{WATCH}{served.world.store.rv}&timeoutSeconds=1")
        await client.head()
        served.world.pod("a")
        served.world.pod("b")
        assert orjson.loads(await client.chunk())["object"]["metadata"]["name"] == "a"
        assert await silent(client, 1.2)
    assert await client.ended(), "the server itself ends all the same"


async def test_a_watch_that_stalled_for_a_while_goes_on_inside_of_the_line() -> None:
    async with faulty({"fault": {"stall": {"bytes": 100, "lasts": "100ms"}}}) as served:
        client = await watching(served)
        served.world.pod("a")
        first = await client.chunk()
        assert len(first) == 100
        served.world.pod("b")
        assert await silent(client, 0.03)
        rest = await client.chunk()
        while rest.count(b"\n") < 2:
            rest += await client.chunk()
        names = [orjson.loads(each)["object"]["metadata"]["name"] for each in (first + rest).splitlines()]
        assert names == ["a", "b"]


async def test_held_events_come_later() -> None:
    async with faulty({"fault": {"hold": {"back": "100ms"}}}) as served:
        client = await watching(served)
        served.world.pod("a")
        assert await silent(client, 0.05)
        assert orjson.loads(await client.chunk())["object"]["metadata"]["name"] == "a"


async def test_a_watch_expires_when_it_is_opened_or_in_the_middle() -> None:
    rules: list[dict[str, Any]] = [
        {"first": 1, "fault": {"error": {"status": 410}}},
        {"first": 1, "fault": {"expire": {"events": 1}}},
    ]
    async with faulty(*rules) as served:
        client = await served.client()
        client.get(f"{WATCH}{served.world.store.rv}")
        status, body = await client.answer()
        assert (status, orjson.loads(body)["reason"]) == (410, "Expired")
        client = await watching(served)
        served.world.pod("a")
        first, second = lines_of(await client.reader.readuntil(b"\r\n0\r\n\r\n"))
        assert orjson.loads(first)["type"] == "ADDED"
        error = orjson.loads(second)
        assert (error["type"], error["object"]["code"]) == ("ERROR", 410)


async def test_a_lost_deletion_ends_the_watch_and_expires_the_next() -> None:
    async with faulty({"first": 1, "fault": {"loseDelete": {}}}) as served:
        served.world.pod("a")
        client = await watching(served)
        served.world.delete(f"{PODS}/a?gracePeriodSeconds=0")
        sent = await client.reader.readuntil(b"0\r\n\r\n")
        assert b"DELETED" not in sent
        client.get(f"{WATCH}{served.world.store.rv}")
        assert (await client.answer())[0] == 410
        client.get(f"{WATCH}{served.world.store.rv}")
        assert (await client.head())[0] == 200


SPOILED: list[tuple[dict[str, Any], list[str]]] = [
    ({"duplicate": {"every": 1}}, ["ADDED a", "ADDED a", "ADDED b", "ADDED b"]),
    ({"replay": {"events": 2, "last": 2}}, ["ADDED a", "ADDED b", "ADDED a", "ADDED b"]),
    ({"truncate": {"events": 0}}, ["?", "ADDED b"]),
    ({"garble": {"events": 0}}, ["?", "ADDED b"]),
    ({"unknownType": {"events": 1}}, ["ADDED a", "MOVED b"]),
    ({"unknownFields": {"bytes": 1_500_000}}, ["ADDED a", "ADDED b"]),
]


def shown(line: bytes) -> str:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "?"
    return f"{event['type']} {event['object']['metadata']['name']}"


@pytest.mark.parametrize(("fault", "seen"), SPOILED, ids=[next(iter(fault)) for fault, _ in SPOILED])
async def test_events_are_spoiled_on_the_wire(fault: Any, seen: list[str]) -> None:
    async with faulty({"fault": fault}) as served:
        client = await watching(served)
        served.world.pod("a")
        served.world.pod("b")
        received = b""
        while received.count(b"\n") < len(seen):
            received += await asyncio.wait_for(client.chunk(), 10)
        lines = received.splitlines()
        assert [shown(line) for line in lines] == seen
        if "unknownFields" in fault:
            assert all(len(line) > 1_500_000 for line in lines)


async def test_a_client_that_leaves_a_stalled_watch_takes_it_with_it() -> None:
    async with faulty({"fault": {"stall": {"events": 0, "lasts": "50ms"}}}) as served:
        client = await watching(served)
        hub = served.world.api.registry.stored(("", "pods")).hub
        assert len(hub) == 1
        client.writer.transport.abort()
        await until(lambda: len(hub) == 0)
        await asyncio.sleep(0.06)


def test_uvloops_transports_are_broken_as_thoroughly_as_asyncios() -> None:
    """The cluster command runs on uvloop, which sends what was written only later."""

    async def broken() -> None:
        rules: list[dict[str, Any]] = [
            {"match": {"verbs": ["delete"]}, "first": 1, "fault": {"lose": {}}},
            {"match": {"verbs": ["delete"]}, "fault": {"hang": {}}},
            {"match": {"verbs": ["watch"]}, "first": 1, "fault": {"reset": {"bytes": 300}}},
            {"match": {"verbs": ["watch"]}, "first": 1, "fault": {"reset": {"events": 0}}},
            {"match": {"verbs": ["watch"]}, "fault": {"stall": {"events": 1}}},
        ]
        async with faulty(*rules) as served:
            served.world.pod("a")
            client = await served.client()
            client.send(DELETE)
            assert await how_it_ended(client) == (b"", "reset")
            assert served.world.names(PODS) == []
            client = await served.client()
            client.send(DELETE)
            assert await silent(client)
            client = await watching(served)
            served.world.pod("b")
            sent, how = await how_it_ended(client)
            assert (len(b"".join(lines_of(sent))), how) == (300, "reset")
            client = await watching(served)
            assert await how_it_ended(client) == (b"", "reset")
            client = await watching(served)
            served.world.pod("c")
            assert shown(await client.chunk()) == "ADDED c"
            served.world.pod("d")
            assert await silent(client)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(broken())


# ---- without sockets


async def test_the_door_without_sockets_knows_the_same_faults() -> None:
    asked = injector(
        {"match": {"verbs": ["watch"]}, "first": 1, "fault": {"reset": {"events": 1}}},
        {"match": {"verbs": ["watch"]}, "first": 1, "fault": {"duplicate": {"every": 1}}},
        {"match": {"verbs": ["list"]}, "fault": {"stale": {"versions": 1}}},
        {"match": {"verbs": ["create"]}, "fault": {"error": {"status": 500, "commit": True}}},
    )
    world = World()
    door = Door(world.api, disturb=asked)
    try:
        watch = await door.watch(f"{WATCH}{world.store.rv}")
        world.pod("a")
        assert b'"ADDED"' in await watch.__anext__()
        with pytest.raises(Lost):
            await watch.__anext__()
        watch = await door.watch(f"{WATCH}{world.store.rv}")
        world.pod("b")
        assert await watch.__anext__() == await watch.__anext__()
        await watch.aclose()
        status, _, body = await door.request("GET", PODS)
        assert [item["metadata"]["name"] for item in orjson.loads(body)["items"]] == ["a"]
        json = {"Content-Type": "application/json"}
        status, _, _ = await door.request("POST", PODS, body=orjson.dumps(pod("c")), headers=json)
        assert (status, world.names(PODS)) == (500, ["a", "b", "c"])
    finally:
        door.close()


async def test_without_a_plan_nothing_is_asked() -> None:
    async with serving() as served:
        assert served.server.disturb is None
        client = await watching(served)
        for number in itertools.islice(itertools.count(), 3):
            served.world.pod(f"p{number}")
        received = b""
        while received.count(b"\n") < 3:
            received += await client.chunk()
