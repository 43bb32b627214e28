"""A job's counts are what its tasks say, whatever has happened to them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.session.model import HOLDING, READY, Job, Task, TaskStatus, status_of
from tests.support.engine import node

from .scene import Scene, opened


def job_with(*kinds: tuple[str, str, str]) -> Job:
    """(cpu, role, sub-group) of each pod."""
    scene = Scene(node("a"))
    policy = {"name": "p", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["part"]}
    scene.group("g", minMember=3, minTaskMember={"x": 1, "y": 1}, subGroupPolicy=[policy])
    for cpu, role, part in kinds:
        labels = {"part": part} if part else {}
        scene.member("g", cpu=cpu, annotations={"volcano.sh/task-spec": role} if role else {}, labels=labels)
    return opened(scene.session()).jobs["default/g"]


KINDS = st.tuples(
    st.sampled_from(["", "1", "2"]), st.sampled_from(["", "x", "y"]), st.sampled_from(["", "0", "1"])
)


@given(st.data())
def test_counts_follow_statuses(data: st.DataObject) -> None:
    job = job_with(*data.draw(st.lists(KINDS, min_size=1, max_size=6)))
    tasks = list(job.tasks.values())
    for index, status in data.draw(
        st.lists(st.tuples(st.integers(0, len(tasks) - 1), st.sampled_from(TaskStatus)), max_size=12)
    ):
        job.set_status(tasks[index], status)
    statuses = Counter(task.status for task in tasks)
    assert {status: len(job.by_status[status]) for status in TaskStatus} == {
        status: statuses[status] for status in TaskStatus
    }
    assert job.ready == sum(statuses[status] for status in READY)
    assert job.waiting == statuses[TaskStatus.PIPELINED]
    free = [task for task in tasks if task.best_effort and task.status is TaskStatus.PENDING]
    assert job.best_effort == len(free)
    held = sum(task.request.get("cpu", 0) for task in tasks if task.status in HOLDING)
    assert job.allocated.get("cpu", 0) == held
    for role in ("x", "y"):
        of_role = [task for task in tasks if task.role == role]
        assert job.in_role(role, READY) == sum(task.status in READY for task in of_role)
        assert job.in_role(role, (), best_effort=True) == sum(task in free for task in of_role)
    for sub_job in job.sub_jobs.values():
        assert sub_job.ready == sum(task.status in READY for task in sub_job.tasks.values())


def test_members_in_no_sub_group_are_one_of_their_own() -> None:
    job = job_with(("1", "", "0"), ("1", "", ""), ("1", "", "0"))
    assert {sub_job.policy: len(sub_job.tasks) for sub_job in job.sub_jobs.values()} == {"p": 2, "": 1}


def test_a_sub_group_has_the_number_that_its_first_label_is() -> None:
    job = job_with(*(("1", "", part) for part in ("7", "x", "-3", "1x", "")))
    assert [sub_job.index for sub_job in job.sub_jobs.values()] == [7, 0, -3, 0, 0]


@pytest.mark.parametrize(
    ("phase", "place", "deleting", "status"),
    [
        ("Pending", "", False, TaskStatus.PENDING),
        ("Pending", "a", False, TaskStatus.BOUND),
        ("Pending", "a", True, TaskStatus.RELEASING),
        ("Pending", "", True, TaskStatus.RELEASING),
        ("Running", "a", False, TaskStatus.RUNNING),
        ("Running", "a", True, TaskStatus.RELEASING),
        ("Succeeded", "a", False, TaskStatus.SUCCEEDED),
        ("Failed", "a", True, TaskStatus.FAILED),
        ("Unknown", "a", False, TaskStatus.UNKNOWN),
    ],
)
def test_a_phase_says_the_status(phase: str, place: str, deleting: bool, status: TaskStatus) -> None:
    scene = Scene(node("a"))
    scene.group("g")
    assert status_of(scene.member("g", node=place, phase=phase, deleting=deleting)) is status


def test_a_task_may_have_a_priority_of_its_own_among_its_group() -> None:
    scene = Scene(node("a"))
    scene.group("g")
    scene.member("g", priority=7)
    scene.member("g", priority=7, annotations={"volcano.sh/task-priority": "9"})
    tasks = opened(scene.session()).jobs["default/g"].tasks.values()
    assert [task.priority for task in tasks] == [7, 9]


def test_a_pod_that_says_nothing_of_a_batch_is_a_task_like_any_other() -> None:
    scene = Scene(node("a"))
    scene.group("g")
    pod = scene.pod("plain", priority=7)
    assert pod.batch is None
    task = Task(pod, opened(scene.session()).jobs["default/g"], {}, best_effort=False)
    assert (task.role, task.priority, task.preemptable, task.gate_managed) == ("", 7, True, False)
    assert task.status is TaskStatus.PENDING


def test_only_gates_of_others_keep_a_request_from_counting() -> None:
    scene = Scene(node("a"))
    scene.group("g")
    scene.member("g", cpu="1", schedulingGates=[{"name": "scheduling.volcano.sh/queue-allocation-gate"}])
    scene.member("g", cpu="2", schedulingGates=[{"name": "example.com/wait"}])
    job = opened(scene.session()).jobs["default/g"]
    assert job.gated_request()["cpu"] == 2000
