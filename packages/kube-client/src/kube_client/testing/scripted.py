"""An API server whose responses, delays and faults a test decides, over HTTP (`serving`) or without (`answering`).

Tests of code that uses a `Transport` use `answering` and run in virtual time, where `FakeTime` is the loop's time.
Tests of the HTTP client itself use `raw_server`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kube_client.connection_pool import ConnectionTimes
from kube_client.http1 import Http1Transport
from kube_client.retry import Timing
from kube_client.streamed import split_lines
from kube_client.testing.loop import START, SimLoop
from kube_client.transport import (
    Answered,
    Endpoint,
    Headers,
    NotSent,
    OutcomeUnknown,
    Response,
    StreamRefused,
    Transport,
)


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    #: The common name in the client's certificate.
    peer: str = ""

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
    """A response; `body` None means an API server's success. If `cut` is set, only that many bytes of it arrive."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


@dataclass
class Stream:
    """A chunked response. A piece is bytes, an event that is awaited before the next, or seconds that pass.

    `end` is clean, reset, cut or hang. `cut` closes the connection without the last chunk, `hang` keeps it open and
    silent.
    """

    pieces: list[bytes | asyncio.Event | float]
    end: str = "clean"


class Reset:
    """Resets the connection (RST) without a response."""


@dataclass(frozen=True)
class Hang:
    """Sends no response until the client gives up."""


Action = Answer | Stream | Reset | Hang
Script = Callable[[Request], Action | Awaitable[Action]]


class ScriptedServer:
    """The server over sockets: whole responses, silence, and streams with fixed content, which do not end."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connections = 0
        self.open = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while await self._exchange(reader, writer):
                pass
        finally:
            self.open -= 1

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body, _common_name(writer))
        self.requests.append(request)
        action = self.script(request)
        if not isinstance(action, Answer | Stream | Reset | Hang):
            action = await action
        if isinstance(action, Answer):
            content = content_of(action, request)
            lines = [f"HTTP/1.1 {action.status} X", f"Content-Length: {len(content)}"]
            lines += [f"{name}: {value}" for name, value in action.headers.items()]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + content)
            await writer.drain()
            return True
        assert not isinstance(action, Reset), "see raw_server"
        if isinstance(action, Stream):
            chunks = (b"%x\r\n%s\r\n" % (len(each), each) for each in action.pieces if isinstance(each, bytes))
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks))
        await reader.read()
        return False


def _common_name(writer: asyncio.StreamWriter) -> str:
    subject = (writer.get_extra_info("peercert") or {}).get("subject", ())
    return next((value for pairs in subject for key, value in pairs if key == "commonName"), "")


def content_of(answer: Answer, request: Request) -> bytes:
    said = _in_full(answer.body, request)
    return said if isinstance(said, bytes) else json.dumps(said).encode()


def _in_full(body: Any, request: Request) -> Any:
    """Complete a success, and an object that is not found, as an API server words them for this request."""
    if body is None and (request.method == "DELETE" or request.path.endswith("/binding")):
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if body is None:
        return {"kind": "Some", "apiVersion": "v1", "metadata": {"name": _object_of(request)[1]}}
    if isinstance(body, dict) and body.get("reason") == "NotFound" and "details" not in body:
        resource, name = _object_of(request)
        return {**body, "details": {"name": name, "kind": resource}}
    return body


def _object_of(request: Request) -> tuple[str, str]:
    """Return the object's kind in the plural, and its name, which a POST to a collection has in its body."""
    _, root, *rest = request.path.split("/")
    rest = rest[1:] if root == "api" else rest[2:]
    rest = rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest
    if request.method == "POST" and len(rest) == 1:
        return rest[0], request.json["metadata"]["name"]
    return rest[0] if rest else "", rest[1] if len(rest) > 1 else ""


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[asyncio.Server]:
    """Start a server that handles each connection with `serve`; its end cancels them, and raises their errors."""
    tasks: set[asyncio.Task[None]] = set()
    errors: list[Exception] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        except Exception as error:
            errors.append(error)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, host, port, ssl=tls)
    try:
        yield server
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not errors, errors


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


@asynccontextmanager
async def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(script)
    async with listening(server.serve, tls=tls) as opened:
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port_of(opened)}"
        yield server


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncIterator[Http1Transport]:
    """Create a client; `options` are those of the transport and of its endpoint."""
    about = {name: options.pop(name) for name in _OF_ENDPOINTS if name in options}
    times = {each.name: options.pop(each.name) for each in fields(ConnectionTimes) if each.name in options}
    transport = Http1Transport(Endpoint(url, **about), times=ConnectionTimes(**times), **options)
    try:
        yield transport
    finally:
        await transport.close()


_OF_ENDPOINTS = ("ssl_context", "headers", "refused", "unverified", "server_hostname", "proxy")


