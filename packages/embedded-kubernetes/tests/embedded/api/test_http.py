"""The HTTP adapter, byte by byte over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest

from embedded.sockets import Client, Served, Timers, serving
from embedded.support import NAMESPACES, PODS, World, cases, pod, until
from embedded_kubernetes import connections, heads
from embedded_kubernetes.auth.options import Options
from embedded_kubernetes.requests import Request
from embedded_kubernetes.server import Server

JSON = "Content-Type: application/json\n"


async def test_requests_with_known_headers_are_answered_like_the_first_of_their_kind() -> None:
    async with serving(auth=Options.one_token("secret")) as served:
        client = await served.client()
        more = "Authorization: Bearer secret\n"
        for number in range(6):
            client.post(PODS, pod(f"p{number}"), more)
            client.get(PODS, "Authorization: Bearer wrong\n")
            client.get(PODS)
            assert await client.statuses(3) == [201, 401, 401]
        for number in range(6):
            client.get(f"{PODS}/p{number}", more)
        for number in range(6):
            assert (await client.object())["metadata"]["name"] == f"p{number}"


def test_large_requests_take_turns_and_leave_the_loop_to_others_for_as_long_as_each_took() -> None:
    now, delays, done = [0.0], [], []
    due = []

    class Loop:
        def call_soon(self, action: Callable[[], None]) -> None:
            due.append(action)

        def call_later(self, seconds: float, action: Callable[[], None]) -> None:
            delays.append(seconds)
            due.append(action)

    def large(seconds: float) -> Callable[[], None]:
        def action() -> None:
            now[0] += seconds
            done.append(seconds)

        return action

    turns = connections.Turns(cast(Any, Loop()), clock=lambda: now[0])
    for seconds in (0.25, 0.5):
        turns.add(large(seconds))
    while due:
        assert len(due) == 1
        due.pop()()
    turns.add(large(1.0))
    due.pop()()
    assert (done, delays) == ([0.25, 0.5, 1.0], [0.25, 0.5, 1.0])


async def test_a_large_object_is_created_and_patched_in_the_order_of_its_connection(client: Client) -> None:
    large = {**pod("large"), "metadata": {"name": "large", "annotations": {"a": "a" * 100_000}}}
    client.post(PODS, large)
    patch = orjson.dumps({"metadata": {"labels": {"l": "v"}}})
    client.send(
        f"PATCH {PODS}/large HTTP/1.1\nContent-Type: application/merge-patch+json\nContent-Length: {len(patch)}\n\n",
        patch,
    )
    client.get(f"{PODS}/large")
    created, patched, read = [await client.object() for _ in range(3)]
    assert created["metadata"]["name"] == patched["metadata"]["name"] == "large"
    assert patched["metadata"]["labels"] == read["metadata"]["labels"] == {"l": "v"}


@pytest.mark.parametrize(
    "line", ["GET /healthz HTTP/1.1 x", "GET /healthz HTTP/9.9", "NONSENSE /healthz HTTP/1.1", "GET"]
)
async def test_a_known_block_does_not_excuse_a_bad_request_line(served: Served, client: Client, line: str) -> None:
    for _ in range(3):
        assert await client.is_alive()
    client.send(f"{line}\nHost: localhost\n\n")
    assert await client.statuses() == [400]
    served.timers.advance(1)
    assert await client.ended()


async def test_a_known_block_is_for_other_methods_and_versions_too(client: Client) -> None:
    for _ in range(3):
        assert await client.is_alive()
    client.send("HEAD /healthz HTTP/1.1\nHost: localhost\n\n")
    status, headers = await client.head()
    assert (status, headers["content-length"]) == (200, "2")
    client.send("GET /healthz HTTP/1.0\nHost: localhost\n\n")
    assert await client.answer() == (200, b"ok")
    assert await client.ended()


async def test_headers_that_frame_a_message_are_read_anew_every_time(served: Served, client: Client) -> None:
    data = orjson.dumps(pod("a"))
    head = f"POST {PODS}?dryRun=All HTTP/1.1\n{JSON}Transfer-Encoding: chunked\n\n"
    for cut in (5, 50, len(data)):
        pieces = [data[start : start + cut] for start in range(0, len(data), cut)]
        client.send(head, b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n")
        assert await client.statuses() == [201]
    for _ in range(2):
        client.send("GET /healthz HTTP/1.1\nHost: localhost\n\nGET /healthz HTTP/1.1\nConnection: close\n\n")
        assert await client.statuses(2) == [200, 200]
        assert await client.ended()
        client = await served.client()


async def test_a_client_that_expects_continue_is_told_to(client: Client) -> None:
    data = orjson.dumps(pod("a"))
    client.send(f"POST {PODS} HTTP/1.1\n{JSON}Expect: 100-continue\nContent-Length: {len(data)}\n\n")
    assert (await client.head())[0] == 100
    client.writer.write(data)
    assert await client.statuses() == [201]


@cases(r"""
    text | closes
    "GET /healthz HTTP/1.0\n\n" | true
    "GET /healthz HTTP/1.0\nConnection: keep-alive\n\n" | false
    "GET /healthz HTTP/1.1\nConnection: close\n\n" | true
    "GET /healthz HTTP/1.1\n\n" | false
    """)
async def test_connections_live_as_long_as_their_version_and_header_say(
    client: Client, text: str, closes: bool
) -> None:
    client.send(text)
    assert await client.answer() == (200, b"ok")
    assert await (client.ended() if closes else client.is_alive())


@pytest.mark.parametrize(
    "text", ["GARBAGE\n\n", "GET /x HTTP/9.9\n\n", "POST /x HTTP/1.1\nContent-Length: -1\n\n", "\x00\x01\n\n"]
)
async def test_malformed_requests_are_answered_400_and_cut_off(served: Served, client: Client, text: str) -> None:
    client.send(text)
    assert await client.statuses() == [400]
    served.timers.advance(1)
    assert await client.ended()
    assert await (await served.client()).is_alive()


async def test_oversized_bodies_are_refused_by_their_length_and_by_their_size(served: Served) -> None:
    client = await served.client()
    client.send(f"POST {PODS} HTTP/1.1\nContent-Length: {heads.BODY_LIMIT + 1}\n\n")
    answer = await client.object()
    assert (answer["code"], answer["reason"]) == (413, "RequestEntityTooLarge")
    client = await served.client()
    client.send(f"POST {PODS} HTTP/1.1\nTransfer-Encoding: chunked\n\n")
    for _ in range(4):
        client.writer.write(b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20)))
    assert await client.statuses() == [413]


async def test_oversized_headers_are_refused(served: Served, client: Client) -> None:
    client.get("/healthz", f"X-Long: {'x' * heads.HEADER_LIMIT}\n")
    assert await client.statuses() == [431]
    served.timers.advance(1)
    assert await client.ended()


WATCH = f"{PODS}?watch=1&resourceVersion=1&timeoutSeconds=5"


@pytest.mark.parametrize(
    "begun",
    [
        "GET /healthz HTTP/1.1\n",
        "GET /healthz HTTP/1.1\nHost: localhost\n",
        f"POST {PODS} HTTP/1.1\nHost: localhost\n{JSON}Content-Length: 9\n\n{{",
    ],
)
async def test_a_request_must_be_complete_in_time(served: Served, client: Client, begun: str) -> None:
    assert await client.is_alive()
    served.timers.advance(3600)
    client.send(begun)
    assert await client.silent()
    served.timers.advance(29)
    client.send("" if begun.endswith("{") else "a: b\n")
    assert await client.silent()
    served.timers.advance(1)
    assert await client.statuses() == [408]
    served.timers.advance(1)
    assert await client.ended()


async def test_a_new_connection_replaces_one_with_an_incomplete_request_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_most_connections", lambda: 3)
    async with serving() as served:
        watching, idle, begun = [await served.client() for _ in range(3)]
        await watching.watch(f"{PODS}?watch=true")
        assert await idle.is_alive()
        begun.send("GET /healthz HTTP/1.1\n")
        assert await begun.silent()
        for replaced in (begun, idle):
            new = await served.client()
            assert await new.is_alive()
            await replaced.rest()
        assert await watching.silent()


async def test_the_bytes_of_incomplete_requests_are_limited(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    monkeypatch.setattr(connections, "_MOST_BYTES", 100_000)
    head = f"POST {PODS} HTTP/1.1\nHost: localhost\n{JSON}Content-Length: "
    large, small = await served.client(), await served.client()
    large.send(f"{head}200000\n\n", b"x" * 90_000)
    assert await large.silent()
    data = orjson.dumps(pod("a", annotations={"a": "x" * 20_000}))
    small.send(f"{head}{len(data)}\n\n", data)
    assert await small.statuses() == [201]
    await large.rest()
    alone = await served.client()
    alone.send(f"{head}200000\n\n", b"x" * 110_000)
    assert await alone.statuses() == [429]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: 127.0.0.1:8001", 201),
        ("Host: localhost:8001\nOrigin: http://localhost:8001", 201),
        ("Host: evil.example", 421),
        ("Host: localhost:8001\nOrigin: http://evil.example", 403),
        ("Host: localhost:8001\nOrigin: null", 403),
    ],
)
async def test_requests_of_pages_of_other_sites_are_refused(served: Served, headers: str, status: int) -> None:
    body = orjson.dumps(pod("a"))
    for _ in range(2):
        client = await served.client()
        # Without Content-Type, which a page may send without asking first.
        client.send(f"POST {PODS}?dryRun=All HTTP/1.1\n{headers}\nContent-Length: {len(body)}\n\n", body)
        assert await client.statuses() == [status]


async def test_a_watch_streams_chunks_and_ends_at_its_timeout_before_the_requests_behind_it(
    served: Served, client: Client
) -> None:
    client.get(WATCH)
    status, headers = await client.head()
    assert (status, headers["transfer-encoding"]) == (200, "chunked")
    served.world.pod("a")
    assert await client.event() == "ADDED a"
    client.get("/healthz")
    served.timers.advance(4)
    assert await client.silent()
    served.timers.advance(1)
    assert await client.chunk() == b""
    assert await client.answer() == (200, b"ok")


async def test_a_client_that_does_not_read_is_cut_off_and_the_others_are_not(served: Served) -> None:
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", served.server.port))
    try:
        slow.sendall(f"GET {PODS}?watch=1&resourceVersion=1 HTTP/1.1\r\n\r\n".encode())
        quick = await served.watching()
        await until(lambda: len(served.hub) == 2)
        for watcher in served.hub.watchers():
            watcher.limit = 8 << 20
        received = 0
        for number in range(100):
            served.world.pod(f"p{number}", annotations={"note": "x" * 200_000})
            received += (await quick.chunk()).count(b'{"type":"ADDED"')
        while received < 100:
            received += (await quick.chunk()).count(b'{"type":"ADDED"')
        assert (received, len(served.hub)) == (100, 1)
    finally:
        slow.close()


async def test_a_long_list_arrives_whole(served: Served, client: Client) -> None:
    for number in range(40):
        served.world.pod(f"p{number}", annotations={"note": "x" * 20_000})
    client.get(PODS)
    client.get("/healthz")
    assert len((await client.object())["items"]) == 40
    assert await client.answer() == (200, b"ok")


async def test_stopping_ends_watches_cleanly_and_closes_idle_connections(world: World) -> None:
    server = Server(world.api)
    await server.start()
    served = Served(world, server, Timers())
    watching, idle = await served.watching(), await served.client()
    assert await idle.is_alive()
    await server.stop(grace=60)
    assert await watching.chunk() == b""
    assert await watching.ended() and await idle.ended()
    served.close()
    with pytest.raises(OSError):
        await served.client()


async def test_the_collector_runs_while_the_server_serves(served: Served, client: Client) -> None:
    served.world.namespace("t")
    for number in range(200):
        served.world.pod(f"p{number}", namespace="t")
    client.delete(f"{NAMESPACES}/t")
    assert await client.statuses() == [200]
    await until(lambda: not served.world.is_there(f"{NAMESPACES}/t"))


async def test_a_fault_of_the_server_is_a_500_and_not_the_end(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: Request) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(served.world.api, "_handle", broken)
        client.get("/healthz")
        answer = await client.object()
    assert (answer["code"], answer["reason"]) == (500, "InternalError")
    assert "ZeroDivisionError" in caplog.text
    assert await client.is_alive()
