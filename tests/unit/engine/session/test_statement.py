"""What is tried and taken back leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.session.hooks import Hooks
from agent_scheduler.engine.session.model import Job, TaskStatus
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.session.statement import Statement
from tests.support.engine import node

from .scene import Everything, Scene, conf, opened

pytestmark = pytest.mark.promise("S29")

#: Statuses of tasks that a statement may evict.
RUNS = TaskStatus.RUNNING


def scene_with_pods() -> Scene:
    scene = Scene(node("a", cpu="8"), node("b", cpu="8"))
    scene.group("g", minMember=2)
    for place in ("a", "b", ""):
        for phase in ("", "Pending"):
            # One that is bound, and whose containers have not started.
            scene.member("g", node=place, phase=phase)
    return scene


def state_of(session: Session, job: Job) -> dict[str, Any]:
    columns = session.nodes.columns
    return {
        "taken": list(columns.taken),
        "statuses": {task.uid: (task.status, task.node_name, task.row) for task in job.tasks.values()},
        "allocated": {name: amount for name, amount in job.allocated.items() if amount},
        "ready": (job.ready, job.waiting, job.best_effort),
        "room": [
            [session.nodes.has_room(task, row) for row in range(columns.size)] for task in job.tasks.values()
        ],
    }


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.booleans()), max_size=8))
def test_a_discarded_statement_leaves_the_session_as_it_was(steps: list[tuple[int, int, bool]]) -> None:
    session = opened(scene_with_pods().session())
    job = session.jobs["default/g"]
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
    session = opened(scene_with_pods().session())
    job = session.jobs["default/g"]
    before = state_of(session, job)
    first, second = Statement(session), Statement(session)
    pending = list(job.by_status[TaskStatus.PENDING].values())
    first.allocate(pending[0], 0, session.nodes.view(pending[0]))
    second.pipeline(pending[1], 1)
    first.discard()
    second.discard()
    assert state_of(session, job) == before


def test_a_task_remembers_what_was_tried_for_it_until_it_is_committed() -> None:
    session = opened(scene_with_pods().session())
    job = session.jobs["default/g"]
    task = next(iter(job.by_status[TaskStatus.PENDING].values()))
    statement = Statement(session)
    statement.allocate(task, 1, session.nodes.view(task))
    statement.discard()
    assert task.attempt == (TaskStatus.ALLOCATED, "b", False)
    statement.allocate(task, 0, session.nodes.view(task))
    statement.commit()
    assert task.attempt == (TaskStatus.BINDING, "a", False)


def test_plugins_hear_of_every_step_and_of_its_undoing() -> None:
    session = opened(scene_with_pods().session(conf("gang")))
    heard: list[tuple[str, str]] = []
    session.allocated = (lambda task: heard.append(("allocated", task.pod.name)),)
    session.deallocated = (lambda task: heard.append(("deallocated", task.pod.name)),)
    job = session.jobs["default/g"]
    runs = next(iter(job.by_status[RUNS].values()))
    waits = next(iter(job.by_status[TaskStatus.PENDING].values()))
    statement = Statement(session)
    statement.evict(runs, "preempt")
    statement.pipeline(waits, 0, evicting=True)
    statement.discard()
    assert heard == [
        ("deallocated", "g-0"),
        ("allocated", "g-4"),
        ("deallocated", "g-4"),
        ("allocated", "g-0"),
    ]


def test_a_commit_tells_plugins_first() -> None:
    session = opened(scene_with_pods().session(conf("gang")))
    seen: list[int] = []
    session.cleanup_reservations = (lambda statement: seen.append(len(statement.operations)),)
    job = session.jobs["default/g"]
    task = next(iter(job.by_status[TaskStatus.PENDING].values()))
    statement = Statement(session)
    statement.allocate(task, 0, session.nodes.view(task))
    statement.commit()
    assert seen == [1]
    assert Hooks().cleanup_reservations is None


def test_an_eviction_that_is_refused_is_taken_back() -> None:
    scene = scene_with_pods()
    scene.cluster = Everything("g-0")
    session = opened(scene.session())
    job = session.jobs["default/g"]
    before = state_of(session, job)
    statement = Statement(session)
    statement.evict(next(iter(job.by_status[RUNS].values())), "reclaim")
    statement.commit()
    assert state_of(session, job) == before
    assert not session.evicted
    assert not session.events


def test_an_eviction_is_an_event_of_its_group() -> None:
    scene = scene_with_pods()
    session = opened(scene.session())
    job = session.jobs["default/g"]
    statement = Statement(session)
    statement.evict(next(iter(job.by_status[RUNS].values())), "reclaim")
    statement.commit()
    assert [(event.reason, event.message) for event in session.events] == [("Evict", "reclaim")]
    assert scene.cluster.evictions == [("g-0", "reclaim")]
    assert job.count(TaskStatus.RELEASING) == 1


def test_merged_steps_belong_to_one_statement() -> None:
    session = opened(scene_with_pods().session())
    pending = list(session.jobs["default/g"].by_status[TaskStatus.PENDING].values())
    first, second = Statement(session), Statement(session)
    for statement, task in zip((first, second), pending, strict=True):
        statement.allocate(task, 0, session.nodes.view(task))
    first.merge(second)
    assert not second.operations
    first.discard()
    assert all(task.status is TaskStatus.PENDING for task in pending)
