"""A command line or configuration that cannot work ends the program at once, with one line that says why."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from agent_scheduler.cli.main import main

from .conftest import Start
from .processes import PATIENCE, PROGRAM


def test_a_wrong_flag_ends_the_process_with_2_and_one_line() -> None:
    done = subprocess.run(
        [*PROGRAM, "run", "--scheduler-worker-count", "0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "agent-scheduler run: --scheduler-worker-count: found the number 0; "
        "allowed: a whole number from 1 to 1024\n"
    )


def test_a_bad_row_of_a_trace_is_named_by_file_line_and_column(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,0,\n")
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
        "good,1,1,0,0,,100,300\nbad,many,1,0,0,,100,300\n"
    )
    # In this process, to save its start.
    assert main(["demo", "--trace", f"openb:{nodes},{pods}"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"agent-scheduler demo: {pods}, line 3, column cpu_milli: expected ")
    assert shown.err.endswith("found 'many'\n")


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
