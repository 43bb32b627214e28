"""Child processes end with their block, say why they failed, and get ports of their own."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bench.harness import processes
from bench.harness.processes import Child, ProcessError, child, free_port

pytestmark = pytest.mark.real_time
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_free_port_is_none_that_an_outgoing_connection_may_be_given() -> None:
    lowest = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 49152
    assert free_port() < max(lowest, 32768)


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, free = taken.getsockname()[1], free_port()
        monkeypatch.setattr(random, "sample", lambda *_: [port, free])
        assert free_port() == free
        monkeypatch.setattr(random, "sample", lambda *_: [port])
        with pytest.raises(ProcessError, match="all are taken"):
            free_port()


Running = Callable[..., AbstractAsyncContextManager[Child]]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """Return a function that starts a child process with this code."""

    def start(name: str, code: str, **more: float) -> AbstractAsyncContextManager[Child]:
        monkeypatch.setattr(processes, "PROGRAM", (sys.executable, "-c", code))
        return child(name, [], log=tmp_path / "log", **more)

    return start


async def never() -> bool:
    return False


async def test_a_child_is_ended_however_its_block_is_left(running: Running) -> None:
    with pytest.raises(ZeroDivisionError):
        async with running("sleeper", "import time; time.sleep(60)") as sleeper:
            sleeper.check()
            raise ZeroDivisionError
    with pytest.raises(ProcessError, match="the sleeper was ended by SIGTERM"):
        sleeper.check()


async def test_a_child_that_ignores_sigterm_is_killed(running: Running, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        "import signal, time, sys, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    )

    async def is_ready() -> bool:
        return ready.exists()

    async with running("stubborn", code, grace=0.1) as stubborn:
        await stubborn.ready(is_ready, seconds=10)
    with pytest.raises(ProcessError, match="SIGKILL"):
        stubborn.check()


async def test_a_child_that_dies_is_reported_with_its_last_words(running: Running) -> None:
    async with running("scheduler", "import sys; sys.exit('no such flag')") as dying:
        with pytest.raises(ProcessError, match=r"the scheduler ended with exit code 1(.|\n)*no such flag"):
            await dying.ready(never, seconds=10)
        with pytest.raises(ProcessError, match="exit code 1"):
            await dying.died()


async def test_a_child_that_never_gets_ready_is_given_up(running: Running) -> None:
    async with running("cluster", "import time; time.sleep(60)") as slow:
        with pytest.raises(ProcessError, match=r"the cluster was not ready after 0\.1 s"):
            await slow.ready(never, seconds=0.1)
