"""Pods that were refused wait until the cluster changes in a way that can help them, and only then are tried again.

The periodic flush comes after five minutes, longer than any of these tests waits: who is bound here, was woken.
"""

from __future__ import annotations

from typing import Any

from .plane import CORDONED, JSON_PATCH, TAINTED, ControlPlane, container
from .processes import Scheduler


async def waiting(scheduler: Scheduler, plane: ControlPlane, name: str) -> dict[str, Any]:
    """What the queue says of a pod that waits."""

    def settled() -> dict[str, Any] | None:
        item = scheduler.waiting(plane.namespace).get(plane.full(name))
        assert item is not None, f"{name} is not in the queue"
        # In flight only between a pop and a refusal.
        return None if item["place"] == "in_flight" else item

    return await scheduler.until(settled, f"end of the attempt on {name}")


async def assert_left_alone(scheduler: Scheduler, plane: ControlPlane, name: str, *plugins: str) -> None:
    """The pod, which `plugins` refused, was tried once and not again."""
    item = await waiting(scheduler, plane, name)
    diagnose = set(item["unschedulable_plugins"])
    assert diagnose >= set(plugins)
    # Where other nodes of a real cluster refuse it by other plugins, their events wake it rightly.
    if plane.run.embedded or diagnose == {*plugins, "NodeAffinity"}:
        assert diagnose == {*plugins, "NodeAffinity"}
        assert (item["place"], item["attempts"]) == ("unschedulable", 1)


