"""The demo's stories."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.demo.story import HELD, WANTS_A_NODE, Line, line_of
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE


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
