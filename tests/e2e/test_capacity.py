"""Capacity is never exceeded, and never left unused by a pod that fits: judged from the API's own objects."""

from __future__ import annotations

import pytest

from .conftest import Start
from .plane import ControlPlane

NODES, FULL = 6, 20


@pytest.mark.parametrize("policy", ["revalidate", pytest.param("strict", marks=pytest.mark.wide)])
@pytest.mark.promise("S1", "S2")
async def test_eight_racing_workers_fill_every_node_to_the_brim_and_none_beyond(
    plane: ControlPlane, start: Start, policy: str
) -> None:
    scheduler = start(config={"workerCount": 8, "conflictPolicy": policy})
    await scheduler.ready()
    for number in range(NODES):
        await plane.add_node(f"n{number}", cpu="4", pods=str(FULL + 5))
    names = [f"p{number}" for number in range(NODES * FULL + 10)]
    await plane.add_pods(names, cpu="200m")
    await plane.pods.until(
        lambda: (
            len(plane.placed()) >= NODES * FULL
            and sum((plane.condition(name) or {}).get("reason") == "Unschedulable" for name in names) >= 10
        ),
        "all but ten pods on nodes, and ten refused",
    )
    assert await plane.usage() == {f"n{number}": (4000, FULL) for number in range(NODES)}
    left = set(names) - plane.placed().keys()
    assert len(left) == 10
    message = await plane.fit_error({"Insufficient cpu": NODES})
    for name in left:
        await plane.refused(name, message=message)
    assert scheduler.metric("agent_scheduler_bind_outcomes_total", outcome="bound") == NODES * FULL
    assert scheduler.metric("agent_scheduler_bind_outcomes_total") == NODES * FULL
    # Whoever goes is replaced, by one for one.
    gone = sorted(plane.placed())[:3]
    for name in gone:
        await plane.delete_pod(name)
    await plane.pods.until(
        lambda: len(plane.placed()) == NODES * FULL and plane.placed().keys().isdisjoint(gone),
        "full nodes once more",
    )
    assert await plane.usage() == {f"n{number}": (4000, FULL) for number in range(NODES)}