async def test_a_node_that_appears_wakes_the_pods_that_it_can_hold(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    await plane.add_pod("helped", select={"e2e/zone": "a"})
    await plane.add_pod("not-helped", select={"e2e/zone": "b"})
    await plane.refused("helped")
    await plane.refused("not-helped")
    await plane.add_node("n", labels={"e2e/zone": "a"})
    assert await plane.bound("helped") == {"helped": "n"}
    await assert_left_alone(scheduler, plane, "not-helped", "NodeAffinity")


async def test_an_uncordoned_node_wakes_those_it_refused(plane: ControlPlane, scheduler: Scheduler) -> None:
    await plane.add_node("n", unschedulable=True)
    await plane.add_pod("a")
    await plane.refused("a", message=await plane.fit_error({CORDONED: 1}))
    await plane.change_node("n", {"spec": {"unschedulable": None, "taints": None}})
    assert await plane.bound("a") == {"a": "n"}


async def test_a_taint_that_is_removed_wakes_those_it_repelled(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    await plane.add_node(
        "n",
        taints=[{"key": "e2e/one", "effect": "NoSchedule"}, {"key": "e2e/two", "effect": "NoSchedule"}],
    )
    await plane.add_pod("a", tolerations=[{"key": "e2e/two", "operator": "Exists"}])
    await plane.add_pod("b")
    message = await plane.fit_error({TAINTED: 1})
    await plane.refused("a", message=message)
    await plane.refused("b", message=message)
    await plane.change_node("n", {"spec": {"taints": [{"key": "e2e/two", "effect": "NoSchedule"}]}})
    assert await plane.bound("a") == {"a": "n"}
    await assert_left_alone(scheduler, plane, "b", "TaintToleration")


async def test_a_toleration_that_is_added_wakes_its_pod(plane: ControlPlane, scheduler: Scheduler) -> None:
    await plane.add_node("n", taints=[{"key": "e2e/gpu", "effect": "NoSchedule"}])
    await plane.add_pod("a")
    await plane.refused("a", message=await plane.fit_error({TAINTED: 1}))
    added = {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "e2e/gpu", "operator": "Exists"}}
    await plane.ask("PATCH", plane.pod_path("a"), [added], content_type=JSON_PATCH)
    assert await plane.bound("a") == {"a": "n"}


async def test_a_label_wakes_only_the_pods_that_ask_for_it(plane: ControlPlane, scheduler: Scheduler) -> None:
    await plane.add_node("n", cpu="2")
    await plane.add_pod("ssd", select={"e2e/disk": "ssd"})
    await plane.add_pod("nvme", select={"e2e/disk": "nvme"})
    await plane.add_pod("large", cpu="3")
    for name in ("ssd", "nvme", "large"):
        await plane.refused(name)
    await plane.change_node("n", {"metadata": {"labels": {"e2e/disk": "ssd"}}})
    assert await plane.bound("ssd") == {"ssd": "n"}
    await assert_left_alone(scheduler, plane, "nvme", "NodeAffinity")
    await assert_left_alone(scheduler, plane, "large", "NodeResourcesFit")


async def test_a_pod_that_goes_makes_room_for_those_who_lack_it(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    await plane.add_node("n", cpu="4")
    await plane.add_pods(["old-1", "old-2"], cpu="2")
    await plane.bound("old-1", "old-2")
    await plane.add_pod("next", cpu="2")
    await plane.add_pod("elsewhere", select={"e2e/zone": "b"})
    await plane.refused("next", message=await plane.fit_error({"Insufficient cpu": 1}))
    await plane.refused("elsewhere")
    await plane.delete_pod("old-1")
    assert (await plane.bound("next"))["next"] == "n"
    await assert_left_alone(scheduler, plane, "elsewhere", "NodeAffinity")


async def test_a_pod_that_ends_makes_room_though_its_object_stays(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    await plane.add_node("n", cpu="4")
    await plane.add_pod("old", cpu="4")
    await plane.bound("old")
    await plane.add_pod("next", cpu="4")
    await plane.refused("next")
    await plane.ask(
        "PATCH",
        plane.pod_path("old", "status"),
        {"status": {"phase": "Succeeded"}},
        content_type="application/merge-patch+json",
    )
    assert (await plane.bound("next"))["next"] == "n"


async def test_a_host_port_that_becomes_free_wakes_who_waits_for_it(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    def serving(port: int) -> list[dict[str, object]]:
        return [container(ports=[{"containerPort": 80, "hostPort": port}])]

    await plane.add_node("n")
    await plane.add_pod("first", containers=serving(18080))
    await plane.add_pod("other", containers=serving(18081))
    await plane.bound("first", "other")
    await plane.add_pod("waits", containers=serving(18080))
    await plane.add_pod("waits-too", containers=serving(18081))
    await plane.refused("waits")
    await plane.refused("waits-too")
    await plane.delete_pod("first")
    assert (await plane.bound("waits"))["waits"] == "n"
    await assert_left_alone(scheduler, plane, "waits-too", "NodePorts")


async def test_a_device_that_a_node_gains_wakes_who_asked_for_one(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    gpu, tpu = f"e2e.example/{plane.test}-gpu", f"e2e.example/{plane.test}-tpu"
    await plane.add_node("n")
    await plane.add_pod("gpu", containers=[container(more={gpu: "1"})])
    await plane.add_pod("tpu", containers=[container(more={tpu: "1"})])
    await plane.refused("gpu", message=await plane.fit_error({f"Insufficient {gpu}": 1}))
    await plane.refused("tpu")
    await plane.change_node_status("n", {"capacity": {gpu: "1"}, "allocatable": {gpu: "1"}})
    assert await plane.bound("gpu") == {"gpu": "n"}
    await assert_left_alone(scheduler, plane, "tpu", "NodeResourcesFit")


async def test_a_gated_pod_is_not_even_tried_until_its_last_gate_is_gone(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    await plane.add_node("n")
    await plane.add_pod("gated", schedulingGates=[{"name": "e2e/quota"}, {"name": "e2e/data"}])
    await plane.add_pod("other")
    await plane.bound("other")
    item = await waiting(scheduler, plane, "gated")
    assert (item["place"], item["attempts"]) == ("gated", 0)
    remove = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    await plane.ask("PATCH", plane.pod_path("gated"), remove, content_type=JSON_PATCH)
    await plane.add_pod("another")
    await plane.bound("another")
    item = await waiting(scheduler, plane, "gated")
    assert (item["place"], item["attempts"]) == ("gated", 0)
    condition = plane.condition("gated")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    await plane.ask("PATCH", plane.pod_path("gated"), remove, content_type=JSON_PATCH)
    assert (await plane.bound("gated"))["gated"] == "n"
    assert plane.told("gated", "FailedScheduling") == []
