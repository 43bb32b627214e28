"""Sends an open watch over a connection at the client's pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .pacing import StreamTimers
from .requests import Stream
from .watch import Watcher

#: The number of bytes per iteration of the event loop.
BITE = 256 * 1024
_LAST_CHUNK = b"0\r\n\r\n"


class StreamSender:
    """Owns a stream and its timers until `close`. Nothing is sent before `start` or while `paused`."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        stream: Stream,
        ended: Callable[[bool], None],
    ) -> None:
        """Create a sender. `ended` is called once at the end, with whether the connection is to be reset."""
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
        """Continue after the client has read what was sent."""
        self.paused = False
        self._pump()

    def end(self) -> None:
        """Send the queued lines, then end."""
        self._watcher.end()

    def close(self) -> None:
        """Close the stream, when the connection was lost or the watch has ended."""
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
        """Send a limited number of bytes per iteration, so that a backlog does not delay other connections."""
        if self._timers is None or self.paused:
            return
        lines = self._watcher.take(BITE)
        if lines:
            data = lines[0] if len(lines) == 1 else b"".join(lines)
            size = len(data)
            self._transport.write(b"%x\r\n%b\r\n" % (size, data) if self._chunked else data)
            # If fewer bytes were available, the next line wakes this; but a disturbed watch may have held lines back.
            if size >= BITE or self._watcher.drained or not isinstance(self._watcher, Watcher):
                self._wake()
        elif self._watcher.drained:
            torn = self._watcher.torn
            if self._chunked and not torn:
                self._transport.write(_LAST_CHUNK)
            self._ended(torn)
