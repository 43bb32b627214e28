"""`Transport` at the cost that a bind can bear: short requests on bare HTTP/1.1 connections.

Two requests a pod, a bind and an event, are most of what a scheduler sends, and through a general HTTP client each
costs several times what deciding on the pod does (`bench/transport_cost.py` measures it, docs/decisions/0005 says
what follows). So requests go through `kube.connection_pool`, one write and one parse each; watches, of which there
are few and where parsing is a small part, stay with `AiohttpTransport`, and so does all that goes through a proxy.

The meaning of a failure is that of `kube.transport`: NotSent until the first byte of a request is written,
OutcomeUnknown from then on until its answer is whole. Nothing is written twice, but for a GET or HEAD on a reused
connection that broke before an answer began.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from urllib.parse import urlsplit

from agent_scheduler.kube.connection import Broken, Connection, Limits
from agent_scheduler.kube.connection_pool import Address, ConnectionPool, NoConnection
from agent_scheduler.kube.transport import (
    KEEPALIVE_SECONDS,
    AiohttpTransport,
    Answered,
    Endpoint,
    NotSent,
    OutcomeUnknown,
    Response,
    TransportError,
)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: Requests that change nothing, so that sending one twice does no harm.
_SAFE = frozenset({"GET", "HEAD"})
#: So long a started request takes the credentials of the last awaited one. Asking for them may have to wait.
_CREDENTIALS_SECONDS = 1.0
#: Methods whose requests say their length even if it is zero (RFC 9110, 8.6).
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})


# Both are asked twice a pod, so they do without patterns.


def _is_method(method: str) -> bool:
    return method.isascii() and method.isalpha() and method.isupper()


def _is_target(path: str) -> bool:
    """Whether it may stand in a request's line: ASCII that can be seen."""
    return path[:1] == "/" and " " not in path and path.isascii() and path.isprintable()


def _header_line(name: str, value: str) -> bytes:
    """One line of a head. Raises ValueError for what would end the line, and with it the head, early."""
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a header")
    if _CONTROL.search(value):
        raise ValueError(f"the value of the header {name} contains a control character")
    return f"{name}: {value}\r\n".encode()


@lru_cache(maxsize=32)
def _content_type_line(content_type: str) -> bytes:
    return _header_line("Content-Type", content_type)


def _address(endpoint: Endpoint) -> tuple[Address, str, str]:
    """Where to connect, what to call it in `Host`, and what comes before every path. Raises ValueError."""
    url = endpoint.base_url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"base_url {url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(f"base_url {url!r}: expected http://HOST[:PORT][/PATH] or https://...")
    if parts.query or parts.fragment:
        raise ValueError(f"base_url {url!r}: a query or fragment has no place in it")
    prefix = parts.path.rstrip("/")
    if not _is_target(f"{prefix}/"):
        raise ValueError(f"base_url {url!r}: its path is not percent-encoded")
    host = parts.hostname
    usual = 443 if parts.scheme == "https" else 80
    tls: ssl.SSLContext | None = None
    if parts.scheme == "https":
        tls = endpoint.ssl_context or ssl.create_default_context()
    address = Address(
        host=host,
        port=port or usual,
        tls=tls,
        server_hostname=endpoint.server_hostname or host.rstrip("."),
    )
    if ":" in host:
        # A zone says which of this machine's interfaces leads there; it means nothing to the server.
        named = f"[{host.partition('%')[0]}]"
    else:
        named = host if host.isascii() else host.encode("idna").decode()
    return address, named if address.port == usual else f"{named}:{address.port}", prefix