class ScriptedTransport:
    """A `Transport` that follows a script without sockets.

    `warm` is whether a connection is open, so that requests can start immediately; the first response sets it.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.timeouts: list[float] = []
        #: Watches that have not ended.
        self.open = 0
        self.warm = False

    async def arrived(self, count: int) -> None:
        """Wait until `count` requests have arrived."""
        await eventually(lambda: len(self.requests) >= count)

    def seen(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]

    def _asked(self, method: str, path: str, body: bytes | None, content_type: str, timeout: float) -> Request:
        headers = {} if body is None else {"content-type": content_type}
        self.requests.append(Request(method, path, headers, body or b""))
        self.timeouts.append(timeout)
        return self.requests[-1]

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        request = self._asked(method, path, body, content_type, timeout)
        try:
            async with asyncio.timeout(timeout):
                action = await self._action(request)
                if isinstance(action, Hang):
                    await asyncio.Event().wait()
        except TimeoutError:
            action = Hang()
        return self._response(action, request)

    async def request_if(self, allowed: Callable[[], bool], method: str, path: str, **more: Any) -> Response:
        """Send if allowed, as production does, which checks again when credentials and a connection are available."""
        await asyncio.sleep(0)
        if not allowed():
            raise NotSent(f"{method} {path}: may not be sent any more")
        return await self.request(method, path, **more)

    async def _action(self, request: Request) -> Action:
        await asyncio.sleep(0)
        action = self.script(request)
        return action if isinstance(action, Answer | Stream | Reset | Hang) else await action

    def _response(self, action: Action, request: Request) -> Response:
        """Return the response of an action. Raises OutcomeUnknown if there is none."""
        if not isinstance(action, Answer) or action.cut is not None:
            raise OutcomeUnknown(f"{request.method} {request.target}: no whole answer")
        self.warm = True
        headers = Headers([(name.encode(), text.encode()) for name, text in action.headers.items()])
        return Response(action.status, content_of(action, request), headers)

    def start(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,
        answered: Answered,
    ) -> bool:
        if not self.warm or method == "GET":
            return False
        request = self._asked(method, path, body, content_type, timeout)
        action = self.script(request)
        assert isinstance(action, Answer | Reset | Hang), "what is started is answered by no coroutine"

        def over() -> None:
            try:
                answered(self._response(action, request))
            except OutcomeUnknown as unknown:
                answered(unknown)

        asyncio.get_running_loop().call_later(timeout if isinstance(action, Hang) else 0, over)
        return True

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        request = self._asked("GET", path, None, "", read_timeout)
        action = await self._action(request)
        if isinstance(action, Answer):
            raise StreamRefused(self._response(action, request))
        self.open += 1
        try:
            pieces = self._pieces(action, request, read_timeout)
            async with aclosing(pieces), aclosing(split_lines(pieces)) as lines:
                yield lines
        finally:
            self.open -= 1

    async def _pieces(self, action: Action, request: Request, silence: float) -> AsyncGenerator[bytes, None]:
        stream = action if isinstance(action, Stream) else Stream([], "hang" if isinstance(action, Hang) else "cut")
        try:
            for piece in stream.pieces:
                if isinstance(piece, bytes):
                    yield piece
                    await asyncio.sleep(0)
                else:
                    async with asyncio.timeout(silence):
                        await (asyncio.sleep(piece) if isinstance(piece, float) else piece.wait())
            if stream.end == "hang":
                await asyncio.sleep(silence)
        except TimeoutError:
            stream = replace(stream, end="hang")
        if stream.end != "clean":
            raise OutcomeUnknown(f"GET {request.target}: the stream ended: {stream.end}")

    async def close(self) -> None: ...


def answering(script: Script) -> tuple[ScriptedTransport, Transport]:
    """Return the transport twice: with its own type, and as a `Transport`."""
    made = ScriptedTransport(script)
    return made, made


def in_order(*actions: Action) -> Script:
    """Answer one request after the other; the last action repeats forever."""
    left = list(actions)
    return lambda _request: left.pop(0) if len(left) > 1 else left[0]


#: The response of a proxy in front of the API server, whatever the server did.
LOGIN_PAGE = Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"})


def by_method(**actions: list[Action]) -> Script:
    """Answer the requests of each method in the order of its list, whose last action repeats forever."""
    scripts = {method: in_order(*each) for method, each in actions.items()}
    return lambda request: scripts[request.method](request)


def always() -> bool:
    """Return True: the sender still wants the request."""
    return True


def status(code: int, reason: str = "", message: str = "", **details: Any) -> Answer:
    """Return a failure as an API server words it."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    body |= {"reason": reason, "message": message}
    if details:
        body["details"] = details
    return Answer(code, body)


class FakeTime:
    """A clock that only sleeping and the test advance. `slept` has every requested delay.

    In virtual time it is the loop's: setting `now` has the effect of a process that was stopped for that time.
    """

    def __init__(self, *, chance: float = 0.0) -> None:
        self._now = START
        self.slept: list[float] = []
        self.timing = Timing(clock=lambda: self.now, sleep=self.sleep, rng=lambda: chance)

    @property
    def now(self) -> float:
        loop = _virtual()
        return self._now if loop is None else loop.time()

    @now.setter
    def now(self, now: float) -> None:
        loop = _virtual()
        if loop is None:
            self._now = now
        else:
            loop.jump(now - loop.time())

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if _virtual() is None:
            self._now += seconds
        await asyncio.sleep(0 if _virtual() is None else seconds)


def _virtual() -> SimLoop | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if isinstance(loop, SimLoop) else None


async def eventually(condition: Callable[[], bool], *, seconds: float = 120.0) -> None:
    """Wait until the condition holds; a failing test ends here instead of hanging.

    In virtual time it checks at each moment with an event, for up to a day.
    """
    loop = _virtual()
    if loop is None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - what is waited for is not ours to signal
                await asyncio.sleep(0.002)
        return
    ends = loop.time() + 86_400
    while not await _after_turns(condition):
        due = loop.next_timer()
        assert due is not None and due < ends, "the awaited condition never becomes true"
        await asyncio.sleep(due - loop.time())


async def _after_turns(condition: Callable[[], bool]) -> bool:
    for _ in range(60):
        if condition():
            return True
        await asyncio.sleep(0)
    return condition()


@asynccontextmanager
async def running(work: Awaitable[Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Run a coroutine beside the test and cancel it at the end; raises its error."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    if isinstance(outcome, Exception):
        raise outcome
