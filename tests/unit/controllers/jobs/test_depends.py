"""Which tasks of a Job wait for others: `dependsOn` names `a`, `b` and `c`, of which `a` needs two pods."""

from __future__ import annotations

import msgspec
import pytest

from agent_scheduler.controllers.jobs.depends import is_ready, waiting_roles, waiting_tasks
from agent_scheduler.objects.job import Job
from agent_scheduler.objects.job_pod import JobPod
from tests.support.objects import job, pod, stored, task

A, B, C = "a (0 of 2 ready)", "b (0 of 1 ready)", "c (0 of 1 ready)"


def waits(names: list[str], iteration: str, *pods: tuple[str, str]) -> tuple[str, bool] | None:
    """What task `w` waits for, and whether in vain; None where it does not wait. `pods`: names and phases."""
    depends = {"name": names, "iteration": iteration}
    body = job("j", task("a", 2, minimum=2), task("b"), task("c"), task("w", dependsOn=depends), namespace="d")
    found = {}
    for name, phase in pods:
        annotations = {"volcano.sh/task-spec": name.split("-")[0]}
        one = stored(pod(f"j-{name}", namespace="d", annotations=annotations, phase=phase))
        found[f"j-{name}"] = msgspec.json.decode(msgspec.json.encode(one), type=JobPod)
    waiting = waiting_tasks(msgspec.json.decode(msgspec.json.encode(stored(body)), type=Job), found).get("w")
    return None if waiting is None else (str(waiting).partition(" for ")[2], "in vain" in str(waiting))


@pytest.mark.promise("S35", "JOB-7")
@pytest.mark.parametrize(
    ("names", "iteration", "pods", "expected"),
    [
        (["a"], "all", [], (A, False)),
        (["a"], "all", [("a-0", "Succeeded")], ("a (1 of 2 ready)", False)),
        (["a"], "all", [("a-0", "Succeeded"), ("a-1", "Succeeded")], None),
        (["a"], "all", [("a-0", "Succeeded"), ("a-1", "Failed")], ("a (1 of 2 ready)", True)),
        (["a", "b", "c"], "all", [("b-0", "Succeeded")], (f"{A}, {C}", False)),
        (["b", "c"], "all", [("b-0", "Failed")], (f"{B}, {C}", True)),
        (["a", "b", "c"], "any", [], (f"{A} or {B} or {C}", False)),
        (["a", "b", "c"], "any", [("c-0", "Succeeded")], None),
        (["b", "c"], "any", [("b-0", "Failed")], (f"{B} or {C}", False)),
        (["b", "c"], "any", [("b-0", "Failed"), ("c-0", "Failed")], (f"{B} or {C}", True)),
        # A name that is given twice counts once; one of no task counts nowhere.
        (["b", "b"], "any", [], (B, False)),
        (["b", "none"], "any", [], (B, False)),
        (["none"], "all", [], None),
    ],
)
def test_a_task_waits_for_all_that_it_names_or_any_of_them(
    names: list[str], iteration: str, pods: list[tuple[str, str]], expected: tuple[str, bool] | None
) -> None:
    assert waits(names, iteration, *pods) == expected


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    status = {"phase": "Running", "containerStatuses": [{"ready": True}]}
    for deleted in ("", "2026-01-01T00:00:00Z"):
        found = pod("p", status=status, deleted=deleted)
        assert is_ready(msgspec.json.decode(msgspec.json.encode(found), type=JobPod)) is (not deleted)


@pytest.mark.parametrize(("version", "expected"), [("1", ["w"]), ("2", [])])
def test_pods_that_ran_before_a_restart_of_the_job_do_not_count_for_its_new_group(
    version: str, expected: list[str]
) -> None:
    body = job("j", task("a"), task("w", dependsOn={"name": ["a"]}), namespace="d", status={"version": 2})
    annotations = {"volcano.sh/task-spec": "w", "volcano.sh/job-version": version}
    ran = stored(pod("j-w-0", namespace="d", annotations=annotations, phase="Succeeded"))
    pods = {"j-w-0": msgspec.json.decode(msgspec.json.encode(ran), type=JobPod)}
    assert waiting_roles(msgspec.json.decode(msgspec.json.encode(stored(body)), type=Job), None, pods) == expected
