"""Which node a pod gets, or what it is told: as its user sees it."""

from __future__ import annotations

import pytest

from .plane import CORDONED, TAINTED, ControlPlane, without_preemption

pytestmark = pytest.mark.usefixtures("scheduler")


async def test_a_pod_that_fits_nowhere_is_told_every_nodes_reason_in_kube_schedulers_words(
    plane: ControlPlane,
) -> None:
    await plane.add_node("cordoned", unschedulable=True)
    await plane.add_node("tainted", taints=[{"key": "e2e/only", "value": "x", "effect": "NoSchedule"}])
    await plane.add_node("draining", taints=[{"key": "e2e/out", "effect": "NoExecute"}])
    await plane.add_node("slow", cpu="1")
    await plane.add_node("small", cpu="1", memory="1Gi")
    await plane.add_node("full", pods="0")
    await plane.add_pod("a", cpu="2", memory="2Gi")
    message = await plane.fit_error(
        {CORDONED: 1, TAINTED: 2, "Insufficient cpu": 2, "Insufficient memory": 1, "Too many pods": 1}
    )
    await plane.refused("a", message=message)
    event = await plane.event("a", "FailedScheduling")
    assert (event["type"], event["reportingComponent"]) == ("Warning", plane.scheduler_name)
    assert message in [without_preemption(event["message"]) for event in plane.told("a", "FailedScheduling")]
    assert plane.placed() == {}


async def test_each_profile_places_its_own_pods_by_its_own_scores(plane: ControlPlane) -> None:
    for name in ("a", "b", "c"):
        await plane.add_node(name, labels={"e2e/for": "packing"})
        await plane.add_node(f"{name}{name}", labels={"e2e/for": "spreading"})
    # One after the other, so that each is decided with those before it in sight.
    for number in range(3):
        await plane.add_pod(f"pack-{number}", cpu="1", select={"e2e/for": "packing"})
        await plane.bound(f"pack-{number}")
        spread = f"{plane.scheduler_name}-spread"
        await plane.add_pod(
            f"spread-{number}", cpu="1", select={"e2e/for": "spreading"}, scheduler_name=spread
        )
        await plane.bound(f"spread-{number}")
    placed = plane.placed()
    assert len({placed[f"pack-{number}"] for number in range(3)}) == 1
    assert len({placed[f"spread-{number}"] for number in range(3)}) == 3
