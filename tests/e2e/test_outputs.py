"""A scheduler whose log is not accepted, and whose port is held by others, goes on binding pods."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import pytest

from .conftest import Start
from .plane import ControlPlane
from .processes import Scheduler

#: More lines than without, so that some are lost in each case.
DEBUG = {"logging": {"level": "debug"}}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def full_disk(log: Path, opened: ExitStack) -> None:
    log.symlink_to("/dev/full")


def stalled_reader(log: Path, opened: ExitStack) -> IO[bytes]:
    """Make the log a pipe that is full and whose reader never reads; return the reader."""
    os.mkfifo(log)
    reader = opened.enter_context(os.fdopen(os.open(log, os.O_RDONLY | os.O_NONBLOCK), "rb"))
    writer = os.open(log, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 4096)
    os.close(writer)
    return reader


def no_reader(log: Path, opened: ExitStack) -> IO[bytes]:
    return stalled_reader(log, opened)


@pytest.mark.parametrize("given", [full_disk, stalled_reader, no_reader], ids=lambda each: each.__name__)
async def test_a_log_that_is_not_accepted_stops_nothing(
    plane: ControlPlane, start: Start, tmp_path: Path, opened: ExitStack, given: Callable[..., IO[bytes] | None]
) -> None:
    log = tmp_path / "scheduler.log"
    reader = given(log, opened)
    scheduler = start(config=DEBUG)
    # What this test's failure would show.
    scheduler.log = tmp_path / "none.log"
    scheduler.log.touch()
    await scheduler.ready()
    if given is no_reader:
        assert reader is not None
        reader.close()
    await plane.add_node("n", cpu="16")
    names = [f"p{number}" for number in range(20)]
    await plane.add_pods(names)
    await plane.bound(*names)
    held = hold_port(scheduler, opened)
    await plane.add_pod("last")
    await plane.bound("last")
    assert scheduler.get("/livez") == (200, "ok")
    if given is not stalled_reader:
        assert scheduler.metric("agent_scheduler_log_lines_lost_total") > 0
    assert await scheduler.terminate() == 0
    assert held


def hold_port(scheduler: Scheduler, opened: ExitStack) -> list[socket.socket]:
    """Send malformed and incomplete requests on more connections than a server holds."""
    held = []
    for number in range(600):
        connection = socket.create_connection(("127.0.0.1", scheduler.port), source_address=("127.0.0.2", 0))
        opened.enter_context(connection)
        with suppress(OSError):
            connection.sendall(b"\x16\x03\x01\r\n\r\n" if number % 6 == 0 else b"GET /livez HTTP/1.1\r\na: b\r\n")
        held.append(connection)
    return held
