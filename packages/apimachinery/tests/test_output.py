"""The output of the log: what it does with lines that the other end does not accept."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from threading import Event

import pytest

from apimachinery.output import LogOutput, to_descriptor

#: What one write does: accept a number of bytes, or fail with an errno.
Outcome = int | str


class Disk:
    """Accepts what `outcomes` say, then everything."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.content = b""
        self._outcomes = list(outcomes)

    def write(self, data: bytes) -> int:
        outcome = self._outcomes.pop(0) if self._outcomes else len(data)
        if isinstance(outcome, str):
            code = getattr(errno, outcome)
            raise OSError(code, os.strerror(code))
        self.content += data[:outcome]
        return min(outcome, len(data))


@pytest.mark.parametrize(
    ("outcomes", "content", "lost"),
    [
        pytest.param([], b"one\ntwo\nthree\n", 0, id="accepts everything"),
        pytest.param(["ENOSPC"], b"two\nthree\n", 1, id="full for one line"),
        pytest.param(["EPIPE", "EPIPE", "EPIPE"], b"", 3, id="the reader has gone"),
        pytest.param([4, "EIO"], b"one\nthree\n", 1, id="a whole line, then a failure"),
        pytest.param([2, 2], b"one\ntwo\nthree\n", 0, id="a line in two parts"),
        pytest.param([2, "ENOSPC"], b"on\ntwo\nthree\n", 1, id="full within a line"),
        pytest.param([2, "ENOSPC", "ENOSPC"], b"on\nthree\n", 2, id="full within a line, and at the next"),
        pytest.param([2, "ENOSPC", 1, "ENOSPC"], b"on\n\nthree\n", 2, id="full within two lines"),
        pytest.param([2, "ENOSPC", 2], b"on\ntwo\nthree\n", 1, id="the rest of a line after a part"),
    ],
)
def test_a_failing_output_loses_lines_and_no_others(outcomes: list[Outcome], content: bytes, lost: int) -> None:
    disk = Disk(*outcomes)
    output = LogOutput(disk.write)
    for line in (b"one\n", b"two\n", b"three\n"):
        output.write(line)
    assert (disk.content, output.lost) == (content, lost)


@pytest.mark.parametrize("stall", [["EAGAIN"], ["EAGAIN", "EAGAIN", 2, "EAGAIN"], [2, 0, "EAGAIN"]])
def test_a_stalled_output_gets_the_lines_that_fit_into_the_buffer_once_it_accepts_more(stall: list[Outcome]) -> None:
    disk, read = Disk(*stall), Event()
    output = LogOutput(disk.write, wait=lambda: bool(read.wait()) or None, limit=8)
    for line in (b"one\n", b"two\n", b"three\n"):
        output.write(line)
    assert output.lost == 1
    read.set()
    output.finish()
    assert disk.content == b"one\ntwo\n"
    output.write(b"four\n")
    assert disk.content == b"one\ntwo\nfour\n"


def test_a_line_logged_while_another_is_written_follows_it() -> None:
    lines: list[bytes] = []

    def write(data: bytes) -> int:
        if not lines:
            lines.append(data)
            output.write(b"inner\n")
        else:
            lines.append(data)
        return len(data)

    output = LogOutput(write)
    output.write(b"outer\n")
    assert lines == [b"outer\n", b"inner\n"]


def stalled() -> int:
    """Return the writing end of a pipe that accepts nothing more and is never read."""
    _, writing = os.pipe()
    own = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(own, bytes(4096))
    except BlockingIOError:
        pass
    os.close(own)
    return writing


def unread_socket() -> int:
    import socket

    ours, other = socket.socketpair()
    other.detach()
    return ours.detach()


def without_reader() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def closed() -> int:
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.close(descriptor)
    return descriptor


@pytest.mark.parametrize(
    "opened",
    [stalled, unread_socket, without_reader, closed, lambda: os.open("/dev/full", os.O_WRONLY)],
    ids=["a stalled pipe", "a stalled socket", "no reader", "closed", "a full disk"],
)
def test_no_kind_of_file_stops_the_writer(opened: Callable[[], int]) -> None:
    output = to_descriptor(opened())
    for _ in range(300):
        output.write(b"x" * 9999 + b"\n")
    assert output.lost >= 100
    assert output._size <= 1024 * 1024
