"""What a running scheduler serves: health, metrics, its configuration, and what it holds."""

from __future__ import annotations

from .plane import ControlPlane
from .processes import Scheduler


def test_a_synced_scheduler_is_alive_and_ready(scheduler: Scheduler) -> None:
    for page in ("/healthz", "/livez", "/readyz"):
        assert scheduler.get(page) == (200, "ok")
    status, text = scheduler.get("/readyz?verbose")
    assert (status, text.splitlines()[-1]) == (200, "readyz check passed")
    assert "[+]sched-handler-sync ok" in text
    assert scheduler.get("/readyz/sched-handler-sync")[0] == 200
    assert scheduler.get("/readyz/no-such-check")[0] == 404
    assert scheduler.get("/no-such-page")[0] == 404


async def test_metrics_are_kube_schedulers_by_name_and_count_what_happened(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    profile = {"profile": plane.scheduler_name}
    before = {
        result: scheduler.metric("scheduler_schedule_attempts_total", result=result, **profile)
        for result in ("scheduled", "unschedulable")
    }
    await plane.add_node("n", cpu="4")
    await plane.add_pods(["a", "b", "c"])
    await plane.add_pod("large", cpu="5")
    await plane.bound("a", "b", "c")
    await plane.refused("large")
    scheduled = scheduler.metric("scheduler_schedule_attempts_total", result="scheduled", **profile)
    assert scheduled == before["scheduled"] + 3
    refused = scheduler.metric("scheduler_schedule_attempts_total", result="unschedulable", **profile)
    assert refused >= before["unschedulable"] + 1
    assert scheduler.metric("scheduler_pending_pods", queue="unschedulable") >= 1
    assert scheduler.metric("scheduler_cache_size", type="nodes") >= 1
    _, text = scheduler.get("/metrics")
    declared = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert declared >= {
        "scheduler_schedule_attempts_total",
        "scheduler_scheduling_attempt_duration_seconds",
        "scheduler_scheduling_algorithm_duration_seconds",
        "scheduler_framework_extension_point_duration_seconds",
        "scheduler_pod_scheduling_attempts",
        "scheduler_pod_scheduling_sli_duration_seconds",
        "scheduler_pending_pods",
        "scheduler_queue_incoming_pods_total",
        "scheduler_unschedulable_pods",
        "scheduler_cache_size",
        "leader_election_master_status",
    }


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
