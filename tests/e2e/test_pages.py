"""What a running scheduler shows of what waits and what is taken."""

from __future__ import annotations

from .plane import ControlPlane
from .processes import Scheduler


async def test_queue_and_cache_show_what_waits_and_what_is_taken(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
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
