"""Refused pods are retried only after a change of the cluster that can help them.

The periodic flush comes after five minutes, longer than any of these tests waits: a pod that is bound here was woken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.support.client import JSON_PATCH

from .plane import CORDONED, TAINTED, ControlPlane, Object, container
from .processes import Scheduler

GPU, TPU = "e2e.example/gpu", "e2e.example/tpu"
ONE, TWO = ({"key": f"e2e/{name}", "effect": "NoSchedule"} for name in ("one", "two"))


async def assert_left_alone(scheduler: Scheduler, plane: ControlPlane, name: str, plugin: str) -> None:
    """Assert that the pod, which `plugin` refused, was tried once and not again."""

    def settled() -> dict[str, Any] | None:
        item = scheduler.waiting(plane.namespace)[plane.full(name)]
        # A pod is in flight only between a pop and a refusal.
        return None if item["place"] == "in_flight" else item

    item = await scheduler.until(settled, f"end of the attempt on {name}")
    diagnose = set(item["unschedulable_plugins"])
    assert diagnose >= {plugin}
    # If other nodes of a real cluster refuse it by other plugins, their events wake it correctly.
    if plane.run.embedded or diagnose == {plugin, "NodeAffinity"}:
        assert diagnose == {plugin, "NodeAffinity"}
        assert (item["place"], item["attempts"]) == ("unschedulable", 1)


def in_zone(zone: str) -> Object:
    return {"select": {"e2e/zone": zone}}


def serving(port: int) -> Object:
    return {"containers": [container(ports=[{"containerPort": 80, "hostPort": port}])]}


def asking(device: str) -> Object:
    return {"containers": [container(more={device: "1"})]}


class Waking(NamedTuple):
    """A change that wakes the first of the waiting pods and not the others, which the plugins `by` refused."""

    change: Callable[[ControlPlane], Awaitable[None]]
    waits: Mapping[str, Object]
    by: Sequence[str] = ()
    #: The node's settings; None: there is no node yet.
    node: Mapping[str, Any] | None = {}
    #: Pods that are on the node first.
    first: Mapping[str, Object] = {}
    #: Reasons of the first pod's refusal with their node counts, if checked.
    refused: Mapping[str, int] = {}


WAKING = {
    "a node that appears": Waking(
        lambda plane: plane.add_node("n", labels={"e2e/zone": "a"}),
        {"helped": in_zone("a"), "other": in_zone("b")}, ["NodeAffinity"], node=None,
    ),
    "an uncordoned node": Waking(
        lambda plane: plane.change_node("n", {"spec": {"unschedulable": None, "taints": None}}),
        {"helped": {}}, node={"unschedulable": True}, refused={CORDONED: 1},
    ),
    "a taint that is removed": Waking(
        lambda plane: plane.change_node("n", {"spec": {"taints": [TWO]}}),
        {"helped": {"tolerations": [{"key": "e2e/two", "operator": "Exists"}]}, "other": {}}, ["TaintToleration"],
        node={"taints": [ONE, TWO]}, refused={TAINTED: 1},
    ),
    "a toleration that is added": Waking(
        lambda plane: plane.ask("PATCH", plane.pod_path("helped"), content_type=JSON_PATCH, body=[
            {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "e2e/one", "operator": "Exists"}}
        ]),
        {"helped": {}}, node={"taints": [ONE]}, refused={TAINTED: 1},
    ),
    "a label": Waking(
        lambda plane: plane.change_node("n", {"metadata": {"labels": {"e2e/zone": "a"}}}),
        {"helped": in_zone("a"), "other": in_zone("b"), "large": {"cpu": "5"}}, ["NodeAffinity", "NodeResourcesFit"],
    ),
    "a host port that becomes free": Waking(
        lambda plane: plane.delete_pod("old"),
        {"helped": serving(18080), "other": serving(18081)}, ["NodePorts"],
        first={"old": serving(18080), "stays": serving(18081)},
    ),
    "a device that a node gains": Waking(
        lambda plane: plane.change_node_status("n", {"capacity": {GPU: "1"}, "allocatable": {GPU: "1"}}),
        {"helped": asking(GPU), "other": asking(TPU)}, ["NodeResourcesFit"], refused={f"Insufficient {GPU}": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WAKING)
async def test_it_wakes_the_pods_that_it_helps_and_no_others(
    plane: ControlPlane, scheduler: Scheduler, what: str
) -> None:
    it = WAKING[what]
    if it.node is not None:
        await plane.add_node("n", **it.node)
    for name, spec in it.first.items():
        await plane.add_pod(name, **spec)
    await plane.bound(*it.first)
    for name, spec in it.waits.items():
        await plane.add_pod(name, **spec)
    helped, *others = it.waits
    await plane.refused(helped, message=await plane.fit_error(it.refused) if it.refused else None)
    for name in others:
        await plane.refused(name)
    await it.change(plane)
    assert (await plane.bound(helped))[helped] == "n"
    for name, plugin in zip(others, it.by, strict=True):
        await assert_left_alone(scheduler, plane, name, plugin)
