"""Children that are processes of the operating system: where they have their modules from, and what signals do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import agent_scheduler
from agent_scheduler.processes.channel import Channel
from agent_scheduler.processes.spawning import Spawner
from agent_scheduler.processes.wire import Alive, Hello, Lead, Report, read_report

from .world import HEAD, eventually

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""

START = """
import asyncio, sys
from agent_scheduler.processes.spawning import Spawner

async def start():
    child, way = await Spawner(["run"])(0)
    way.close()
    return await child.ended()

sys.exit(asyncio.run(start()))
"""


@pytest.mark.parametrize(("as_module", "code"), [(False, 1), (True, 7)])
def test_a_child_has_its_modules_from_where_its_supervisor_has_them(
    tmp_path: Path, as_module: bool, code: int
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
        (folder / "start.py").write_text(START)
    (here / "uvloop.py").write_text("raise SystemExit(7)\n")
    ended = subprocess.run(
        [sys.executable, *(["-m", "start"] if as_module else [str(elsewhere / "start.py")])],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(Path(agent_scheduler.__file__).parents[1])},
        timeout=60,
        check=False,
    )
    # A child without a supervisor ends with 1.
    assert ended.returncode == code


async def test_signals_that_all_processes_get_end_a_child_in_order_or_are_not_for_it(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    child, end = await Spawner(["run"])(0)
    heard: list[Report] = []
    over = asyncio.Event()
    way = Channel[Report](read_report, told=heard.append, ended=over.set)
    try:
        await way.over(end)
        way.say(Hello(0, "me-0", f"{HEAD}clientConnection: {{kubeconfig: {kubeconfig}}}\n"))
        await _answers(way, heard)
        send: Callable[[signal.Signals], None] = child._process.send_signal
        send(signal.SIGHUP)
        await asyncio.sleep(0.1)
        await _answers(way, heard)
        send(signal.SIGINT)
        assert await asyncio.wait_for(child.ended(), 30) == 0
        await over.wait()
    finally:
        child.kill()
        way.close()
        await child.ended()


async def _answers(way: Channel[Report], heard: list[Report]) -> None:
    heard.clear()
    way.say(Lead(0.0))
    await eventually(lambda: Alive() in heard, True)
