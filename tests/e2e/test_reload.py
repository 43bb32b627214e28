"""Changes of the configuration file while the scheduler runs are applied or refused, and no pod is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import BUDGETS, Start
from .plane import ControlPlane
from .processes import Scheduler

HEADER = {"apiVersion": "agent-scheduler/v1", "kind": "SchedulerConfiguration"}
_PREFIX = "agent_scheduler_config"


def write(file: Path, config: dict[str, Any]) -> None:
    """Replace the file by a new one, like an editor."""
    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump({**HEADER, **BUDGETS, **config}))
    os.replace(new, file)


def profile(plane: ControlPlane, **more: Any) -> dict[str, Any]:
    return {"profiles": [{"schedulerName": plane.scheduler_name, **more}]}


async def applied(scheduler: Scheduler, times: int) -> dict[str, Any]:
    records = await scheduler.until(
        lambda: (found := scheduler.records("configuration applied"))[times - 1 :] and found,
        f"{times} changes that were applied",
    )
    return records[times - 1]


async def test_a_pod_that_the_old_profile_refused_is_bound_under_the_new_one(
    plane: ControlPlane, start: Start, tmp_path: Path
) -> None:
    running = start()
    await running.ready()
    assert running.metric(f"{_PREFIX}_last_reload_successful") == 1
    loaded = running.metric(f"{_PREFIX}_last_reload_success_timestamp_seconds")
    await plane.add_node("n1", taints=[{"key": "a", "effect": "NoSchedule"}])
    await plane.add_pod("p")
    await plane.refused("p")
    write(
        tmp_path / "scheduler.yaml", profile(plane, plugins={"multiPoint": {"disabled": [{"name": "TaintToleration"}]}})
    )
    assert (await applied(running, 1))["changed"] == ["profiles"]
    assert await plane.bound("p") == {"p": "n1"}
    assert running.metric(f"{_PREFIX}_reloads_total", result="applied") == 1
    assert running.metric(f"{_PREFIX}_last_reload_success_timestamp_seconds") > loaded
    shown = running.json("/configz")["configuration"]["profiles"][0]["plugins"]["multiPoint"]["disabled"]
    assert shown == [{"name": "TaintToleration"}]


@pytest.mark.promise("L9")
async def test_a_file_that_cannot_be_used_is_refused_and_the_old_configuration_stays(
    plane: ControlPlane, start: Start, tmp_path: Path
) -> None:
    running = start(config={"workerCount": 2})
    await running.ready()
    before = running.json("/configz")
    file = tmp_path / "scheduler.yaml"
    write(file, {**profile(plane), "workerCount": 2, "conflictPolicy": "lenient"})
    (told,) = await running.until(lambda: running.records("configuration refused"), "refusal")
    assert told["problem"].endswith("conflictPolicy: found 'lenient'; allowed: revalidate, strict")
    write(file, {**profile(plane), "workerCount": 3, "conflictPolicy": "strict"})
    running.send(signal.SIGHUP)
    await running.until(lambda: len(running.records("configuration refused")) == 2, "second refusal")
    told = running.records("configuration refused")[1]
    assert told["problem"] == "workerCount: cannot change while the process runs; restart it"
    assert running.metric(f"{_PREFIX}_reloads_total", result="refused") == 2
    assert running.metric(f"{_PREFIX}_last_reload_successful") == 0
    assert running.json("/configz") == before
    await plane.add_node("n1")
    await plane.add_pod("p")
    await plane.bound("p")
    write(file, {**profile(plane), "workerCount": 2, "conflictPolicy": "strict", "logging": {"level": "debug"}})
    running.send(signal.SIGHUP)
    assert sorted((await applied(running, 1))["changed"]) == ["conflictPolicy", "logging.level"]
    assert running.metric(f"{_PREFIX}_last_reload_successful") == 1
