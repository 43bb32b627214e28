"""State that all connections of one server share."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from apimachinery.hosts import host_problem, origin_problem

from .errors import ApiError
from .handlers import Api
from .heads import Head, KnownRequests, ResponseHeads
from .requests import Disturb, Response, refusal

#: The limit of connections, within the process's limit of file descriptors, of which some are left for other files.
_MOST = 16_384
_SPARE = 64
#: The limit of the bodies that are incomplete or wait for earlier requests of their connection, in bytes.
_MOST_BYTES = 64 * 1024 * 1024

_log = logging.getLogger(__name__)

#: The response to an internal error.
FAULT = ApiError(500, "InternalError", "Internal error occurred: see the server's log", {})


#: The response to a body for which there is no room.
TOO_MANY = ApiError(
    429, "TooManyRequests", "too many bytes of other requests are being received", {"retryAfterSeconds": 1}
)


def _most_connections() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return _MOST
    return max(_SPARE, min(_MOST, descriptors - _SPARE))


class OpenConnection(Protocol):
    """A connection as the server limits and ends it."""

    #: The bytes of bodies that are incomplete or wait.
    held: int

    @property
    def rank(self) -> tuple[int, float]:
        """The order in which connections are replaced: the lowest first."""

    def shut_down(self) -> None: ...
    def abort(self) -> None: ...


class Turns:
    """Carries out large requests one after another. After each, it leaves the loop to others for as long as it took."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` advances within a step of the loop, unlike some loops' own."""
        self._loop = loop
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_set = False

    def add(self, action: Callable[[], None]) -> None:
        self._waiting.append(action)
        if not self._is_set:
            self._is_set = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        if not self._waiting:
            self._is_set = False
            return
        began = self._clock()
        action = self._waiting.popleft()
        try:
            action()
        finally:
            self._loop.call_later(self._clock() - began, self._next)


class Shared:
    """The shared state of all connections of one server."""

    def __init__(self, api: Api, loop: asyncio.AbstractEventLoop, *, disturb: Disturb | None) -> None:
        self.api = api
        self.loop = loop
        self.disturb = disturb
        self.heads = ResponseHeads(loop)
        self.known = KnownRequests()
        self.turns = Turns(loop)
        #: In the order of their beginning.
        self.connections: dict[OpenConnection, None] = {}
        self._limit = _most_connections()
        #: The bytes of bodies that are incomplete or wait.
        self._held = 0
        #: Whether the server listens only on a loopback address.
        self.is_local = False
        self._closed = asyncio.Event()
        #: True during shutdown; responses then close their connection.
        self.closing = False

    def admit(self, connection: OpenConnection) -> None:
        """Add a connection. At the limit, it replaces another one.

        That is the oldest whose request is incomplete, else the oldest without a request, else the oldest.
        """
        if len(self.connections) >= self._limit:
            replaced = min(self.connections, key=lambda each: each.rank)
            del self.connections[replaced]
            replaced.abort()
        self.connections[connection] = None

    def hold(self, connection: OpenConnection, size: int) -> None:
        """Add to the bytes of bodies that a connection holds. Raises 429 if it holds the most of too many bytes."""
        self._held += size
        if self._held > _MOST_BYTES:
            most = max(self.connections, key=lambda each: each.held)
            if most is connection:
                raise TOO_MANY
            most.abort()

    def release(self, size: int) -> None:
        self._held -= size

    def foreign(self, head: Head) -> ApiError | None:
        """Return the refusal of a request that a page of another site makes a browser send; None for other requests."""
        if self.is_local and (problem := host_problem(head.host)):
            return ApiError(421, "", problem)
        if problem := origin_problem(head.origin, head.host):
            return ApiError(403, "Forbidden", problem)
        return None

    def forget(self, connection: OpenConnection) -> None:
        self.connections.pop(connection, None)
        if not self.connections:
            self._closed.set()

    @staticmethod
    def outcome(task: asyncio.Task[Response]) -> Response:
        """Return the response of a completed request; an internal error is logged."""
        error = task.exception()
        if error is None:
            return task.result()
        _log.error("request failed", exc_info=error)
        return refusal(FAULT)

    async def all_closed(self) -> None:
        """Wait until all connections are closed."""
        while self.connections:
            self._closed.clear()
            await self._closed.wait()
