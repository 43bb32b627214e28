"""The one way a request reaches a cluster: a small protocol, and its implementation on aiohttp.

Everything above talks to `Transport`, so the HTTP client can be replaced in this file alone. What callers rely on
is the meaning of a failure: `NotSent` promises that the server cannot have acted on the request, so it may be
repeated; `OutcomeUnknown` promises nothing, so a write has to be looked up before it is repeated. An answer of any
status is a `Response`; judging it is `kube.errors`' business.

Watches run on connections of their own and never take one from the pool that writes use.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import msgspec
from yarl import URL

#: Shorter than the 90 s after which a kube-apiserver closes an idle connection, so that ours gives up first and a
#: write is never started on a connection that is being closed.
KEEPALIVE_SECONDS = 30.0
#: An API object is at most a few MiB (etcd refuses 1.5 MiB by default); a line longer than this is no watch event.
MAX_LINE_BYTES = 64 * 1024 * 1024
#: How often a connection that was closed under us, before anything was written, is replaced by another.
_STALE_RETRIES = 8
#: A peer that vanished without a FIN is found by the kernel after roughly 30 + 3 x 10 s, as client-go's dialer does.
TCP_OPTIONS = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))


class TransportError(Exception):
    """No answer. The subclass says whether the request may have been carried out."""


class NotSent(TransportError):
    """The server provably did not receive the request: repeating it is safe."""


class OutcomeUnknown(TransportError):
    """The request went out and no whole answer came back (reset, timeout, cut body): it may have been carried out."""


class Response(msgspec.Struct, frozen=True):
    """An answer. `headers` is case-insensitive."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class StreamRefused(Exception):
    """A stream was answered by something else than 200; `response` is that answer."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"the server answered {response.status} to a watch")
        self.response = response


#: Is told what came of a request: its answer, or what `request` would have raised. Called once, from the event loop.
Answered = Callable[["Response | TransportError"], None]


def _never(
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    content_type: str = "application/json",
    timeout: float,
    answered: Answered,
) -> bool:
    """The `start` of a transport that has none."""
    return False


class Start(Protocol):
    """Sends a request at once and without a task, which a request to a warm connection does not need.

    False if that cannot be done just now: then nothing was sent, and `request` is the way. Else `answered` is told,
    never before this has returned. Raises what `request` raises for arguments that cannot be sent.
    """

    def __call__(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,
        answered: Answered,
    ) -> bool: ...


def start_of(transport: Transport) -> Start:
    """The `start` of a transport; transports need not have one."""
    start: Start = getattr(transport, "start", _never)
    return start


class Transport(Protocol):
    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109 - a deadline of the exchange, not of the caller's waiting
    ) -> Response:
        """Sends one request. `path` begins with a slash and is already percent-encoded; `timeout` in seconds.

        Raises NotSent or OutcomeUnknown, never anything else for what happens on the network.
        """
        ...

    def stream(
        self, path: str, *, read_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """A watch: iterates over batches of whole lines, one batch for each piece that arrived.

        What follows the last newline of a stream that ends cleanly is its last line. Raises StreamRefused if the
        answer is not 200, NotSent if no connection came about, and OutcomeUnknown while iterating if nothing came
        for `read_timeout` seconds or the connection broke.
        """
        ...

    async def close(self) -> None:
        """Closes all connections. Requests under way end in OutcomeUnknown."""
        ...


async def _no_headers() -> Mapping[str, str]:
    return {}


def _nothing() -> None:
    """The default for `Endpoint.refused`: credentials that cannot be renewed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an API server is and how to speak to it.

    `headers` gives the credentials for the next request, renewed as needed; `refused` is told of a 401, so that the
    next call of `headers` renews them whatever their expiry says. `source` names where all this was read.
    """

    base_url: str
    ssl_context: ssl.SSLContext | None = None
    headers: Callable[[], Awaitable[Mapping[str, str]]] = _no_headers
    refused: Callable[[], None] = _nothing
    server_hostname: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    source: str = "given URL"


class _Attempt:
    """What is known of the request under way. Owner: the task in `AiohttpTransport`; written by `_TrackedRequest`."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = False


_attempt: ContextVar[_Attempt] = ContextVar("agent_scheduler_attempt")


class _StaleConnection(Exception):
    """A pooled connection was closed by the server before this request wrote to it."""


class _ResentByLibrary(Exception):
    """aiohttp set out to repeat a write whose first sending may have been carried out."""


class _TrackedRequest(aiohttp.ClientRequest):
    """Notes the moment before the first byte is written, which is where `NotSent` ends.

    aiohttp repeats PUT and DELETE by itself when a reused connection breaks. A lease update that was carried out
    would then fail its own precondition, so only reads are let through a second time.
    """

    async def send(self, conn: Any) -> Any:
        attempt = _attempt.get()
        if attempt.sent and self.method != "GET":
            raise _ResentByLibrary
        if _closed_by_peer(conn.transport):
            raise _StaleConnection
        attempt.sent = True
        return await super().send(conn)


def _closed_by_peer(transport: asyncio.Transport | None) -> bool:
    """Whether the peer's FIN or RST has reached this machine, even if the event loop has not read it yet."""
    if transport is None or transport.is_closing():
        return True
    sock = transport.get_extra_info("socket")
    hangup = getattr(select, "POLLRDHUP", 0)
    if sock is None or not hangup:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), hangup)
    return bool(poll.poll(0))


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, proto, _, _ = address
    sock = socket.socket(family, kind, proto)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in TCP_OPTIONS:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


