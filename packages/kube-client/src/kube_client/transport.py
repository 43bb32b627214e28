"""The protocol for requests to a cluster, and the types that its callers share.

Everything above uses `Transport`; `http1` is its implementation. Callers rely on the meaning of failures: after
`NotSent` the server cannot have acted on the request, so it may be repeated; after `OutcomeUnknown` it may have, so a
write must be looked up before it is repeated. A response of any status is a `Response`; `errors` classifies it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote

import msgspec

#: Matches names that need no quoting in a path: all object names that the API server allows, except for a few kinds.
_stands_for_itself = re.compile(r"[A-Za-z0-9_.~-]+").fullmatch


def segment(name: str) -> str:
    """Return `name` as one segment of a path. It is called several times per pod, so plain names have a fast path."""
    return name if _stands_for_itself(name) else quote(name, safe="")


class PodKey(NamedTuple):
    namespace: str
    name: str
    uid: str


class PodIdentifier(Protocol):
    """Anything that identifies a pod."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


def pod_path(pod: PodIdentifier) -> str:
    return f"/api/v1/namespaces/{segment(pod.namespace)}/pods/{segment(pod.name)}"


def collection_at(path: str) -> tuple[str, str]:
    """Return the path of the version and the plural kind, from the path of a collection, object or subresource."""
    parts = path.partition("?")[0].split("/")
    at = 3 if parts[1] == "api" else 4
    rest = _in_namespace(parts[at:])
    return "/".join(parts[:at]), rest[0]


def object_at(path: str) -> tuple[str, str]:
    """Return the plural kind and the name, from the path of an object or its subresource."""
    parts = path.split("/")
    rest = _in_namespace(parts[3 if parts[1] == "api" else 4 :])
    return rest[0], unquote(rest[1])


def _in_namespace(rest: list[str]) -> list[str]:
    """Return what follows the namespace, if the path has one."""
    return rest[2:] if rest[0] == "namespaces" and len(rest) > 2 else rest


class TransportError(Exception):
    """There is no response. The subclass says whether the request may have been carried out."""


class NotSent(TransportError):
    """The server cannot have received the request: repeating it is safe."""


class OutcomeUnknown(TransportError):
    """The request was sent without a complete response (reset, timeout, cut body): it may have been carried out."""


@lru_cache(maxsize=64)
def _lowered(name: str) -> bytes:
    return name.lower().encode("utf-8", "surrogateescape")


class Headers(Mapping[str, str]):
    """The headers of a response, case-insensitive; of several with one name the first counts.

    Values are decoded on access. `raw` has the lines as they arrived, so a caller that checks every response can
    compare them directly.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self.raw = raw

    def __getitem__(self, name: str) -> str:
        wanted = _lowered(name)
        for key, value in self.raw:
            if key.lower() == wanted:
                return value.strip(b" \t").decode("utf-8", "surrogateescape")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key.decode("latin-1").lower() for key, _ in self.raw))

    def __len__(self) -> int:
        return len({key.lower() for key, _ in self.raw})

    def __repr__(self) -> str:
        return f"Headers({dict(self)})"


class Response(msgspec.Struct, frozen=True):
    """A response. `headers` is case-insensitive."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class StreamRefused(Exception):
    """A stream got `response`, whose status is not 200."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"the server answered {response.status} to a watch")
        self.response = response


#: Receives the result of a request: its response, or the exception of `request`. Called once, from the event loop.
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
    """Send nothing; for a transport without a `start`."""
    return False


class Start(Protocol):
    """Sends a request immediately, without the task that is unnecessary on a warm connection.

    Return false if that is impossible right now: then nothing was sent, and `request` must be used. Otherwise
    `answered` is called, never before this has returned. Raises the exceptions of `request` for invalid arguments.
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
    """Return the `start` of a transport, which is optional."""
    start: Start = getattr(transport, "start", _never)
    return start


