"""The demo as a user runs it: cluster, scheduler and load in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEMO = (sys.executable, "-m", "agent_scheduler", "demo")


def run(*flags: str, folder: Path) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [*DEMO, *flags, "--json"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout, done.stderr
    values: dict[str, object] = json.loads(done.stdout)
    return done.returncode, values


def test_a_burst_is_bound_whole_and_reported(tmp_path: Path) -> None:
    code, values = run("--nodes", "20", "--pods", "200", "--rate", "400", "--report", "r/page.html", folder=tmp_path)
    assert values["failures"] == []
    assert (code, values["ok"], values["created"], values["bound"]) == (0, True, 200, 200)
    assert values["gangs"] == {"training": 6, "evaluation": 6}
    assert "<svg" in (tmp_path / "r" / "page.html").read_text()


@pytest.mark.wide
def test_a_trace_with_pods_that_fit_nowhere_is_ok_and_says_which(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\ncpu-node,8000,16384,0,\ngpu-node,8000,16384,2,T4\n"
    )
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
    # Three shares of 0.6 on two cards: by their sum they would fit, on cards the third does not.
    pods += "".join(f"share-{number},100,100,1,600,T4,{number},99\n" for number in range(3))
    pods += "small,100,100,0,0,,4,99\nhuge,64000,100,0,0,,5,99\nelsewhere,1,1,1,1000,G2,6,99\n"
    (tmp_path / "pods.csv").write_text(pods)
    code, values = run("--trace", "openb:nodes.csv,pods.csv", "--no-report", folder=tmp_path)
    assert values["failures"] == []
    assert (code, values["created"], values["bound"]) == (0, 6, 3)
    assert values["gangs"] == {}
    refused = values["refused"]
    assert isinstance(refused, dict)
    assert sum(refused.values()) == 3
    hopeless = values["hopeless"]
    assert hopeless == {"no empty node has enough of cpu": 1, "no node has alibabacloud.com/gpu-card-model in G2": 1}


@pytest.mark.wide
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "--nodes", "10", "--pods", "100000", "--rate", "50", "--no-report"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        # In the background of a shell, SIGINT is ignored by the tests and by the processes that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - it only sets a signal
    )
    try:
        assert process.stdout is not None
        end = time.monotonic() + 60
        while "bound" not in process.stdout.readline():
            assert time.monotonic() < end
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
        process.send_signal(signal.SIGINT)
        # A busy machine takes its time.
        assert process.wait(200) == 130
        for child in children:
            with pytest.raises(ProcessLookupError):
                os.kill(int(child), 0)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.wide
@pytest.mark.parametrize(("story", "ends"), [("gates", "One node was added"), ("jobs", "Completed: each task")])
def test_a_story_is_told_and_holds(tmp_path: Path, story: str, ends: str) -> None:
    done = subprocess.run(
        [*DEMO, "--story", story], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ends in done.stdout.splitlines()[-1]
