"""A small HTTP server over loopback whose every answer, delay and fault a test decides, and a clock that it turns."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import (
    Answered,
    Endpoint,
    Response,
    Start,
    Transport,
    TransportError,
)


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """`body` None: what an API server says when it did what was asked for. `cut` sends only so many bytes of the body
    and closes. `close` closes after the answer, unannounced."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    close: bool = False


@dataclass
class Stream:
    """A chunked answer. A piece is bytes, or an event that is awaited before the next. `end`: clean, reset, cut, hang.

    `cut` closes the connection without the last chunk, `hang` keeps it open and silent.
    """

    pieces: list[bytes | asyncio.Event]
    end: str = "clean"


class Reset:
    """The connection is reset (RST) without an answer."""


class Hang:
    """No answer until the client gives up."""


Action = Answer | Stream | Reset | Hang
Script = Callable[[Request], Action | Awaitable[Action]]


class ScriptedServer:
    def __init__(self, script: Script, port: int, tls: bool) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connections = 0
        self.open = 0
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self._arrived = asyncio.Condition()

    def seen(self, method: str, containing: str = "") -> list[Request]:
        return [r for r in self.requests if r.method == method and containing in r.target]

    async def arrived(self, count: int) -> None:
        """Waits until so many requests have come."""
        async with asyncio.timeout(10), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body)
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        action = self.script(request)
        if not isinstance(action, Answer | Stream | Reset | Hang):
            action = await action
        if isinstance(action, Reset):
            _reset(writer)
            return False
        if isinstance(action, Hang):
            await reader.read()
            return False
        if isinstance(action, Stream):
            return await self._stream(action, reader, writer)
        assert isinstance(action, Answer)
        said = _in_full(action.body, request)
        content = said if isinstance(said, bytes) else json.dumps(said).encode()
        lines = [f"HTTP/1.1 {action.status} X", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in action.headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + content[: action.cut])
        await writer.drain()
        return action.cut is None and not action.close

    async def _stream(
        self, action: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in action.pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
                continue
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            # One piece, one arrival: without this the kernel would join them.
            await asyncio.sleep(0.001)
        if action.end == "hang":
            await reader.read()
        if action.end == "reset":
            _reset(writer)
        if action.end == "clean":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        return False


def _in_full(body: Any, request: Request) -> Any:
    """A success, and the object that is not found, as an API server words them for this request."""
    resource, name = _object_of(request)
    if body is None and (request.method == "DELETE" or request.path.endswith("/binding")):
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if body is None:
        return {"kind": "Some", "apiVersion": "v1", "metadata": {"name": name}}
    if isinstance(body, dict) and body.get("reason") == "NotFound" and "details" not in body:
        return {**body, "details": {"name": name, "kind": resource}}
    return body


def _object_of(request: Request) -> tuple[str, str]:
    """Its kind in the plural, and its name, which a POST to a collection has in its body."""
    _, root, *rest = request.path.split("/")
    rest = rest[1:] if root == "api" else rest[2:]
    rest = rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest
    if request.method == "POST" and len(rest) == 1:
        return rest[0], request.json["metadata"]["name"]
    return rest[0] if rest else "", rest[1] if len(rest) > 1 else ""


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    tasks: set[asyncio.Task[None]] = set()
    errors: list[Exception] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await server._serve(reader, writer)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            errors.append(error)
        finally:
            tasks.discard(task)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    server = ScriptedServer(script, listening.sockets[0].getsockname()[1], tls is not None)
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not errors, errors


@asynccontextmanager
async def connected(script: Script, **options: Any) -> AsyncIterator[tuple[ScriptedServer, Transport]]:
    """A server that follows the script, and a transport to it."""
    async with serving(script) as server:
        transport = Http1Transport(Endpoint(server.url), **options)
        try:
            yield server, transport
        finally:
            await transport.close()


def in_order(*actions: Action) -> Script:
    """Answers one request after the other; the last action goes on for ever."""
    left = list(actions)
    return lambda _request: left.pop(0) if len(left) > 1 else left[0]


def status(code: int, reason: str = "", message: str = "", **details: Any) -> Answer:
    """A refusal as an API server words it."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    body |= {"reason": reason, "message": message}
    if details:
        body["details"] = details
    return Answer(code, body)


class FakeTime:
    """A clock that stands still but for sleeping, which takes no real time. `slept` has every delay asked for."""

    def __init__(self, *, chance: float = 0.0) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.timing = Timing(clock=lambda: self.now, sleep=self.sleep, rng=lambda: chance)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


async def eventually(condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
    """Waits until the condition holds; a failing test ends here instead of hanging."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for is not ours to signal
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(work: Awaitable[Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Runs a coroutine beside the test and cancels it in the end; shows what it raised."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    if isinstance(outcome, Exception):
        raise outcome


def starting(transport: Transport) -> Start:
    """A `start` that finds a warm connection, whatever the transport."""

    def start(method: str, path: str, *, answered: Answered, **more: Any) -> bool:
        def over(done: asyncio.Task[Response]) -> None:
            error = done.exception()
            answered(error if isinstance(error, TransportError) else done.result())

        asyncio.create_task(transport.request(method, path, **more)).add_done_callback(over)
        return True

    return start
