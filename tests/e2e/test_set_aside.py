"""An object whose handling kills the installed scheduler is set aside at the third start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .conftest import Start
from .plane import ControlPlane

#: Ends a scheduler without a farewell in the decision on a pod whose name begins with `killer`.
KILLS = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "agent_scheduler.fastpath.scheduler":
            sys.meta_path.remove(self)
            from agent_scheduler.fastpath.worker import Worker
            decide = Worker._decide
            def killed(self, pod, *arguments):
                if pod.name.startswith("killer"):
                    os.kill(os.getpid(), signal.SIGKILL)
                return decide(self, pod, *arguments)
            Worker._decide = killed

sys.meta_path.insert(0, Finder())
"""


async def test_a_pod_in_whose_decision_the_process_is_killed_is_set_aside_at_the_third_start(
    plane: ControlPlane, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(KILLS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    config = {"stateDirectory": str(tmp_path)}
    await plane.add_node("n", cpu="4")
    await plane.add_pod("killer")
    for _ in range(2):
        assert await start(config=config).ended() == -signal.SIGKILL
    scheduler = start(config=config)
    await plane.add_pod("good")
    await plane.bound("good")
    said = await plane.pods.until(lambda: plane.condition("killer"), "the condition of the other one")
    assert said["reason"] == "SchedulerError"
    assert "the process ended 2 times" in said["message"]
    assert scheduler.metric("agent_scheduler_objects_set_aside_total") == 1
    # The second and the third process begin with it.
    assert ["/killer" in each["key"] for each in scheduler.records("ended in a step")] == [True, True]
    assert await scheduler.terminate() == 0
