"""Which tasks of a Job wait for others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.controllers.jobs.depends import is_ready, waiting_tasks
from agent_scheduler.objects.job import Job
from agent_scheduler.objects.job_pod import JobPod
from tests.support.objects import job, pod, task


def waiting(depends_on: dict[str, Any], running: str, *, failed: str = "") -> list[str]:
    """What `c` waits for, of a Job with `a` and `b` of two pods and a minimum of one. `running`, `failed`: pods."""
    tasks = [task("a", 2, 1), task("b", 2, 1), task("c", 1, 1, dependsOn=depends_on)]
    body = job("j", *tasks, minimum=1, namespace="default", uid="u")
    pods = {}
    for phase, names in (("Running", running), ("Failed", failed)):
        for name in names.split():
            of_task = name.split("-")[1]
            found = pod(
                name,
                annotations={"volcano.sh/task-spec": of_task},
                status={"phase": phase, "containerStatuses": [{"ready": True}]},
            )
            pods[name] = msgspec.json.decode(msgspec.json.encode(found), type=JobPod)
    found = waiting_tasks(msgspec.json.decode(msgspec.json.encode(body), type=Job), pods)
    return [f"{each}{' in vain' if each.in_vain else ''}" for each in found.values()]


@pytest.mark.parametrize(
    ("depends_on", "running", "expected"),
    [
        ({"name": ["a", "b"]}, "", ["c waits for a (0 of 1 ready), b (0 of 1 ready)"]),
        ({"name": ["a", "b"]}, "j-a-0", ["c waits for b (0 of 1 ready)"]),
        ({"name": ["a", "b"]}, "j-a-0 j-b-1", []),
        ({"name": ["a", "b"], "iteration": "any"}, "", ["c waits for a (0 of 1 ready) or b (0 of 1 ready)"]),
        ({"name": ["a", "b"], "iteration": "any"}, "j-b-0", []),
        # One name given twice is one task, which is not ready.
        ({"name": ["a", "a"], "iteration": "any"}, "", ["c waits for a (0 of 1 ready)"]),
        ({"name": ["a", "a", "b"], "iteration": "any"}, "j-b-0", []),
        # No task has this name, so that no pod of it will ever be ready.
        ({"name": ["a", "none"], "iteration": "any"}, "", ["c waits for a (0 of 1 ready)"]),
        ({"name": ["none"]}, "", []),
    ],
    ids=str,
)
def test_a_task_waits_until_the_minimums_of_those_that_it_names_are_ready(
    depends_on: dict[str, Any], running: str, expected: list[str]
) -> None:
    assert waiting(depends_on, running) == expected


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    status = {"phase": "Running", "containerStatuses": [{"ready": True}]}
    for deleted in ("", "2026-01-01T00:00:00Z"):
        found = pod("p", status=status, deleted=deleted)
        assert is_ready(msgspec.json.decode(msgspec.json.encode(found), type=JobPod)) is (not deleted)


@pytest.mark.parametrize(
    ("depends_on", "failed", "in_vain"),
    [
        ({"name": ["a", "b"]}, "j-a-0", False),
        ({"name": ["a", "b"]}, "j-a-0 j-a-1", True),
        ({"name": ["a", "b"], "iteration": "any"}, "j-a-0 j-a-1", False),
        ({"name": ["a", "b"], "iteration": "any"}, "j-a-0 j-a-1 j-b-0 j-b-1", True),
    ],
    ids=str,
)
def test_a_task_waits_in_vain_once_too_many_of_the_pods_that_it_needs_have_failed(
    depends_on: dict[str, Any], failed: str, in_vain: bool
) -> None:
    (found,) = waiting(depends_on, "", failed=failed)
    assert found.endswith(" in vain") is in_vain
