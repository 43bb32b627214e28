"""What is tried and taken back leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.session.conf import SessionConf
from agent_scheduler.engine.session.model import JobInfo, TaskInfo, TaskStatus
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.session.statement import Statement

from .scene import Everything, Scene, conf, has, opened, sized

pytestmark = pytest.mark.promise("S29")

#: Statuses of tasks that a statement may evict.
RUNS = TaskStatus.RUNNING


def scene_with_pods() -> Scene:
    # Some are bound, and their containers have not started.
    phases = ((place, phase) for place in ("n0", "n1", "") for phase in ("", "Pending"))
    return sized(8, 8).holding(has("g", *({"node": place, "phase": phase} for place, phase in phases), minMember=2))


def opening(
    how: SessionConf | None = None, scene: Scene | None = None
) -> tuple[Session, JobInfo, TaskInfo, list[TaskInfo]]:
    """A session that is open, its job, a task that runs and those that wait."""
    session = opened((scene or scene_with_pods()).session(how))
    job = session.jobs["default/g"]
    return (session, job, next(iter(job.by_status[RUNS].values())), list(job.by_status[TaskStatus.PENDING].values()))


def state_of(session: Session, job: JobInfo) -> dict[str, Any]:
    columns = session.nodes.columns
    return {
        "taken": list(columns.taken),
        "statuses": {task.uid: (task.status, task.node_name, task.row) for task in job.tasks.values()},
        "allocated": {name: amount for name, amount in job.allocated.items() if amount},
        "ready": (job.ready, job.waiting, job.best_effort),
        "room": [[session.nodes.has_room(task, row) for row in range(columns.size)] for task in job.tasks.values()],
    }


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.booleans()), max_size=8))
def test_a_discarded_statement_leaves_the_session_as_it_was(steps: list[tuple[int, int, bool]]) -> None:
    session, job, *_ = opening()
    before = state_of(session, job)
    statement = Statement(session)
    tasks = list(job.tasks.values())
    for index, row, pipeline in steps:
        task = tasks[index]
        if task.status in (RUNS, TaskStatus.BOUND):
            statement.evict(task, "preempt")
        elif task.status is TaskStatus.PENDING and pipeline:
            statement.pipeline(task, row, evicting=True)
        elif task.status is TaskStatus.PENDING:
            assert statement.allocate(task, row, session.nodes.view(task))
    statement.discard()
    assert state_of(session, job) == before
    assert not statement.operations


def test_statements_may_be_taken_back_in_any_order() -> None:
    session, job, _, pending = opening()
    before = state_of(session, job)
    first, second = Statement(session), Statement(session)
    first.allocate(pending[0], 0, session.nodes.view(pending[0]))
    second.pipeline(pending[1], 1)
    first.discard()
    second.discard()
    assert state_of(session, job) == before


def test_a_task_remembers_what_was_tried_for_it_until_it_is_committed() -> None:
    session, _, _, (task, _) = opening()
    statement = Statement(session)
    statement.allocate(task, 1, session.nodes.view(task))
    statement.discard()
    assert task.attempt == (TaskStatus.ALLOCATED, "n1", False)
    statement.allocate(task, 0, session.nodes.view(task))
    statement.commit()
    assert task.attempt == (TaskStatus.BINDING, "n0", False)


def test_plugins_hear_of_every_step_and_of_its_undoing() -> None:
    session, _, runs, (waits, _) = opening(conf("gang"))
    heard: list[tuple[str, str]] = []
    session.allocated = (lambda task: heard.append(("allocated", task.pod.name)),)
    session.deallocated = (lambda task: heard.append(("deallocated", task.pod.name)),)
    statement = Statement(session)
    statement.evict(runs, "preempt")
    statement.pipeline(waits, 0, evicting=True)
    statement.discard()
    assert heard == [("deallocated", "g-0"), ("allocated", "g-4"), ("deallocated", "g-4"), ("allocated", "g-0")]


def test_a_commit_tells_plugins_first() -> None:
    session, _, running, (task, _) = opening(conf("gang"))
    seen: list[Sequence[TaskInfo]] = []
    session.cleanup_reservations = (seen.append,)
    statement = Statement(session)
    statement.evict(running, "preempt")
    statement.allocate(task, 0, session.nodes.view(task))
    statement.commit()
    assert seen == [[task]]


def test_an_eviction_that_is_refused_is_taken_back() -> None:
    scene = scene_with_pods()
    scene.cluster = Everything("g-0")
    session, job, runs, _ = opening(scene=scene)
    before = state_of(session, job)
    statement = Statement(session)
    statement.evict(runs, "reclaim")
    statement.commit()
    assert state_of(session, job) == before
    assert not session.evicted
    assert not session.events


def test_an_eviction_is_an_event_of_its_group() -> None:
    scene = scene_with_pods()
    session, job, runs, _ = opening(scene=scene)
    statement = Statement(session)
    statement.evict(runs, "reclaim")
    statement.commit()
    assert [(event.reason, event.message) for event in session.events] == [("Evict", "reclaim")]
    assert scene.cluster.evictions == [("g-0", "reclaim")]
    assert job.count(TaskStatus.RELEASING) == 1


def test_merged_steps_belong_to_one_statement() -> None:
    session, _, _, pending = opening()
    first, second = Statement(session), Statement(session)
    for statement, task in zip((first, second), pending, strict=True):
        statement.allocate(task, 0, session.nodes.view(task))
    first.merge(second)
    assert not second.operations
    first.discard()
    assert all(task.status is TaskStatus.PENDING for task in pending)
