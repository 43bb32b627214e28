"""The HTTP adapter, byte by byte over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from embedded_kubernetes import heads
from embedded_kubernetes.auth.options import Options
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturbance, Request
from embedded_kubernetes.server import Server

from ..support import NAMESPACES, PODS, World, named, pod


class Client:
    """A connection that writes bytes and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, text: str, body: bytes = b"") -> None:
        self.writer.write(text.replace("\n", "\r\n").encode() + body)

    def post(self, path: str, body: Any, more: str = "") -> None:
        data = orjson.dumps(body)
        head = f"POST {path} HTTP/1.1\nHost: x\nContent-Type: application/json\n{more}"
        self.send(f"{head}Content-Length: {len(data)}\n\n", data)

    def get(self, path: str, more: str = "") -> None:
        self.send(f"GET {path} HTTP/1.1\nHost: x\n{more}\n")

    async def head(self) -> tuple[int, dict[str, str]]:
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = text.strip().split("\r\n")
        return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines)

    async def answer(self) -> tuple[int, bytes]:
        status, headers = await self.head()
        return status, await self.reader.readexactly(int(headers["content-length"]))

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def ended(self) -> bool:
        """Whether the server closes the connection, with nothing more to read."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 5) == b""
        except ConnectionResetError:
            return True


class Served:
    def __init__(self, world: World, server: Server) -> None:
        self.world = world
        self.server = server
        self._clients: list[Client] = []

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Served]:
    world = World(auth=options.pop("auth", None))
    async with Server(world.api, **options) as server:
        served = Served(world, server)
        try:
            yield served
        finally:
            served.close()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it did not come true within 5 s")


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as served:
        client = await served.client()
        for name in "abc":
            client.post(PODS, pod(name))
            client.get(f"{PODS}/{name}")
        for name in "abc":
            assert (await client.answer())[0] == 201
            status, body = await client.answer()
            assert (status, orjson.loads(body)["metadata"]["name"]) == (200, name)


async def test_requests_with_known_headers_are_answered_like_the_first_of_their_kind() -> None:
    async with serving(auth=Options.one_token("secret")) as served:
        client = await served.client()
        more = "Authorization: Bearer secret\n"
        for number in range(6):
            client.post(PODS, pod(f"p{number}"), more)
            assert (await client.answer())[0] == 201
            client.get(PODS, "Authorization: Bearer wrong\n")
            assert (await client.answer())[0] == 401
        for number in range(6):
            client.get(f"{PODS}/p{number}", more)
        for number in range(6):
            status, body = await client.answer()
            assert (status, orjson.loads(body)["metadata"]["name"]) == (200, f"p{number}")


async def test_a_known_block_does_not_excuse_a_bad_request_line() -> None:
    async with serving() as served:
        for line in ("GET /healthz HTTP/1.1 x", "GET /healthz HTTP/9.9", "NONSENSE /healthz HTTP/1.1", "GET"):
            client = await served.client()
            for _ in range(3):
                client.get("/healthz")
                assert await client.answer() == (200, b"ok")
            client.send(f"{line}\nHost: x\n\n")
            assert (await client.answer())[0] == 400
            assert await client.ended()
        client = await served.client()
        client.send("HEAD /healthz HTTP/1.1\nHost: x\n\n")
        assert (await client.head())[0] == 200
        client.send("GET /healthz HTTP/1.0\nHost: x\n\n")
        assert await client.answer() == (200, b"ok")
        assert await client.ended()


async def test_headers_that_frame_a_message_are_read_anew_every_time() -> None:
    async with serving() as served:
        client = await served.client()
        data = orjson.dumps(pod("a"))
        head = (
            f"POST {PODS}?dryRun=All HTTP/1.1\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n"
        )
        for cut in (5, 50, len(data)):
            pieces = [data[start : start + cut] for start in range(0, len(data), cut)]
            client.send(head, b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n")
            assert (await client.answer())[0] == 201
        for _ in range(2):
            client.send("GET /healthz HTTP/1.1\nHost: x\n\nGET /healthz HTTP/1.1\nConnection: close\n\n")
            assert await client.answer() == (200, b"ok")
            assert await client.answer() == (200, b"ok")
            assert await client.ended()
            client = await served.client()


async def test_requests_may_arrive_in_pieces_and_bodies_in_chunks() -> None:
    async with serving() as served:
        client = await served.client()
        data = orjson.dumps(pod("a"))
        text = f"POST {PODS} HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        pieces = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (10, data[:10], len(data) - 10, data[10:])
        for byte in text.encode() + pieces:
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.answer())[0] == 201


async def test_a_client_that_expects_continue_is_told_to() -> None:
    async with serving() as served:
        client = await served.client()
        data = orjson.dumps(pod("a"))
        head = f"POST {PODS} HTTP/1.1\nContent-Type: application/json\nExpect: 100-continue\n"
        client.send(f"{head}Content-Length: {len(data)}\n\n")
        assert (await client.head())[0] == 100
        client.writer.write(data)
        assert (await client.answer())[0] == 201


async def test_a_head_request_has_the_length_and_no_body() -> None:
    async with serving() as served:
        client = await served.client()
        client.send("HEAD /healthz HTTP/1.1\n\n")
        status, headers = await client.head()
        assert (status, headers["content-length"]) == (200, "2")
        client.get("/healthz")
        assert await client.answer() == (200, b"ok")


@pytest.mark.parametrize(
    ("request_text", "closes"),
    [
        ("GET /healthz HTTP/1.0\n\n", True),
        ("GET /healthz HTTP/1.0\nConnection: keep-alive\n\n", False),
        ("GET /healthz HTTP/1.1\nConnection: close\n\n", True),
        ("GET /healthz HTTP/1.1\n\n", False),
    ],
)
async def test_connections_live_as_long_as_their_version_and_header_say(
    request_text: str, closes: bool
) -> None:
    async with serving() as served:
        client = await served.client()
        client.send(request_text)
        assert await client.answer() == (200, b"ok")
        if closes:
            assert await client.ended()
        else:
            client.get("/healthz")
            assert await client.answer() == (200, b"ok")


@pytest.mark.parametrize(
    "text", ["GARBAGE\n\n", "GET /x HTTP/9.9\n\n", "POST /x HTTP/1.1\nContent-Length: -1\n\n", "\x00\x01\n\n"]
)
async def test_malformed_requests_are_answered_400_and_cut_off(text: str) -> None:
    async with serving() as served:
        client = await served.client()
        client.send(text)
        assert (await client.answer())[0] == 400
        assert await client.ended()
        other = await served.client()
        other.get("/healthz")
        assert await other.answer() == (200, b"ok")


async def test_oversized_bodies_are_refused_by_their_length_and_by_their_size() -> None:
    async with serving() as served:
        client = await served.client()
        client.send(f"POST {PODS} HTTP/1.1\nContent-Length: {heads.BODY_LIMIT + 1}\n\n")
        status, body = await client.answer()
        assert (status, orjson.loads(body)["reason"]) == (413, "RequestEntityTooLarge")
        client = await served.client()
        client.send(f"POST {PODS} HTTP/1.1\nTransfer-Encoding: chunked\n\n")
        piece = b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20))
        for _ in range(4):
            client.writer.write(piece)
        assert (await client.answer())[0] == 413


async def test_oversized_headers_are_refused() -> None:
    async with serving() as served:
        client = await served.client()
        client.get("/healthz", f"X-Long: {'x' * heads.HEADER_LIMIT}\n")
        assert (await client.answer())[0] == 431
        assert await client.ended()


async def test_a_watch_streams_chunks_and_ends_at_its_timeout() -> None:
    async with serving() as served:
        client = await served.client()
        client.get(f"{PODS}?watch=1&timeoutSeconds=1&resourceVersion={served.world.store.rv}")
        status, headers = await client.head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        served.world.pod("a")
        event = orjson.loads(await client.chunk())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        assert await client.chunk() == b""
        client.get("/healthz")
        assert await client.answer() == (200, b"ok")


async def test_requests_behind_a_watch_wait_for_its_end() -> None:
    async with serving() as served:
        client = await served.client()
        client.get(f"{PODS}?watch=1&timeoutSeconds=1&resourceVersion={served.world.store.rv}")
        client.get("/healthz")
        await client.head()
        assert await client.chunk() == b""
        assert await client.answer() == (200, b"ok")


async def test_a_watch_over_http_1_0_is_a_plain_stream_until_it_closes() -> None:
    async with serving() as served:
        client = await served.client()
        client.send(f"GET {PODS}?watch=1&timeoutSeconds=1&resourceVersion=1 HTTP/1.0\n\n")
        _, headers = await client.head()
        assert "transfer-encoding" not in headers
        served.world.pod("a")
        assert orjson.loads(await client.reader.readline())["type"] == "ADDED"
        assert await client.ended()


async def test_a_client_that_leaves_takes_its_watch_with_it() -> None:
    async with serving() as served:
        hub = served.world.api.registry.served["", "v1"]["pods"].hub
        client = await served.client()
        client.get(f"{PODS}?watch=1")
        await client.head()
        assert len(hub) == 1
        client.writer.close()
        await until(lambda: len(hub) == 0)


async def test_a_client_that_does_not_read_is_cut_off_and_the_others_are_not() -> None:
    async with serving() as served:
        world = served.world
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", served.server.port))
        try:
            slow.sendall(f"GET {PODS}?watch=1&resourceVersion=1 HTTP/1.1\r\n\r\n".encode())
            quick = await served.client()
            quick.get(f"{PODS}?watch=1&resourceVersion=1")
            await quick.head()
            hub = world.api.registry.served["", "v1"]["pods"].hub
            await until(lambda: len(hub) == 2)
            for watcher in hub.watchers():
                watcher.limit = 8 << 20
            note = "x" * 200_000
            received = 0
            for number in range(100):
                world.pod(f"p{number}", annotations={"note": note})
                chunk = await quick.chunk()
                received += chunk.count(b'{"type":"ADDED"')
            while received < 100:
                received += (await quick.chunk()).count(b'{"type":"ADDED"')
            assert received == 100
            assert len(hub) == 1
        finally:
            slow.close()


async def test_a_long_list_arrives_whole() -> None:
    async with serving() as served:
        for number in range(40):
            served.world.pod(f"p{number}", annotations={"note": "x" * 20_000})
        client = await served.client()
        client.get(PODS)
        client.get("/healthz")
        status, body = await client.answer()
        assert status == 200 and len(orjson.loads(body)["items"]) == 40
        assert await client.answer() == (200, b"ok")


async def test_stopping_ends_watches_cleanly_and_closes_idle_connections() -> None:
    world = World()
    server = Server(world.api)
    await server.start()
    served = Served(world, server)
    watching, idle = await served.client(), await served.client()
    watching.get(f"{PODS}?watch=1&resourceVersion={world.store.rv}")
    await watching.head()
    idle.get("/healthz")
    await idle.answer()
    await server.stop()
    assert await watching.chunk() == b""
    assert await watching.ended() and await idle.ended()
    served.close()
    with pytest.raises(OSError):
        await served.client()


async def test_the_collector_runs_while_the_server_serves() -> None:
    async with serving() as served:
        world = served.world
        world.post(NAMESPACES, named("t"))
        for number in range(200):
            world.pod(f"p{number}", namespace="t")
        client = await served.client()
        client.send("DELETE /api/v1/namespaces/t HTTP/1.1\n\n")
        assert (await client.answer())[0] == 200
        await until(lambda: world.send("GET", "/api/v1/namespaces/t").status == 404)


async def test_a_fault_of_the_server_is_a_500_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as served:

        def broken(request: Request) -> None:
            raise ZeroDivisionError

        client = await served.client()
        with monkeypatch.context() as patched:
            patched.setattr(served.world.api, "_handle", broken)
            client.get("/healthz")
            status, body = await client.answer()
        assert (status, orjson.loads(body)["reason"]) == (500, "InternalError")
        assert "ZeroDivisionError" in caplog.text
        client.get("/healthz")
        assert await client.answer() == (200, b"ok")


class Faults:
    """Disturbs requests by their path."""

    def __init__(self, **by_name: Disturbance) -> None:
        self.by_name = by_name

    def __call__(self, request: Request) -> Disturbance | None:
        return self.by_name.get(request.path.rpartition("/")[2])


async def test_injected_faults_happen_before_or_after_the_commit() -> None:
    faults = Faults(
        slow=Disturbance(delay=0.05),
        refused=Disturbance(error=ApiError(429, "TooManyRequests", "later", {"retryAfterSeconds": 1})),
        dropped=Disturbance(drop=True),
        lost=Disturbance(late=0.01, lose=True),
    )
    async with serving(disturb=faults) as served:
        for name in ("slow", "refused", "dropped", "lost"):
            served.world.pod(name)
        client = await served.client()
        for path in ("slow", "refused"):
            client.send(f"DELETE {PODS}/{path} HTTP/1.1\n\n")
        client.get("/healthz")
        assert (await client.answer())[0] == 200
        assert (await client.answer())[0] == 429
        assert await client.answer() == (200, b"ok"), "answers keep the order of the requests"
        for path in ("dropped", "lost"):
            client = await served.client()
            client.send(f"DELETE {PODS}/{path} HTTP/1.1\n\n")
            assert await client.ended()
        assert served.world.names(PODS) == ["dropped", "refused"]


async def test_a_token_is_asked_for_over_http_too() -> None:
    async with serving(auth=Options.one_token("secret")) as served:
        client = await served.client()
        client.get(PODS)
        assert (await client.answer())[0] == 401
        client.get(PODS, "Authorization: Bearer secret\n")
        assert (await client.answer())[0] == 200
