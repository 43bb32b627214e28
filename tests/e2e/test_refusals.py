"""An invalid command line or configuration ends the program at once, with one line that states why."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import kubeconfig

from .conftest import Start
from .processes import PATIENCE, PROGRAM, Served


def test_a_wrong_flag_ends_the_process_with_2_and_one_line() -> None:
    command = [*PROGRAM, "run", "--scheduler-worker-count", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "agent-scheduler run: --scheduler-worker-count: found the number 0; allowed: a whole number from 1 to 1024\n"
    )


async def test_a_port_that_is_taken_ends_the_scheduler_and_is_named(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        scheduler = start(port=port)
        assert await scheduler.ended() == 2
    last = scheduler.said().splitlines()[-1]
    assert f"cannot serve on 127.0.0.1 port {port}: " in last
    assert "Traceback" not in scheduler.said()


@pytest.mark.parametrize("command", ["run", "controllers --enable job"])
async def test_an_api_server_that_does_not_respond_causes_one_warning(tmp_path: Path, command: str) -> None:
    arguments = [*command.split(), "--kubeconfig", str(kubeconfig(tmp_path, "http://127.0.0.1:1"))]
    process = Served("process", arguments, folder=tmp_path)
    try:
        (warning,) = await process.until(lambda: process.records("list failed"), "warning")
        assert await process.terminate() == 0
    finally:
        process.kill()
    assert warning["level"] == "warning"
    assert "no connection to 127.0.0.1:1: ConnectionRefusedError" in warning["problem"]
    assert len(process.records("list failed")) == 1
