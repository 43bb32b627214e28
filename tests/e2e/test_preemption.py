"""A pod that fits nowhere gets the room of less important ones, and its victims and everybody else can read why."""

from __future__ import annotations

import pytest

from .plane import ControlPlane, Object
from .processes import Scheduler


async def add_priority(plane: ControlPlane, name: str, value: int, **more: object) -> str:
    """The name of a new priority class."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    made = await plane.add_cluster_object(
        "/apis/scheduling.k8s.io/v1/priorityclasses", {**body, "value": value, **more}
    )
    assert made.status == 201, made.body
    return plane.full(name)


def leaving(plane: ControlPlane, *names: str) -> list[Object]:
    """Those of the pods that are being deleted, as they were last seen."""
    last = {pod["metadata"]["name"]: pod for pod in plane.pods.history}
    found = [last[plane.full(name)] for name in names]
    return [pod for pod in found if pod["metadata"].get("deletionTimestamp")]


@pytest.mark.promise("S14")
async def test_the_least_important_pods_make_room(plane: ControlPlane, scheduler: Scheduler) -> None:
    high, middle = await add_priority(plane, "high", 1000), await add_priority(plane, "middle", 10)
    await plane.add_node("n", cpu="4")
    await plane.add_pods(["kept-0", "kept-1"], cpu="1", priorityClassName=middle)
    await plane.bound("kept-0", "kept-1")
    await plane.add_pods(["low-0", "low-1"], cpu="1")
    await plane.bound("low-0", "low-1")
    await plane.add_pod("important", cpu="2", priorityClassName=high)
    await plane.pods.until(lambda: len(leaving(plane, "low-0", "low-1")) == 2, "both low pods being deleted")
    for victim in leaving(plane, "low-0", "low-1"):
        (target,) = [each for each in victim["status"]["conditions"] if each["type"] == "DisruptionTarget"]
        assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    for name in ("low-0", "low-1"):
        told = await plane.event(name, "Preempted")
        assert told["message"].endswith(f"on node {plane.full('n')}")
        # Where no kubelet does.
        await plane.call("DELETE", plane.pod_path(name), {"gracePeriodSeconds": 0})
    assert (await plane.bound("important"))["important"] == "n"
    assert not leaving(plane, "kept-0", "kept-1")
    assert scheduler.metric("scheduler_preemption_victims_sum") == 2
    plane.assert_never_moved()
