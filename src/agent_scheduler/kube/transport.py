"""The one way a request reaches a cluster: a small protocol, and what everybody who sends or judges has to know of it.

Everything above talks to `Transport`; `kube.http1` is its implementation. What callers rely on is the meaning of a
failure: `NotSent` promises that the server cannot have acted on the request, so it may be repeated; `OutcomeUnknown`
promises nothing, so a write has to be looked up before it is repeated. An answer of any status is a `Response`; judging
it is `kube.errors`' business.
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

#: Matches names that stand for themselves in a path: all that the API server lets objects have, but for a few kinds.
_stands_for_itself = re.compile(r"[A-Za-z0-9_.~-]+").fullmatch


def segment(name: str) -> str:
    """`name` as one segment of a path. Asked several times a pod, so names that need nothing are only looked at."""
    return name if _stands_for_itself(name) else quote(name, safe="")


class PodKey(NamedTuple):
    namespace: str
    name: str
    uid: str


class Named(Protocol):
    """Whatever says which pod it is."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


def pod_path(pod: Named) -> str:
    return f"/api/v1/namespaces/{segment(pod.namespace)}/pods/{segment(pod.name)}"


def collection_at(path: str) -> tuple[str, str]:
    """Of a path to a collection, an object or a subresource: the path of its version, and its kind in the plural."""
    parts = path.partition("?")[0].split("/")
    at = 3 if parts[1] == "api" else 4
    rest = _in_namespace(parts[at:])
    return "/".join(parts[:at]), rest[0]


def object_at(path: str) -> tuple[str, str]:
    """Of a path to an object, or to a subresource of it: its kind in the plural, and its name."""
    parts = path.split("/")
    rest = _in_namespace(parts[3 if parts[1] == "api" else 4 :])
    return rest[0], unquote(rest[1])


def _in_namespace(rest: list[str]) -> list[str]:
    """What follows the namespace, if the path leads into one."""
    return rest[2:] if rest[0] == "namespaces" and len(rest) > 2 else rest


class TransportError(Exception):
    """No answer. The subclass says whether the request may have been carried out."""


class NotSent(TransportError):
    """The server provably did not receive the request: repeating it is safe."""


class OutcomeUnknown(TransportError):
    """The request went out and no whole answer came back (reset, timeout, cut body): it may have been carried out."""


@lru_cache(maxsize=64)
def _lowered(name: str) -> bytes:
    return name.lower().encode("utf-8", "surrogateescape")


class Headers(Mapping[str, str]):
    """The headers of an answer, case-insensitive; of several with one name the first counts.

    Nothing is decoded before it is asked for. `raw` are the lines as they came, which who asks of every answer can
    compare as they are.
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


class RequestIf(Protocol):
    """`Transport.request` that is sent only if `allowed` says yes at the very moment of sending: whatever had to be
    waited for (credentials, a connection) is there, and nothing is awaited between the question and the first byte.
    Raises NotSent if it says no."""

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
    """The `request_if` of a transport, or None: one whose `request` sends at once needs none."""
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


_READS = frozenset({"GET", "HEAD"})


def _always() -> bool:
    return True


class FencedTransport:
    """`transport`, on which writes raise NotSent while `allowed` says no. Reads and watches always pass.

    Losing a lease cancels the work of a leader, but a process that was stopped for long (SIGSTOP, a suspended machine)
    may wake up in the middle of that work. So `allowed` is asked at every write, and once more at the moment of
    sending, since what comes before (credentials, a free connection) may take longer than the lease lasts.
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
        return await self.request_if(
            _always, method, path, body=body, content_type=content_type, timeout=timeout
        )

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
        """As `RequestIf`; reads go by `allowed` alone."""
        is_read = method in _READS
        if not is_read and not self._allowed():
            raise NotSent(f"{method} {path}: this process does not lead")
        if self._request_if is None:
            if not allowed():
                raise NotSent(f"{method} {path}: it is no longer allowed")
            return await self._transport.request(
                method, path, body=body, content_type=content_type, timeout=timeout
            )
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
        return self._start(
            method, path, body=body, content_type=content_type, timeout=timeout, answered=answered
        )

    def stream(
        self, path: str, *, read_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        return self._transport.stream(path, read_timeout=read_timeout)

    async def close(self) -> None:
        """Nothing: the transport below belongs to whoever made it."""


async def no_credentials() -> Mapping[str, str]:
    """The default for `Endpoint.headers`: nobody is asked who sends."""
    return {}


def nothing_to_renew() -> None:
    """The default for `Endpoint.refused` and `Endpoint.unverified`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an API server is and how to speak to it.

    `headers` gives the credentials for the next request, renewed as needed; `refused` is told of a 401, so that they
    are renewed whatever their expiry says. `ssl_context` is what connections trust and present, or gives it where that
    changes: another object then, and connections made with an earlier one are given up; `unverified` is told of a TLS
    handshake that failed. `proxy` is a URL, which may hold a user and a password. `source` names where all this was
    read.
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
