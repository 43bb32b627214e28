"""State that all connections of one server share."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from .errors import ApiError
from .handlers import Api
from .heads import KnownRequests, ResponseHeads
from .requests import Disturb, Response, refusal

_log = logging.getLogger(__name__)

#: The response to an internal error.
FAULT = ApiError(500, "InternalError", "Internal error occurred: see the server's log", {})


class OpenConnection(Protocol):
    """A connection as the server ends it."""

    def shut_down(self) -> None: ...
    def abort(self) -> None: ...


class Shared:
    """The shared state of all connections of one server."""

    def __init__(self, api: Api, loop: asyncio.AbstractEventLoop, *, disturb: Disturb | None) -> None:
        self.api = api
        self.loop = loop
        self.disturb = disturb
        self.heads = ResponseHeads(loop)
        self.known = KnownRequests()
        self.connections: set[OpenConnection] = set()
        self._closed = asyncio.Event()
        #: True during shutdown; responses then close their connection.
        self.closing = False

    def forget(self, connection: OpenConnection) -> None:
        self.connections.discard(connection)
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
