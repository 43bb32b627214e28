"""`run --processes K`: a supervisor and its children as processes, in a burst and whatever signal they get."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from .conftest import Start
from .plane import ControlPlane
from .processes import PROGRAM, Scheduler
from .test_reload import profile, write

pytestmark = pytest.mark.e2e

TWO = ["--processes", "2"]
NODES = 6
PODS = 120


def children(scheduler: Scheduler) -> list[int]:
    """The processes that it has started and that run."""
    path = Path(f"/proc/{scheduler.process.pid}/task/{scheduler.process.pid}/children")
    return [int(each) for each in path.read_text().split()]


def runs(pid: int) -> bool:
    """Whether a process is there that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def prepared(plane: ControlPlane, *, cpu: str = "4") -> list[str]:
    for number in range(NODES):
        await plane.add_node(f"n{number}", cpu=cpu)
    return [f"p{number}" for number in range(PODS)]


async def binders(plane: ControlPlane, names: list[str]) -> dict[str, str]:
    """Pod -> who bound it, as its event says. Each has one such event."""
    found = {}
    for name in names:
        event = await plane.event(name, "Scheduled")
        assert len(plane.told(name, "Scheduled")) == 1
        found[name] = str(event["reportingInstance"])
    return found


def assert_none_is_over(placed: dict[str, str], *, most: int) -> None:
    assert max(Counter(placed.values()).values()) <= most


async def test_two_processes_bind_a_burst_and_no_node_is_used_by_both(
    plane: ControlPlane, start: Start
) -> None:
    names = await prepared(plane)
    scheduler = start(flags=TWO)
    await scheduler.ready()
    assert len(children(scheduler)) == 2
    await plane.add_pods(names)
    placed = await plane.bound(*names)
    bound_by = await binders(plane, names)
    users: dict[str, set[str]] = {}
    for name, node in placed.items():
        users.setdefault(node, set()).add(bound_by[name])
    assert all(len(each) == 1 for each in users.values()), users
    assert len(set(bound_by.values())) == 2
    plane.assert_never_moved()
    assert_none_is_over(placed, most=40)
    bound = {
        process: scheduler.metric("agent_scheduler_bind_outcomes_total", outcome="bound", process=process)
        for process in ("0", "1")
    }
    assert sum(bound.values()) == PODS
    assert min(bound.values()) > 0
    assert scheduler.json("/debug/queue")["items"] == []
    assert scheduler.json("/debug/cache")["nodes"] >= NODES
    assert scheduler.get("/debug/explain?pod=none/none")[0] == 404
    assert scheduler.json("/configz")["configuration"]["processes"] == 2
    assert await scheduler.terminate() == 0


async def test_pods_for_one_node_are_all_bound_whoever_has_it(plane: ControlPlane, start: Start) -> None:
    await prepared(plane)
    await plane.add_node("only", cpu="64", labels={"only": "here"})
    scheduler = start(flags=TWO)
    await scheduler.ready()
    names = [f"s{number}" for number in range(40)]
    await plane.add_pods(names, select={"only": "here"})
    await plane.add_pod("hopeless", cpu="99", select={"only": "here"})
    placed = await plane.bound(*names)
    assert set(placed.values()) == {"only"}
    assert len(set((await binders(plane, names)).values())) == 1
    await plane.refused(
        "hopeless", message=await plane.fit_error({"Insufficient cpu": 1, AFFINITY_OF_MINE: NODES})
    )
    await scheduler.until(
        lambda: scheduler.metric("agent_scheduler_lent_pods_total", result="bound") > 0, "lent pods"
    )


AFFINITY_OF_MINE = "node(s) didn't match Pod's node affinity/selector"