#: What aiohttp raises before a connection exists. ConnectionTimeoutError also covers waiting for the pool.
_BEFORE_SENDING = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientProxyConnectionError,
)


class AiohttpTransport:
    """`Transport` on two aiohttp sessions: a bounded pool for requests, unpooled connections for watches.

    `pool_size` bounds the requests under way; more wait for a connection, and time spent waiting counts towards
    their timeout. `observe(method, status)` is told of each exchange, status 0 being a transport error.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        pool_size: int = 64,
        keepalive: float = KEEPALIVE_SECONDS,
        connect_timeout: float = 10.0,
        user_agent: str = "agent-scheduler",
        observe: Callable[[str, int], None] | None = None,
    ) -> None:
        if pool_size < 1:
            raise ValueError(f"pool_size must be at least 1, not {pool_size}")
        self._endpoint = endpoint
        self._base = endpoint.base_url.rstrip("/")
        self._keepalive = keepalive
        self._connect_timeout = connect_timeout
        self._observe = observe
        # `identity`: a compressed watch is buffered by whoever compresses it, and lists cost more CPU than they save.
        self._common = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": user_agent}
        self._writes = self._session(pool_size)
        self._watches = self._session(0)

    def _session(self, limit: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limit,
            keepalive_timeout=self._keepalive,
            ssl=self._endpoint.ssl_context or True,
            socket_factory=_open_socket,
            ttl_dns_cache=30,
        )
        return aiohttp.ClientSession(
            connector=connector,
            request_class=_TrackedRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._common,
            raise_for_status=False,
            trust_env=False,
        )

    async def _send(
        self, session: aiohttp.ClientSession, method: str, path: str, **options: Any
    ) -> aiohttp.ClientResponse:
        """The status line and headers of an answer. Raises NotSent or OutcomeUnknown."""
        if session.closed:
            raise NotSent(f"{method} {path}: the transport is closed")
        url = URL(self._base + path, encoded=True)
        headers = options.pop("headers", {})
        for _ in range(_STALE_RETRIES):
            attempt = _Attempt()
            token = _attempt.set(attempt)
            try:
                return await session.request(
                    method,
                    url,
                    headers={**headers, **await self._endpoint.headers()},
                    allow_redirects=False,
                    proxy=self._endpoint.proxy,
                    server_hostname=self._endpoint.server_hostname,
                    **options,
                )
            except _StaleConnection:
                continue
            except _ResentByLibrary as error:
                raise OutcomeUnknown(
                    f"{method} {path}: the connection broke before an answer came"
                ) from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                what = f"{method} {path}: {type(error).__name__}: {error}"
                if isinstance(error, _BEFORE_SENDING) or not attempt.sent:
                    raise NotSent(what) from error
                raise OutcomeUnknown(what) from error
            finally:
                _attempt.reset(token)
        raise NotSent(f"{method} {path}: {_STALE_RETRIES} connections in a row were closed before use")

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, self._connect_timeout))
        headers = {"Content-Type": content_type} if body is not None else {}
        try:
            answer = await self._send(self._writes, method, path, data=body, headers=headers, timeout=limits)
            async with answer:
                try:
                    content = await answer.read()
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    raise OutcomeUnknown(f"{method} {path}: the answer was cut: {error!r}") from error
        except TransportError:
            self._seen(method, 0)
            raise
        self._seen(method, answer.status)
        return Response(answer.status, content, answer.headers)

    def _seen(self, method: str, status: int) -> None:
        if status == 401:
            self._endpoint.refused()
        if self._observe is not None:
            self._observe(method, status)

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout, sock_read=read_timeout)
        try:
            answer = await self._send(self._watches, "GET", path, timeout=limits)
        except TransportError:
            self._seen("WATCH", 0)
            raise
        try:
            self._seen("WATCH", answer.status)
            if answer.status != 200:
                try:
                    # Not wait_for, which before Python 3.12 loses a cancellation that comes with the answer.
                    async with asyncio.timeout(self._connect_timeout):
                        content = await answer.read()
                except (aiohttp.ClientError, TimeoutError, OSError):
                    content = b""
                raise StreamRefused(Response(answer.status, content, answer.headers))
            async with aclosing(_chunks(answer, path)) as chunks, aclosing(split_lines(chunks)) as lines:
                yield lines
        finally:
            # Closed, not released: the rest of a watch that was left early cannot be drained. Aborted before, since
            # over TLS closing waits for the peer, which nobody here would wait for: the socket would be left open.
            connection = answer.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
            answer.close()

    async def close(self) -> None:
        await self._watches.close()
        await self._writes.close()


async def _chunks(answer: aiohttp.ClientResponse, path: str) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise OutcomeUnknown(f"GET {path}: the stream broke: {type(error).__name__}: {error}") from error


async def split_lines(
    chunks: AsyncIterator[bytes], *, limit: int = MAX_LINE_BYTES
) -> AsyncGenerator[list[bytes], None]:
    """Cuts pieces of any size into batches of whole lines, without the newline and without empty lines.

    The pieces of a long line are joined once, so a line costs its length, however many pieces it came in. Raises
    OutcomeUnknown for a line longer than `limit` bytes.
    """
    parts: list[bytes] = []
    held = 0
    async for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        if lines:
            if parts:
                parts.append(lines[0])
                lines[0] = b"".join(parts)
                parts, held = [], 0
            yield [line for line in lines if line]
        if rest:
            parts.append(rest)
            held += len(rest)
            if held > limit:
                raise OutcomeUnknown(f"a line of the stream is longer than {limit} bytes")
    if parts:
        yield [b"".join(parts)]