class RequestIf(Protocol):
    """`Transport.request` that is sent only if `allowed` returns true immediately before sending.

    Credentials and a connection are available by then, and nothing is awaited between the check and the first byte.
    Raises NotSent if it returns false.
    """

    async def __call__(
        self,
        allowed: Callable[[], bool],
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109 - a deadline of the exchange, not of the caller's waiting
    ) -> Response: ...


def request_if_of(transport: Transport) -> RequestIf | None:
    """Return the `request_if` of a transport, or None: a `request` that sends immediately needs none."""
    asked: RequestIf | None = getattr(transport, "request_if", None)
    return asked


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
        """Send one request. `path` begins with a slash and is percent-encoded; `timeout` is in seconds.

        Raises only NotSent or OutcomeUnknown for network failures.
        """
        ...

    def stream(self, path: str, *, read_timeout: float) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """Open a watch: iterate over batches of whole lines, one batch for each piece that arrived.

        If a stream ends cleanly, the text after its last newline is the last line. Raises StreamRefused if the status
        is not 200, NotSent if no connection could be made, and OutcomeUnknown during the iteration if nothing arrives
        for `read_timeout` seconds or the connection breaks.
        """
        ...

    async def close(self) -> None:
        """Close all connections. Requests in progress end with OutcomeUnknown."""
        ...


_READS = frozenset({"GET", "HEAD"})


def _always() -> bool:
    return True


class FencedTransport:
    """`transport`, but writes raise NotSent while `allowed` returns false. Reads and watches always pass.

    Losing a lease cancels a leader's work, but a process that was stopped for long (SIGSTOP, a suspended machine) may
    wake up in the middle of that work. So `allowed` is checked at every write, and again immediately before sending,
    since the steps in between (credentials, a free connection) may take longer than the lease lasts.
    """

    def __init__(self, transport: Transport, allowed: Callable[[], bool]) -> None:
        self._transport = transport
        self._allowed = allowed
        self._start = start_of(transport)
        self._request_if = request_if_of(transport)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109 - a deadline of the exchange, not of the caller's waiting
    ) -> Response:
        return await self.request_if(_always, method, path, body=body, content_type=content_type, timeout=timeout)

    async def request_if(
        self,
        allowed: Callable[[], bool],
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        """Send as `RequestIf` does; for reads only `allowed` counts."""
        is_read = method in _READS
        if not is_read and not self._allowed():
            raise NotSent(f"{method} {path}: this process does not lead")
        if self._request_if is None:
            if not allowed():
                raise NotSent(f"{method} {path}: this is no longer allowed")
            return await self._transport.request(method, path, body=body, content_type=content_type, timeout=timeout)
        return await self._request_if(
            allowed if is_read else lambda: self._allowed() and allowed(),
            *(method, path),
            body=body,
            content_type=content_type,
            timeout=timeout,
        )

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
        if method not in _READS and not self._allowed():
            return False
        return self._start(method, path, body=body, content_type=content_type, timeout=timeout, answered=answered)

    def stream(self, path: str, *, read_timeout: float) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        return self._transport.stream(path, read_timeout=read_timeout)

    async def close(self) -> None:
        """Do nothing: the inner transport belongs to its creator."""


async def no_credentials() -> Mapping[str, str]:
    """Return no headers; the default of `Endpoint.headers`."""
    return {}


def nothing_to_renew() -> None:
    """Do nothing; the default of `Endpoint.refused` and `Endpoint.unverified`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of an API server and how to connect to it.

    `headers` returns the credentials for the next request, renewed as needed. `refused` is called after a 401, so
    that they are renewed regardless of their expiry. `ssl_context` is the TLS context, or a function that returns the
    current one; when that is a new object, older connections are closed. `unverified` is called after a failed TLS
    handshake. `proxy` is a URL, possibly with a user and a password. `source` names where these settings were read.
    """

    base_url: str
    ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None
    headers: Callable[[], Awaitable[Mapping[str, str]]] = no_credentials
    refused: Callable[[], None] = nothing_to_renew
    unverified: Callable[[], None] = nothing_to_renew
    server_hostname: str | None = None
    proxy: str | None = field(default=None, repr=False)
    namespace: str = "default"
    source: str = "given URL"
