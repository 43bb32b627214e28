"""Faults of open watches: each transforms the lines of a watch into what is sent.

A `Distortion` is pure, without clock, socket or randomness, so that any transport of watches can use it. Its output
is a sequence of steps: bytes to send, a pause, or the end. `DisturbedWatcher` applies one to a watcher and has a
watcher's interface.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from . import nesting
from .errors import gone
from .watch import Watcher, nobody


class Pause(NamedTuple):
    """Nothing is sent for this time; infinite for ever."""

    seconds: float


class End(Enum):
    """The end of the watch: CLOSE with the last chunk, or RESET with a TCP reset."""

    CLOSE = "close"
    RESET = "reset"


Step = bytes | Pause | End
#: Called each time that the fault fires.
Struck = Callable[[], None]


class Distortion(Protocol):
    """The fault of one watch. It owns the position in the watch."""

    def feed(self, lines: Sequence[bytes]) -> list[Step]:
        """Return the steps that replace `lines`. The first call, when the watch is opened, has no lines."""
        ...


def expired() -> bytes:
    """Return the event by which a server ends an expired watch."""
    return b'{"type":"ERROR","object":' + nesting.dumps(gone(TOO_OLD).status()) + b"}\n"


TOO_OLD = "too old resource version: injected by a fault"


@dataclass(slots=True)
class Cutting:
    """Performs `steps` once, after a number of lines or bytes.

    Later lines are lost after an end, kept after a pause.
    """

    steps: Sequence[Step]
    struck: Struck
    lines: int | None = None
    size: int | None = None
    done: bool = False

    def feed(self, lines: Sequence[bytes]) -> list[Step]:
        if self.done:
            return list(lines)
        sent: list[Step] = []
        for at, line in enumerate((*lines, b"")):
            taken = self._take(line)
            sent += [line[:taken]] if taken else []
            if taken < len(line) or (at == len(lines) and self._spent()):
                self.done = True
                self.struck()
                return [*sent, *self.steps, line[taken:], *lines[at + 1 :]]
        return sent

    def _spent(self) -> bool:
        return (self.lines if self.lines is not None else self.size) == 0

    def _take(self, line: bytes) -> int:
        """Return the number of bytes of `line` before the cut."""
        if self.lines is not None:
            if not line or not self.lines:
                return 0
            self.lines -= 1
            return len(line)
        assert self.size is not None
        taken = min(len(line), self.size)
        self.size -= taken
        return taken


@dataclass(slots=True)
class Editing:
    """Sends `edit(line)` for one line, after `lines` others."""

    edit: Callable[[bytes], bytes]
    struck: Struck
    lines: int

    def feed(self, lines: Sequence[bytes]) -> list[Step]:
        at = self.lines
        self.lines -= len(lines)
        if not 0 <= at < len(lines):
            return list(lines)
        self.struck()
        return [*lines[:at], self.edit(lines[at]), *lines[at + 1 :]]


@dataclass(slots=True)
class EditingAll:
    """Sends `edit(line)` for every line."""

    edit: Callable[[bytes], bytes]
    struck: Struck

    def feed(self, lines: Sequence[bytes]) -> list[Step]:
        for _ in lines:
            self.struck()
        return [self.edit(line) for line in lines]


class Repeating:
    """Repeats the last lines at a fixed interval of lines."""

    def __init__(self, struck: Struck, *, every: int, last: int) -> None:
        self._struck = struck
        self._every = every
        self._kept: deque[bytes] = deque(maxlen=last)
        self._count = 0

    def feed(self, lines: Sequence[bytes]) -> list[Step]:
        sent: list[Step] = []
        for line in lines:
            sent.append(line)
            self._kept.append(line)
            self._count += 1
            if self._count % self._every == 0:
                self._struck()
                sent += self._kept
        return sent


@dataclass(slots=True)
class Holding:
    """Delays all lines."""

    struck: Struck
    seconds: float

    def feed(self, lines: Sequence[bytes]) -> list[Step]:
        if not lines:
            return []
        self.struck()
        return [Pause(self.seconds), *lines]


class LosingDeletes:
    """Suppresses lines from the first deletion on, and ends the watch after a number of deletions."""

    def __init__(self, struck: Struck, *, deletions: int) -> None:
        self._struck = struck
        self._wanted = self._left = deletions

    def feed(self, lines: Sequence[bytes]) -> list[Step]:
        sent: list[Step] = []
        for line in lines:
            self._left -= line.startswith(b'{"type":"DELETED"')
            if not self._left:
                self._struck()
                return [*sent, End.CLOSE]
            # A line after a lost deletion would advance the client's resourceVersion past it.
            sent += [line] if self._left == self._wanted else []
        return sent


def truncated(line: bytes) -> bytes:
    return line[: len(line) // 2] + b"\n"


def garbled(line: bytes) -> bytes:
    return b"}" + line[1:]


_TYPE = re.compile(rb'^\{"type":"[A-Z]+"')


def of_unknown_type(line: bytes) -> bytes:
    return _TYPE.sub(b'{"type":"MOVED"', line)


def with_unknown_fields(line: bytes, *, size: int) -> bytes:
    """Return the event with members that no version of the API has, in its envelope and in its object."""
    more = b'"fromTheFuture":{"of":[1,"two",null]},"padding":"%b",' % (b"x" * size)
    line = line.replace(b',"object":{', b',"object":{' + more, 1)
    return line.rstrip()[:-1] + b',"fromTheFuture":true}\n'


class DisturbedWatcher:
    """A watcher with a distortion. It owns the watcher, and the timer that ends a pause.

    Invariant: nothing is returned during a pause or after an end.
    """

    def __init__(
        self, inner: Watcher, distortion: Distortion, call_later: Callable[[float, Callable[[], None]], Cancellable]
    ) -> None:
        self._inner = inner
        self._distortion = distortion
        self._call_later = call_later
        self._steps: deque[Step] = deque(distortion.feed(()))
        self._paused = False
        self._timer: Cancellable | None = None
        self._end: End | None = None
        self.wake: Callable[[], None] = nobody
        inner.wake = self._woken

    @property
    def bookmarks(self) -> bool:
        return self._inner.bookmarks

    def bookmark(self, rv: int) -> None:
        self._inner.bookmark(rv)

    @property
    def drained(self) -> bool:
        if self._end is not None:
            return True
        return not self._paused and not self._steps and self._inner.drained

    @property
    def torn(self) -> bool:
        """Whether the end is a reset."""
        return self._end is End.RESET

    def take(self, room: int) -> list[bytes]:
        sent: list[bytes] = []
        while not sent and not self._paused and self._end is None:
            if not self._steps:
                lines = self._inner.take(room)
                if not lines:
                    break
                self._steps.extend(self._distortion.feed(lines))
            self._perform(sent, room)
        return sent

    def _perform(self, sent: list[bytes], room: int) -> None:
        """Perform the steps until the next pause or end, or until `room` is used up."""
        while self._steps and room > 0:
            step = self._steps.popleft()
            if isinstance(step, bytes):
                if step:
                    sent.append(step)
                    room -= len(step)
            elif isinstance(step, Pause):
                self._paused = True
                if step.seconds < math.inf:
                    self._timer = self._call_later(step.seconds, self._resume)
                return
            else:
                self._end = step
                self._steps.clear()

    def _resume(self) -> None:
        self._paused = False
        self._timer = None
        self.wake()

    def _woken(self) -> None:
        if not self._paused:
            self.wake()

    def end(self) -> None:
        self._inner.end()

    def close(self) -> None:
        self.wake = nobody
        self._steps.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._inner.close()


class Cancellable(Protocol):
    def cancel(self) -> None: ...
