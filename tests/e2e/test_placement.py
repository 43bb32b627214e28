"""The user's view of a placement: the node of a pod, its messages, and the pages of the scheduler."""

from __future__ import annotations

import pytest

from .plane import CORDONED, TAINTED, ControlPlane, without_preemption
from .processes import Scheduler

pytestmark = pytest.mark.usefixtures("scheduler")


async def test_a_pod_that_fits_nowhere_is_told_every_nodes_reason_in_kube_schedulers_words(plane: ControlPlane) -> None:
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
    # One after the other, so that each decision includes the pods before it.
    for number in range(3):
        await plane.add_pod(f"pack-{number}", cpu="1", select={"e2e/for": "packing"})
        await plane.bound(f"pack-{number}")
        spread = f"{plane.scheduler_name}-spread"
        await plane.add_pod(f"spread-{number}", cpu="1", select={"e2e/for": "spreading"}, scheduler_name=spread)
        await plane.bound(f"spread-{number}")
    placed = plane.placed()
    assert len({placed[f"pack-{number}"] for number in range(3)}) == 1
    assert len({placed[f"spread-{number}"] for number in range(3)}) == 3


async def test_queue_and_cache_show_what_waits_and_what_is_taken(plane: ControlPlane, scheduler: Scheduler) -> None:
    await plane.add_node("n", cpu="4", memory="8Gi")
    await plane.add_pod("a", cpu="1500m")
    await plane.add_pod("large", cpu="3")
    await plane.bound("a")
    await plane.refused("large")
    (item,) = scheduler.json(f"/debug/queue?namespace={plane.namespace}&place=unschedulable")["items"]
    assert item["key"] == f"{plane.namespace}/{plane.full('large')}"
    assert item["profile"] == plane.scheduler_name
    assert "NodeResourcesFit" in item["unschedulable_plugins"]
    cache = scheduler.json("/debug/cache?limit=1000")
    node = next(each for each in cache["items"] if each["name"] == plane.full("n"))
    assert (node["allocatable"]["cpu"], node["requested"]["cpu"], node["pods"]) == (4000, 1500, 1)
    status, text = scheduler.get("/debug/queue?place=nowhere")
    assert status == 400
    assert "unschedulable" in text
