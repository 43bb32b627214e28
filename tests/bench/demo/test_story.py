"""The demo's stories."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from bench.demo.job_story import Seen, Task, Together, contradiction
from bench.demo.story import HELD, WANTS_A_NODE, Line, line_of


def pod(phase: str = "Pending", reason: str = "", *, gated: bool = False, node: str = "") -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False" if reason else "True", "reason": reason}
    return {
        "spec": {
            "schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}] if gated else None,
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": phase, "conditions": [condition]},
    }


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (pod(reason="SchedulingGated", gated=True), HELD),
        (pod(reason="Unschedulable"), WANTS_A_NODE),
        (pod("Running", node="n"), Line("Running", "", "", "n")),
        ({"spec": {}, "status": {"phase": "Pending"}}, Line("Pending", "", "", "")),
    ],
)
def test_a_pod_is_shown_by_phase_condition_gates_and_node(shown: dict[str, Any], line: Line) -> None:
    assert line_of(shown) == line


def seen(**tasks: Task) -> Seen:
    return Seen("Running", "", {"master": Task(), "worker": Task(), "report": Task()} | tasks)


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        (seen(), ""),
        (seen(master=Task(1, 1, 1), worker=Task(3, 2, 0), report=Task()), ""),
        (seen(master=Task(1, 1, 0, 1), worker=Task(3, 3, 1, 2), report=Task(2, 2, 2)), ""),
        (seen(master=Task(1, 1), worker=Task(1)), "workers exist before their master runs"),
        (
            seen(master=Task(1, 1, 1), worker=Task(3, 3, 1), report=Task(1)),
            "the report is created before the workers run",
        ),
    ],
)
def test_a_job_of_which_a_task_comes_too_early_is_no_story(shown: Seen, problem: str) -> None:
    assert contradiction(shown) == problem


def test_workers_may_be_bound_one_after_the_other_but_not_stay_fewer_than_they_need() -> None:
    one, two = (seen(master=Task(1, 1, 1), worker=Task(3, bound)) for bound in (1, 2))
    together = Together()
    assert [together.contradiction(each, at) for each, at in ((one, 1.0), (one, 5.0), (two, 5.5), (one, 9.0))] == [
        ""
    ] * 4
    assert together.contradiction(one, 14.1) == "fewer workers are bound than they need"
