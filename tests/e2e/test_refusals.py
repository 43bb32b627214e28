"""A command line or configuration that cannot work ends the program at once, with one line that says why."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from .conftest import Start
from .plane import ControlPlane, Run
from .processes import PATIENCE, PROGRAM

pytestmark = pytest.mark.e2e

HEAD = "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\n"


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and what was said, of a run that must end by itself."""
    done = subprocess.run(
        [*PROGRAM, "run", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_wrong_flag_is_named_with_what_is_allowed() -> None:
    code, said = run("--scheduler-worker-count", "0")
    assert code == 2
    assert said.startswith("agent-scheduler run: --scheduler-worker-count: ")
    assert said.count("\n") == 1
    assert "1" in said


def test_an_unknown_flag_is_refused() -> None:
    code, said = run("--no-such-flag")
    assert code == 2
    assert "--no-such-flag" in said


@pytest.mark.parametrize(
    ("settings", "place", "hint"),
    [
        ("workerCounts: 4\n", ":3: workerCounts: ", "workerCount"),
        ("workerCount: many\n", ":3: workerCount: ", "'many'"),
        ("conflictPolicy: optimistic\n", ":3: conflictPolicy: ", "revalidate"),
        ("profiles:\n- plugins:\n    filter:\n      disabled:\n      - name: NodeFit\n",
         ":7: profiles[0].plugins.filter.disabled[0].name: ", "NodeResourcesFit"),
        ("leaderElection:\n  leaseDuration: 5s\n  renewDeadline: 6s\n",
         ":4: leaderElection.leaseDuration: ", "renewDeadline"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named_by_file_line_and_path_with_what_is_allowed(
    tmp_path: Path, settings: str, place: str, hint: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + settings)
    code, said = run("--config", str(file))
    assert code == 2
    assert said.startswith(f"agent-scheduler run: {file}{place}")
    assert hint in said
    assert said.count("\n") == 1


def test_flags_that_contradict_one_another_are_refused() -> None:
    code, said = run("--leader-elect-lease-duration", "30s")
    assert code == 2
    assert said.startswith("agent-scheduler run: --leader-elect-lease-duration: ")
    assert "--leader-elect" in said
    assert said.count("\n") == 1


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, said = run("--kubeconfig", str(tmp_path / "none"))
    assert code == 2
    assert said == f"agent-scheduler run: {tmp_path / 'none'}: no such kubeconfig\n"


async def test_a_port_that_is_taken_ends_the_scheduler_with_its_name(
    plane: ControlPlane, e2e_run: Run, start: Start
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        scheduler = start(port=port)
        assert await scheduler.ended() == 2
    last = scheduler.said().splitlines()[-1]
    assert f"cannot serve on 127.0.0.1 port {port}: " in last
    assert "Traceback" not in scheduler.said()
