"""A `Transport` on bare HTTP/1.1 connections, cheap enough for binds.

Two requests per pod, a bind and an event, are most of a scheduler's traffic, and with a general HTTP client each
costs several times what the decision on the pod does (measured by `bench/transport_cost.py`; see
docs/decisions/0005). Requests therefore use `connection_pool`, with one write and one parse each. Watches have
their own connections and never take one from the pool.

Failures have the meaning of `transport`: NotSent until the first byte of a request is written, OutcomeUnknown
from then until the response is complete. Nothing is sent twice, except a GET or HEAD on a reused connection that
broke before a response began.

`request_if` checks whether a write is still allowed after everything that takes time: credentials, a free connection,
the TLS handshake. Nothing is awaited between the check and the write.

Sockets are used in one place, `dial` (`dial.Dial`): given an `Address` and a protocol, it opens a connection and
calls the protocol's `connection_made` with an `asyncio.Transport`, or raises OSError. Another implementation can
replace the network: nothing else here needs a loop with sockets, and all time is the loop's.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from typing import Self

from kube_client.address import is_target, target_of
from kube_client.connection import Connection, ConnectionBroken
from kube_client.connection_pool import ConnectionPool, ConnectionTimes, NoConnection
from kube_client.dial import Dial, Dialer
from kube_client.streamed import StreamedBody
from kube_client.transport import (
    Answered,
    Endpoint,
    NotSent,
    OutcomeUnknown,
    Response,
    StreamRefused,
    TransportError,
    no_credentials,
)

_TIMES = ConnectionTimes()

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: Requests without effect, which may be sent twice.
_SAFE = frozenset({"GET", "HEAD"})
#: Seconds for which the last credentials are used without calling their source, which may have to wait.
_CREDENTIALS_SECONDS = 1.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
#: Methods whose requests have a Content-Length even if it is zero (RFC 9110, 8.6).
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})


def _header_line(name: str, value: str) -> bytes:
    """Return one line of a head. Raises ValueError for characters that would end the line early."""
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a header")
    if _CONTROL.search(value):
        raise ValueError(f"the value of the header {name} contains a control character")
    return f"{name}: {value}\r\n".encode()


@lru_cache(maxsize=32)
def _content_type_line(content_type: str) -> bytes:
    return _header_line("Content-Type", content_type)


class Http1Transport:
    """A `Transport` with a bounded pool of connections for requests, and one connection for each watch.

    `pool_size` limits concurrent requests; others wait for a connection in order of arrival. Waiting, also for
    credentials, counts towards their timeout. `observe(method, status)` is called for each exchange, with status 0
    for a transport error. `rng` spreads the ends of connections. It has to be created and used in one running event
    loop. Raises ValueError for an endpoint without server.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        pool_size: int = 64,
        times: ConnectionTimes = _TIMES,
        user_agent: str = "kube-client",
        observe: Callable[[str, int], None] | None = None,
        dial: Dial | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if pool_size < 1:
            raise ValueError(f"pool_size must be at least 1, not {pool_size}")
        self._endpoint = endpoint
        tls = endpoint.ssl_context
        #: Returns the TLS context for new connections, if it can change.
        self._tls: Callable[[], ssl.SSLContext] | None = None
        if not endpoint.base_url.lower().startswith("https:"):
            tls = None
        elif callable(tls):
            self._tls, tls = tls, tls()
        elif tls is None:
            tls = ssl.create_default_context()
        target = target_of(endpoint, tls)
        self._prefix = target.prefix
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._connect_timeout = times.connect_timeout
        self._head_timeout = times.head_timeout
        # `identity`: a compressed watch is buffered by the compressor, and compressed lists cost more CPU than they
        # save.
        self._common = {
            "Host": target.host,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": user_agent,
            **target.headers,
        }
        #: The head lines with the last credentials. Invariant: `_lines` is the result of `_render` for `_given`.
        self._given: dict[str, str] = {}
        #: Loop time until which they may be used without calling their source; in the past after they were rejected.
        self._given_until = 0.0
        #: Seconds for which credentials are used.
        self._keeps = _CREDENTIALS_SECONDS
        if endpoint.headers is no_credentials and self._tls is None:
            self._keeps = self._given_until = math.inf
        self._lines = self._render(self._given)
        self._pool = ConnectionPool(
            target.address, size=pool_size, times=times, dial=dial or Dialer(), rng=rng or random.Random()
        )

    def _render(self, given: Mapping[str, str]) -> bytes:
        """Return the head lines that do not depend on the request. A given header replaces a common one."""
        names = {name.lower() for name in given}
        kept = {name: value for name, value in self._common.items() if name.lower() not in names}
        return b"".join(_header_line(name, value) for name, value in {**kept, **given}.items())

    def _message(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        """Return the bytes of a request. Raises ValueError for an invalid method or path."""
        if method not in _METHODS or not is_target(path):
            raise ValueError(
                f"{method} {path!r}: expected a method of the API and a percent-encoded path with its slash"
            )
        line = f"{method} {self._prefix}{path} HTTP/1.1\r\n"
        if body is not None:
            length = b"Content-Length: %d\r\n\r\n" % len(body)
            return b"".join((line.encode(), self._lines, _content_type_line(content_type), length, body))
        end = b"Content-Length: 0\r\n\r\n" if method in _WITH_LENGTH else b"\r\n"
        return b"".join((line.encode(), self._lines, end))

    async def _authenticate(self, deadline: float) -> None:
        """Ensure that `_lines` has valid credentials. Raises NotSent."""
        if self._loop.time() < self._given_until:
            return
        try:
            async with asyncio.timeout_at(deadline):
                given = await self._endpoint.headers()
        except TimeoutError:
            raise NotSent("no credentials were available in time") from None
        # Compared by value, because a source may change a mapping that it returned.
        if given != self._given:
            try:
                self._lines = self._render(given)
            except ValueError as error:
                raise NotSent(f"the credentials cannot be sent: {error}") from None
            self._given = dict(given)
        if self._tls is not None:
            self._pool.use(self._tls())
        self._given_until = self._loop.time() + self._keeps

    async def _exchange(
        self, method: str, message: bytes, deadline: float, allowed: Callable[[], bool] | None
    ) -> Response:
        """Send a request. Raises NotSent, NoConnection or ConnectionBroken; after the last the outcome is unknown."""
        pool = self._pool
        connection = pool.take()
        if connection is None:
            connection = await pool.acquire(deadline)
        while True:
            repeat = False
            reused = connection.served > 0
            answer: asyncio.Future[Response] = self._loop.create_future()
            try:
                if allowed is not None and not allowed():
                    raise NotSent("this process may no longer write")
                connection.send(message, deadline, answer, head_only=method == "HEAD")
                pool.watch_deadline(deadline)
                response = await answer
                if response.status == 401:
                    connection.retire()
                return response
            except ConnectionBroken as error:
                repeat = error.unanswered and reused and method in _SAFE
                if not repeat:
                    raise
            finally:
                if not repeat:
                    pool.release(connection)
            # No other reused connection, because the other idle ones were most likely closed as well.
            connection = await pool.renew(connection, deadline)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        """Send a request as `Transport.request` does. Raises ValueError for an invalid method or path."""
        return await self.request_if(None, method, path, body=body, content_type=content_type, timeout=timeout)

    async def request_if(
        self,
        allowed: Callable[[], bool] | None,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        """Send a request as `kube_client.transport.RequestIf` does; without `allowed`, as `request` does."""
        deadline = self._loop.time() + timeout
        try:
            await self._authenticate(deadline)
            message = self._message(method, path, body, content_type)
            response = await self._exchange(method, message, deadline, allowed)
        except TransportError as error:
            self._seen(method, 0)
            raise type(error)(f"{method} {path}: {error}") from error
        except NoConnection as error:
            self._unconnected(method, error)
            raise NotSent(f"{method} {path}: {error} (timeout {timeout:g} s)") from error
        except ConnectionBroken as error:
            self._seen(method, 0)
            raise OutcomeUnknown(f"{method} {path}: {error} (timeout {timeout:g} s)") from error
        self._seen(method, response.status)
        return response

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
        """Send a request as `kube_client.transport.Start` does, if the credentials are fresh and a connection is idle.

        Repeatable requests are left to `request`, which repeats them.
        """
        now = self._loop.time()
        if method in _SAFE or now >= self._given_until:
            return False
        message = self._message(method, path, body, content_type)
        connection = self._pool.take()
        if connection is None:
            return False
        deadline = now + timeout
        connection.send(message, deadline, _Started(self, connection, method, path, timeout, answered))
        if deadline < self._pool.alarm_at:
            self._pool.watch_deadline(deadline)
        return True

    def _ended(self, connection: Connection, method: str, status: int) -> None:
        self._pool.release(connection)
        self._seen(method, status)

    def _seen(self, method: str, status: int) -> None:
        if status == 401:
            self._given_until = 0.0
            self._endpoint.refused()
        if self._observe is not None:
            self._observe(method, status)

    def _unconnected(self, method: str, error: NoConnection) -> None:
        self._seen(method, 0)
        if isinstance(error.__cause__, ssl.SSLError):
            self._given_until = 0.0
            self._endpoint.unverified()

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        connection: Connection | None = None
        try:
            try:
                deadline = self._loop.time() + self._connect_timeout
                await self._authenticate(deadline)
                message = self._message("GET", path, None, "")
                connection = await self._pool.open(deadline)
                body = StreamedBody(self._pool, connection, silence=read_timeout)
                answer: asyncio.Future[Response] = self._loop.create_future()
                limit = min(read_timeout, self._head_timeout)
                deadline = self._loop.time() + limit
                connection.send(message, deadline, answer, inflow=body)
                self._pool.watch_deadline(deadline)
                response = await answer
                body.answered()
            except TransportError as error:
                self._seen("WATCH", 0)
                raise type(error)(f"GET {path}: {error}") from error
            except NoConnection as error:
                self._unconnected("WATCH", error)
                raise NotSent(f"GET {path}: {error}") from error
            except ConnectionBroken as error:
                self._seen("WATCH", 0)
                raise OutcomeUnknown(f"GET {path}: {error} (timeout {limit:g} s)") from error
            self._seen("WATCH", response.status)
            if response.status != 200:
                raise StreamRefused(response)
            async with aclosing(body.lines(path)) as lines:
                yield lines
        finally:
            # The rest of a watch that was left early cannot be read.
            if connection is not None:
                connection.abort()

    async def close(self) -> None:
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Started:
    """Replaces the future of a request that is not awaited."""

    __slots__ = ("_answered", "_client", "_connection", "_method", "_path", "_timeout")

    def __init__(
        self, client: Http1Transport, connection: Connection, method: str, path: str, timeout: float, answered: Answered
    ) -> None:
        self._client = client
        self._connection = connection
        self._method = method
        self._path = path
        self._timeout = timeout
        self._answered = answered

    def done(self) -> bool:
        return False

    def set_result(self, response: Response, /) -> None:
        if response.status == 401:
            self._connection.retire()
        self._client._ended(self._connection, self._method, response.status)
        self._answered(response)

    def set_exception(self, error: ConnectionBroken, /) -> None:
        self._client._ended(self._connection, self._method, 0)
        what = f"{self._method} {self._path}: {error} (timeout {self._timeout:g} s)"
        self._answered(OutcomeUnknown(what))
