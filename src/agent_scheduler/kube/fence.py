"""Writes that are allowed only while something holds: the last line between a deposed leader and the API server.

Losing a lease cancels the work of a leader, but a process that was stopped for long (SIGSTOP, a suspended machine)
may wake up in the middle of that work. Whether it may write is therefore asked again at every request, and once more at
the moment of sending, since what comes before (credentials, a free connection) may take longer than the lease lasts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from agent_scheduler.kube.transport import Answered, NotSent, Response, Transport, request_if_of, start_of

_READS = frozenset({"GET", "HEAD"})


class FencedTransport:
    """`transport`, on which writes raise NotSent while `allowed` says no. Reads and watches always pass."""

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
        if method not in _READS:
            if not self._allowed():
                raise NotSent(f"{method} {path}: this process does not lead")
            if self._request_if is not None:
                return await self._request_if(
                    self._allowed, method, path, body=body, content_type=content_type, timeout=timeout
                )
        return await self._transport.request(
            method, path, body=body, content_type=content_type, timeout=timeout
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
