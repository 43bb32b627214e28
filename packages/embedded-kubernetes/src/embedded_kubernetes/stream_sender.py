"""Sends an open watch over a connection, as fast as its client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .pacing import StreamTimers
from .requests import Stream
from .watch import Watcher

#: Bytes that are sent in one turn of the loop.
BITE = 256 * 1024
_LAST_CHUNK = b"0\r\n\r\n"


class StreamSender:
    """Owner of a stream and its timers until `close`. Nothing is sent before `start`, nor while `paused`."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        stream: Stream,
        ended: Callable[[bool], None],
    ) -> None:
        """`ended` is told once, when all was sent, and whether the end is to look like a broken connection."""
        self._transport = transport
        self._loop = loop
        self._stream = stream
        self._watcher = stream.watcher
        self._ended = ended
        self._timers: StreamTimers | None = None
        self._chunked = True
        self._due = False
        self.paused = False

    def start(self, *, chunked: bool) -> None:
        self._chunked = chunked
        self._timers = StreamTimers(self._loop, self._stream)
        self._watcher.wake = self._wake
        self._wake()

    def resume(self) -> None:
        """The client has read what was sent."""
        self.paused = False
        self._pump()

    def end(self) -> None:
        """Send what waits, and no more."""
        self._watcher.end()

    def close(self) -> None:
        """The connection has gone, or needs the stream no more."""
        if self._timers is not None:
            self._timers.cancel()
            self._timers = None
        self._watcher.close()

    def _wake(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        self._pump()

    def _pump(self) -> None:
        """Send one bite a turn, so that a long backlog holds up no other connection."""
        if self._timers is None or self.paused:
            return
        lines = self._watcher.take(BITE)
        if lines:
            data = lines[0] if len(lines) == 1 else b"".join(lines)
            size = len(data)
            self._transport.write(b"%x\r\n%b\r\n" % (size, data) if self._chunked else data)
            # A smaller bite took all there was, and the next line wakes; but a disturbed watch may keep some back.
            if size >= BITE or self._watcher.drained or not isinstance(self._watcher, Watcher):
                self._wake()
        elif self._watcher.drained:
            torn = self._watcher.torn
            if self._chunked and not torn:
                self._transport.write(_LAST_CHUNK)
            self._ended(torn)
