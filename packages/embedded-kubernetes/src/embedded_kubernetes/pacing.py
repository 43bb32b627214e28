"""Timers of watches (deadline, bookmarks), and the scheduling of the collector.

Verbs take no time; later actions are scheduled here on an event loop, for HTTP and for the in-process transport.
Callbacks of a loop are not awaited, so each owner cancels what it scheduled.
"""

from __future__ import annotations

import asyncio
import logging

from .collector import Collector
from .controllers import nobody
from .requests import Stream

_log = logging.getLogger(__name__)

#: The interval of bookmarks in seconds, and the time of the last one before the deadline (cacher's bookmark timer).
BOOKMARK_SECONDS = 60.0
_BEFORE_DEADLINE = 2.0


class StreamTimers:
    """Sends a watch's bookmarks and ends it at its deadline. Owned by the reader of the stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: Stream) -> None:
        self._loop = loop
        self._stream = stream
        self._deadline = loop.time() + stream.timeout
        self._end = loop.call_later(stream.timeout, stream.watcher.end)
        self._bookmark: asyncio.TimerHandle | None = None
        if stream.watcher.bookmarks:
            self._plan_bookmark()

    def _plan_bookmark(self) -> None:
        now = self._loop.time()
        due = min(now + BOOKMARK_SECONDS, self._deadline - _BEFORE_DEADLINE)
        self._bookmark = self._loop.call_at(due, self._send_bookmark) if due > now else None

    def _send_bookmark(self) -> None:
        self._stream.watcher.bookmark(self._stream.version())
        self._plan_bookmark()

    def cancel(self) -> None:
        self._end.cancel()
        if self._bookmark is not None:
            self._bookmark.cancel()


class CollectorTurns:
    """Runs one step of the collector per iteration of the event loop while it has work."""

    def __init__(self, collector: Collector, loop: asyncio.AbstractEventLoop) -> None:
        self._collector = collector
        self._loop = loop
        self._next: asyncio.Handle | None = None
        collector.wake = self._wake
        if collector.busy:
            self._wake()

    def _wake(self) -> None:
        if self._next is None:
            self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._next = None
        try:
            more = self._collector.step()
        except Exception:
            # An object that cannot be collected must not prevent the collection of others.
            _log.exception("collection failed")
            self._collector.abandon()
            more = self._collector.busy
        if more:
            self._wake()

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._collector.wake = nobody
