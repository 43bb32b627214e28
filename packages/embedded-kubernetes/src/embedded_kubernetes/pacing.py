"""The clock's part in serving: a watch's deadline and bookmarks, and the collector's turns.

Verbs are pure and take no time; what happens later is scheduled here on an event loop, the same way for HTTP and
for the in-process door. Callbacks of a loop have no awaiter, so each owner cancels what it scheduled.
"""

from __future__ import annotations

import asyncio
import logging

from .collector import Collector
from .controllers import nobody
from .requests import Stream

_log = logging.getLogger(__name__)

#: Seconds between bookmarks, and how long before the deadline the last one is sent (cacher's bookmark timer).
BOOKMARK_SECONDS = 60.0
_BEFORE_DEADLINE = 2.0


class StreamTimers:
    """Ends a watch at its deadline and sends its bookmarks on the way. Owner: whoever pumps the stream."""

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
    """Gives the collector a short turn on every pass of the loop while it has work."""

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
            # One object that cannot be collected must not stop the collection of the others.
            _log.exception("a collection failed")
            self._collector.abandon()
            more = self._collector.busy
        if more:
            self._wake()

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._collector.wake = nobody
