"""The benchmarks as a user runs them: on a cluster of their own, and on an existing one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.harness.manifests import MARK
from tests.support.embedded import until
from tests.support.places import ROOT

from .plane import ControlPlane
from .processes import Scheduler

SCENARIOS = (sys.executable, "-m", "bench.scenarios")
RATES = ("rates", "--case", "100/s", "--scheduler-name", "nobody")
#: Objects that benchmarks create besides pods, which are in their namespaces.
MADE = (
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/resource.k8s.io/v1/resourceslices",
)


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SCENARIOS, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A process of a shell's background has SIGINT ignored, and so would this child.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no lock is taken
    )


async def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = await asyncio.to_thread(process.communicate, timeout=300)
    return process.returncode, out, err


async def made(plane: ControlPlane) -> list[str]:
    """Return the names of objects that benchmarks have created and not removed; a namespace may take longer."""
    found = [each for path in MADE for each in await plane.items(f"{path}?labelSelector={MARK}%3Dtrue")]
    return [each["metadata"]["name"] for each in found if not each["metadata"].get("deletionTimestamp")]


def runs(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_a_scenario_runs_on_a_cluster_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    code, out, err = await ended(start("steady", "--case", "20,000", "--scale", "0.005", "--runs", "1", "--json", file))
    assert code == 0, err
    (run,) = runs(file)
    figures = run["figures"]
    assert (figures["pods"], run["nodes"], run["refused"]) == (30, 5, [])
    assert 0 < figures["latency"]["p50"] <= figures["latency"]["p99"] <= figures["latency"]["most"]
    assert figures["flushed"] == 0
    assert figures["bare_per_second"] > 0
    assert figures["peak_mb"] > 10
    assert "| 20,000 waiting (x 0.005) | 1 | 30 |" in out


@pytest.mark.wide
async def test_a_scenario_runs_on_a_cluster_that_is_there_and_leaves_nothing(
    plane: ControlPlane, scheduler: Scheduler, e2e_kubeconfig: Path, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    there = ("--kubeconfig", e2e_kubeconfig, "--scheduler-name", plane.run.scheduler_name)
    metrics = ("--metrics-url", f"http://127.0.0.1:{scheduler.port}/metrics")
    # Without controllers no claims are created from templates.
    name = "claim-templates" if plane.run.embedded else "topology-spreading"
    process = start(name, *there, *metrics, "--make-nodes", "--scale", "0.01", "--runs", "1", "--json", file)
    code, _, err = await ended(process)
    assert code == 0, err
    assert [(run["nodes"], run["figures"]["pods"]) for run in runs(file)] == [(5, 10), (50, 50)]
    assert [run["case"] for run in runs(file)] == ["500 nodes (x 0.01)", "5,000 nodes (x 0.01)"]
    assert all(run["figures"]["flushed"] == 0 for run in runs(file))
    assert await made(plane) == []


@pytest.mark.wide
async def test_pods_that_nobody_binds_are_refused_in_time_and_removed(
    plane: ControlPlane, e2e_kubeconfig: Path, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    short = ("--scale", "0.01", "--patience", "3", "--runs", "1", "--json", file, "--make-nodes")
    code, out, err = await ended(start(*RATES, "--kubeconfig", e2e_kubeconfig, *short))
    assert code == 1, err
    (run,) = runs(file)
    assert run["figures"] is None
    (refused,) = run["refused"]
    # On a busy machine not all may have been created by then.
    assert re.fullmatch(r"not through after 3 s: arriving: \d+ of 20 created, 0 bound", refused)
    assert "**Refused**: 100/s (x 0.01), run 1: not through after 3 s" in out
    assert await made(plane) == []


@pytest.mark.wide
async def test_a_scenario_that_is_interrupted_removes_what_it_made(plane: ControlPlane, e2e_kubeconfig: Path) -> None:
    process = start(*RATES, "--kubeconfig", e2e_kubeconfig, "--make-nodes", "20")
    try:

        async def begun() -> bool:
            return len(await made(plane)) > 20

        await until(begun)
        process.send_signal(signal.SIGINT)
        code, _, err = await ended(process)
    finally:
        process.kill()
    assert code == 130, err
    assert "Traceback" not in err
    assert await made(plane) == []