class Http1Transport:
    """`Transport` on a bounded pool of bare connections for requests, and `AiohttpTransport` for watches.

    Takes what `AiohttpTransport` takes and behaves alike. `pool_size` bounds the requests under way; more wait for
    a connection, first come, first served, and time spent waiting counts towards their timeout.
    `observe(method, status)` is told of each exchange, status 0 being a transport error. `limits` bounds an answer;
    one that is larger is no whole answer. Has to be made and used in one running event loop.
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
        limits: Limits | None = None,
    ) -> None:
        if pool_size < 1:
            raise ValueError(f"pool_size must be at least 1, not {pool_size}")
        address, host, self._prefix = _address(endpoint)
        self._endpoint = endpoint
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._common = {
            "Host": host,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": user_agent,
        }
        #: The head's lines of the credentials given last. Invariant: `_lines` is what `_render` makes of `_given`.
        self._given: dict[str, str] = {}
        #: In the loop's time: how long they may be used without asking for them. Not after they were refused.
        self._given_until = 0.0
        self._lines = self._render(self._given)
        self._pool = ConnectionPool(
            address,
            size=pool_size,
            keepalive=keepalive,
            connect_timeout=connect_timeout,
            limits=limits or Limits(),
        )
        self._proxied = endpoint.proxy is not None
        self._general = AiohttpTransport(
            endpoint,
            pool_size=pool_size,
            keepalive=keepalive,
            connect_timeout=connect_timeout,
            user_agent=user_agent,
            observe=observe,
        )

    def _render(self, given: Mapping[str, str]) -> bytes:
        """The lines of a head that do not depend on the request; a given header replaces a common one."""
        names = {name.lower() for name in given}
        kept = {name: value for name, value in self._common.items() if name.lower() not in names}
        return b"".join(_header_line(name, value) for name, value in {**kept, **given}.items())

    def _message(
        self, method: str, path: str, body: bytes | None, content_type: str, given: Mapping[str, str]
    ) -> bytes:
        """A request as it is written. Raises ValueError if it cannot be one."""
        if not _is_method(method) or not _is_target(path):
            raise ValueError(
                f"{method} {path!r}: expected a method and a percent-encoded path with its slash"
            )
        line = f"{method} {self._prefix}{path} HTTP/1.1\r\n"
        # Compared by value: nothing forbids a source of credentials to change the mapping that it gave.
        if given != self._given:
            self._lines, self._given = self._render(given), dict(given)
        if body is not None:
            length = b"Content-Length: %d\r\n\r\n" % len(body)
            return b"".join((line.encode(), self._lines, _content_type_line(content_type), length, body))
        end = b"Content-Length: 0\r\n\r\n" if method in _WITH_LENGTH else b"\r\n"
        return b"".join((line.encode(), self._lines, end))

    async def _exchange(self, method: str, message: bytes, seconds: float) -> Response:
        """Raises NoConnection or Broken; a Broken that is raised leaves the outcome unknown."""
        pool = self._pool
        deadline = self._loop.time() + seconds
        connection = pool.take()
        if connection is None:
            connection = await pool.acquire(deadline)
        while True:
            repeat = False
            reused = connection.served > 0
            answer: asyncio.Future[Response] = self._loop.create_future()
            connection.send(message, deadline, answer, head_only=method == "HEAD")
            if deadline < pool.alarm_at:
                pool.set_alarm(deadline)
            try:
                return await answer
            except Broken as error:
                repeat = error.unanswered and reused and method in _SAFE
                if not repeat:
                    raise
            finally:
                if not repeat:
                    pool.release(connection)
            # Not a reused one again: what closed this connection has most likely closed the other idle ones.
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
        """As `Transport.request`. Raises ValueError for a method, path or header that cannot be sent."""
        if self._proxied:
            return await self._general.request(
                method, path, body=body, content_type=content_type, timeout=timeout
            )
        try:
            given = await self._endpoint.headers()
            self._given_until = self._loop.time() + _CREDENTIALS_SECONDS
            message = self._message(method, path, body, content_type, given)
            response = await self._exchange(method, message, timeout)
        except TransportError:
            self._seen(method, 0)
            raise
        except NoConnection as error:
            self._seen(method, 0)
            raise NotSent(f"{method} {path}: {error} (timeout {timeout:g} s)") from error
        except Broken as error:
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
        """As `kube.transport.Start`: where the credentials given last are fresh and a connection is idle.

        A request that may be repeated is left to `request`, which knows how."""
        now = self._loop.time()
        if method in _SAFE or self._proxied or now >= self._given_until:
            return False
        message = self._message(method, path, body, content_type, self._given)
        connection = self._pool.take()
        if connection is None:
            return False
        deadline = now + timeout
        connection.send(message, deadline, _Started(self, connection, method, path, timeout, answered))
        if deadline < self._pool.alarm_at:
            self._pool.set_alarm(deadline)
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

    def stream(
        self, path: str, *, read_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        return self._general.stream(path, read_timeout=read_timeout)

    async def close(self) -> None:
        try:
            await self._pool.close()
        finally:
            await self._general.close()


class _Started:
    """Stands in for the future of a request that nobody awaits."""

    __slots__ = ("_answered", "_client", "_connection", "_method", "_path", "_timeout")

    def __init__(
        self,
        client: Http1Transport,
        connection: Connection,
        method: str,
        path: str,
        timeout: float,
        answered: Answered,
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
        self._client._ended(self._connection, self._method, response.status)
        self._answered(response)

    def set_exception(self, error: Broken, /) -> None:
        self._client._ended(self._connection, self._method, 0)
        what = f"{self._method} {self._path}: {error} (timeout {self._timeout:g} s)"
        self._answered(OutcomeUnknown(what))
