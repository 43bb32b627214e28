"""The output of the log: it never raises and never waits, and counts the lines that it loses.

A line is written at once if the output accepts it. While the output is stalled (a pipe that no process reads), lines
wait in a buffer of limited size, which a thread writes as soon as the output accepts more. Lines are lost if that
buffer is full, or if the output fails: a full disk, a reader that has gone, a closed descriptor.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import socket
import stat
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import RLock, Thread
from typing import BinaryIO, Final, TextIO

from apimachinery.visible import visible_lines

#: The limit of waiting lines in bytes.
BUFFER: Final = 1024 * 1024
#: Writes at most one page, which a pipe that `poll` reports as writable accepts without waiting.
_PIECE: Final = 4096
#: Seconds between two attempts on an output that accepts nothing, and at the end of the process for all waiting lines.
_PAUSE: Final = 0.02
_LAST: Final = 1.0

#: Writes some of the bytes and returns their number. Raises OSError; BlockingIOError if it would have to wait.
Write = Callable[[bytes], int]


class LogOutput:
    """Writes lines through `write`. `wait` returns when another attempt is worthwhile."""

    def __init__(self, write: Write, *, wait: Callable[[], None] | None = None, limit: int = BUFFER) -> None:
        self._write = write
        self._wait = wait or (lambda: time.sleep(_PAUSE))
        self._limit = limit
        #: Protects everything below. Reentrant, because the garbage collector may log while a line is written.
        self._lock = RLock()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._is_writing = False
        #: Whether a part of the first line is written, and whether the output ends in a part of a lost line.
        self._begun = False
        self._torn = False
        self._thread: Thread | None = None
        #: The number of lost lines.
        self.lost = 0

    def write(self, line: bytes) -> None:
        """Write one line, which ends in a newline."""
        with self._lock:
            if self._size + len(line) > self._limit:
                self.lost += 1
                return
            self._lines.append(line)
            self._size += len(line)
            if self._is_writing or self._thread is not None:
                return
            if not self._send():
                self._thread = Thread(target=self._follow, name="log", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:
                    # No thread can be started: the next line makes another attempt.
                    self._thread = None

    def flush(self) -> None:
        """Do nothing: lines are not held back."""

    def finish(self, seconds: float = _LAST) -> None:
        """Give waiting lines this time to be written."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _follow(self) -> None:
        while True:
            self._wait()
            with self._lock:
                if self._send():
                    self._thread = None
                    return

    def _send(self) -> bool:
        """Write the lines in order; return whether none is left. Needs the lock."""
        self._is_writing = True
        try:
            while self._lines:
                line = self._lines[0]
                if self._torn and not self._begun:
                    line = b"\n" + line
                try:
                    written = self._write(line)
                except BlockingIOError:
                    return False
                except (OSError, ValueError):
                    # ValueError: the stream is closed.
                    self._drop(lost=True)
                    continue
                if written < len(line):
                    if written:
                        self._size -= len(self._lines[0]) - (len(line) - written)
                        self._lines[0], self._begun, self._torn = line[written:], True, False
                        continue
                    return False
                self._drop(lost=False)
            return True
        finally:
            self._is_writing = False

    def _drop(self, *, lost: bool) -> None:
        self._size -= len(self._lines.popleft())
        self.lost += lost
        self._torn = (self._begun or self._torn) if lost else False
        self._begun = False


class LogHandler(logging.Handler):
    """Writes warnings and errors of the standard library's loggers to an output."""

    def __init__(self, output: LogOutput) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        self._output.write(f"{visible_lines(self.format(record))}\n".encode())


def to_stream(stream: BinaryIO) -> LogOutput:
    """Return an output that writes to a stream of this process, which must not wait."""

    def write(data: bytes) -> int:
        stream.write(data)
        stream.flush()
        return len(data)

    return LogOutput(write)


def to_descriptor(descriptor: int) -> LogOutput:
    """Return an output that writes to an open file, pipe, terminal or socket."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return LogOutput(lambda data: os.write(descriptor, data))
    if stat.S_ISREG(mode):
        return LogOutput(lambda data: os.write(descriptor, data))
    write: Write | None = None
    if stat.S_ISSOCK(mode):
        with suppress(OSError):
            connected = socket.socket(fileno=os.dup(descriptor))
            write = lambda data: connected.send(data, socket.MSG_DONTWAIT)  # noqa: E731
    else:
        # A flag of the descriptor itself would apply to all processes that share it, such as the user's shell.
        with suppress(OSError):
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            write = lambda data: os.write(own, data)  # noqa: E731
    if write is None:
        write = lambda data: _write_if_ready(descriptor, data)  # noqa: E731

    def wait() -> None:
        _ready(descriptor, 1000)
        # A terminal may be reported as writable and accept nothing.
        time.sleep(_PAUSE)

    return LogOutput(write, wait=wait)


def _ready(descriptor: int, milliseconds: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(milliseconds))


def _write_if_ready(descriptor: int, data: bytes) -> int:
    """Write at most a page. Raises BlockingIOError instead of waiting."""
    if not _ready(descriptor, 0):
        raise BlockingIOError
    return os.write(descriptor, data[:_PIECE])


def standard_error() -> LogOutput:
    """Return the output to standard error, which gets its waiting lines written before the process ends."""
    return _standard(sys.stderr)


def standard_output() -> LogOutput:
    return _standard(sys.stdout)


def _standard(stream: TextIO | None) -> LogOutput:
    if stream is None:
        # The process was started without one; another file may have its descriptor now.
        def closed(data: bytes) -> int:
            raise OSError("it is closed")

        return LogOutput(closed)
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        # Replaced by a stream in memory, by a test.
        return to_stream(stream.buffer)
    stream.flush()
    output = to_descriptor(descriptor)
    atexit.register(output.finish)
    return output