async def test_a_child_that_is_killed_in_a_burst_loses_no_pod_and_is_started_again(
    plane: ControlPlane, start: Start
) -> None:
    names = await prepared(plane, cpu="2")
    scheduler = start(flags=TWO)
    await scheduler.ready()
    before = children(scheduler)
    adding = asyncio.create_task(plane.add_pods(names))
    await plane.pods.until(lambda: len(plane.placed()) >= 10, "10 pods on nodes")
    os.kill(before[0], signal.SIGKILL)
    await adding
    placed = await plane.bound(*names)
    plane.assert_never_moved()
    # 20 pods of 100m fit on a node of 2 CPUs, and there is room for no more than all.
    assert_none_is_over(placed, most=20)
    await scheduler.until(lambda: len(children(scheduler)) == 2 and scheduler.is_ready(), "another child")
    assert before[0] not in children(scheduler)
    assert scheduler.metric("agent_scheduler_children_ended_total") == 1
    await plane.add_node("late", cpu="4")
    await plane.add_pods(["more"])
    await plane.bound("more")


async def amid_binds(plane: ControlPlane, start: Start) -> tuple[Scheduler, list[int]]:
    """One that is slow enough to have bound some of its pods and not all, and its children."""
    names = await prepared(plane)
    scheduler = start(flags=TWO, config={"clientConnection": {"qps": 60, "burst": 1}})
    await scheduler.ready()
    there = children(scheduler)
    await plane.add_pods(names)
    await plane.pods.until(lambda: len(plane.placed()) >= 10, "10 pods on nodes")
    return scheduler, there


async def test_a_supervisor_that_is_killed_leaves_nobody_and_nothing_is_written_after_it(
    plane: ControlPlane, start: Start
) -> None:
    scheduler, left = await amid_binds(plane, start)
    assert await scheduler.terminate(signal.SIGKILL) == -signal.SIGKILL
    await plane.pods.until(lambda: not any(map(runs, left)), "the end of the children")
    bound = len(plane.placed())
    await plane.add_node("new")
    await plane.add_pod("new", select={})
    await asyncio.sleep(0.3)
    placed = plane.placed()
    assert "new" not in placed
    assert bound <= len(placed) < PODS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all_in_order(plane: ControlPlane, start: Start, number: signal.Signals) -> None:
    scheduler, left = await amid_binds(plane, start)
    assert await scheduler.terminate(number) == 0
    assert not any(map(runs, left))
    assert len(scheduler.records("stopped")) == 3
    assert not scheduler.records("grace is over")
    assert {each.get("process") for each in scheduler.records("stopped")} == {0, 1, None}
    assert "Traceback" not in scheduler.said()


async def test_a_changed_file_reaches_all_processes(
    plane: ControlPlane, start: Start, tmp_path: Path
) -> None:
    running = start(flags=TWO)
    await running.ready()
    for number in range(2):
        await plane.add_node(f"n{number}", cpu="1", taints=[{"key": "a", "effect": "NoSchedule"}])
    names = [f"p{number}" for number in range(10)]
    await plane.add_pods(names)
    for name in names:
        await plane.refused(name)
    tolerant = profile(plane, plugins={"multiPoint": {"disabled": [{"name": "TaintToleration"}]}})
    write(tmp_path / "scheduler.yaml", tolerant)
    running.send(signal.SIGHUP)
    assert set((await plane.bound(*names)).values()) == {"n0", "n1"}
    assert len(set((await binders(plane, names)).values())) == 2
    # One that cannot be used is refused before any process hears of it.
    write(tmp_path / "scheduler.yaml", {**tolerant, "workerCount": 7})
    running.send(signal.SIGHUP)
    (told,) = await running.until(lambda: running.records("configuration refused"), "refusal")
    assert told["problem"] == "workerCount: cannot change while the process runs; restart it"
    assert len(children(running)) == 2


def refused(*flags: str) -> str:
    ended = subprocess.run([*PROGRAM, "run", *flags], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    return line


@pytest.mark.parametrize("value", ["0", "-1", "two", "65"])
def test_a_wrong_number_of_processes_is_one_error(value: str) -> None:
    line = refused(f"--processes={value}")
    assert line.startswith("agent-scheduler run: --processes: ")
    assert value in line


def test_what_no_process_could_use_is_refused_once(tmp_path: Path) -> None:
    line = refused("--processes=3", "--kubeconfig", str(tmp_path / "none"))
    assert str(tmp_path / "none") in line
