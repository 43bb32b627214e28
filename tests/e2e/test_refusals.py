"""An invalid command line or configuration ends the program at once, with one line that states why."""

from __future__ import annotations

import socket
import subprocess

from .conftest import Start
from .processes import PATIENCE, PROGRAM


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
