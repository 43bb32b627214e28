"""GPUShare: which nodes it refuses and why, and whom it wakes."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.decide.trial import WhatIf
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ClusterEvent
from agent_scheduler.engine.framework.plugin import PodRejected
from agent_scheduler.engine.plugins.gpu_share import GPUShare
from agent_scheduler.engine.state.gpus import RESOURCE as GPU
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import World, node, wakes


def gpu_node(name: str, devices: int, **more: Any) -> Any:
    return node(name, extended={GPU: f"{devices}000"} if devices else {}, **more)


def used() -> World:
    """Nodes with 500 left on two devices, one device unused, three of which one is used, and none."""
    world = World(gpu_node("halves", 2), gpu_node("one", 1), gpu_node("three", 3), gpu_node("none", 0))
    for row, device in ((0, 0), (0, 1), (2, 1)):
        world.ledger.assume(world.pod(requests={GPU: "500"}), row, (device,))
    return world


def asking(world: World, amount: int, **spec: Any) -> PodInfo:
    return world.pod(requests={GPU: str(amount)}, **spec)


@pytest.mark.promise("S39")
@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (300, {"halves", "one", "three"}),
        (500, {"halves", "one", "three"}),
        (501, {"one", "three"}),
        (1000, {"one", "three"}),
        (2000, {"three"}),
    ],
)
def test_a_node_needs_one_device_with_room_for_a_share_or_as_many_unused_ones(amount: int, expected: set[str]) -> None:
    world = used()
    pod = asking(world, amount)
    assert world.feasible(pod) == expected
    assert set(world.names(world.fits(pod, GPUShare()))) == expected


def test_a_refusal_tells_devices_that_are_too_full_from_amounts_that_are_too_small() -> None:
    world = World(gpu_node("begun", 4), gpu_node("one", 1))
    for device in range(3):
        world.ledger.assume(world.pod(requests={GPU: "100"}), 0, (device,))
    found = world.refusal(asking(world, 2000))
    assert found.message == (
        "0/2 nodes are available: 1 Insufficient agent-scheduler.io/gpu-milli, "
        "1 node(s) didn't have a GPU with enough left."
    )
    assert found.plugins == {"GPUShare", "NodeResourcesFit"}


@pytest.mark.parametrize(
    ("amount", "row", "said"),
    [
        (700, 0, "wants 700 on one GPU; left on each: 500, 500"),
        (3000, 2, "wants 3 whole GPUs; left on each: 1000, 500, 1000"),
        (300, 3, "wants 300 on one GPU; left on each: none"),
    ],
)
def test_what_is_missing_names_the_resource_and_each_device(amount: int, row: int, said: str) -> None:
    assert GPUShare().missing(amount, used().ledger.columns, row) == f"agent-scheduler.io/gpu-milli: {said}"


@pytest.mark.parametrize(
    ("amount", "expected"), [(700, [True, True, True, False]), (2000, [True, False, True, False]), (4000, [False] * 4)]
)
def test_pods_that_go_would_help_where_there_are_enough_devices(amount: int, expected: list[bool]) -> None:
    columns = used().ledger.columns
    assert GPUShare().curable(amount, columns, columns.all_rows()).tolist() == expected


def test_an_amount_that_nobody_can_have_is_refused_before_any_node_is_looked_at() -> None:
    world = used()
    pod = world.pod(requests={GPU: "1500"})
    with pytest.raises(PodRejected) as caught:
        world.state(pod, GPUShare())
    assert str(caught.value) == (
        "agent-scheduler.io/gpu-milli: 1500 is neither a share of one GPU nor a number of whole ones; "
        "allowed: up to 1000, or a multiple of it"
    )
    found = world.refusal(asking(world, 1500))
    assert found.message == f"0/4 nodes are available: {caught.value}."
    assert found.plugins == {"GPUShare"}


def test_devices_that_are_thought_free_are_free() -> None:
    """Two of 500 on a device each: without either of them there is room for 700."""
    world = World(gpu_node("a", 2))
    first, second = (world.pod(requests={GPU: "500"}) for _ in range(2))
    for device, pod in enumerate((first, second)):
        world.ledger.assume(pod, 0, (device,))
    plugin, columns = GPUShare(), world.ledger.columns
    assert not plugin.feasible_row(700, columns, 0)
    for pod in (first, second):
        with WhatIf(world.ledger, columns) as there:
            there.remove(pod, 0)
            assert plugin.feasible_row(700, columns, 0)
            there.place(world.pod(requests={GPU: "700"}), 0)
            assert plugin.feasible_row(500, columns, 0) and not plugin.feasible_row(501, columns, 0)
        assert not plugin.feasible_row(700, columns, 0)


# ---- whom it wakes


@pytest.mark.parametrize("with_ledger", [False, True])
@pytest.mark.parametrize(("requests", "expected"), [({GPU: "100"}, True), ({GPU: "4000"}, True), ({"cpu": "1"}, False)])
def test_a_pod_with_gpus_that_ends_wakes_and_another_does_not(
    requests: dict[str, str], expected: bool, with_ledger: bool
) -> None:
    world = World(gpu_node("a", 2))
    gone = world.place("a", requests=requests)
    plugin = GPUShare(world.ledger if with_ledger else None)
    pod = asking(world, 700, preemptionPolicy="Never")
    assert wakes(plugin, pod, ev.ASSIGNED_POD_DELETE, gone, None) is expected


def test_any_pod_that_ends_wakes_who_may_have_others_evicted() -> None:
    world = World(gpu_node("a", 2))
    gone = world.place("a", requests={"cpu": "1"}, priority=5)
    plugin = GPUShare(world.ledger)
    for priority, expected in ((4, False), (5, False), (6, True)):
        assert wakes(plugin, asking(world, 700, priority=priority), ev.ASSIGNED_POD_DELETE, gone, None) is expected
    world.ledger.remove_pod(gone.uid)
    assert not wakes(plugin, asking(world, 700, priority=6), ev.ASSIGNED_POD_DELETE, gone, None)


@pytest.mark.parametrize(
    ("event", "amount", "before", "after", "expected"),
    [
        (ev.NODE_ADD, 300, None, 1, True),
        (ev.NODE_ADD, 300, None, 0, False),
        (ev.NODE_ADD, 1000, None, 1, True),
        (ev.NODE_ADD, 2000, None, 1, False),
        (ev.NODE_ADD, 2000, None, 2, True),
        (ev.NODE_UPDATE_ALLOCATABLE, 300, 0, 1, True),
        (ev.NODE_UPDATE_ALLOCATABLE, 300, 1, 2, True),
        (ev.NODE_UPDATE_ALLOCATABLE, 300, 2, 2, False),
        (ev.NODE_UPDATE_ALLOCATABLE, 300, 2, 1, False),
        (ev.NODE_UPDATE_ALLOCATABLE, 4000, 1, 2, False),
    ],
)
def test_a_node_wakes_that_is_new_or_has_more_devices_if_they_are_enough(
    event: ClusterEvent, amount: int, before: int | None, after: int, expected: bool
) -> None:
    world = World()
    old = None if before is None else gpu_node("a", before)
    assert wakes(GPUShare(world.ledger), asking(world, amount), event, old, gpu_node("a", after)) is expected


def test_a_profile_looks_at_the_ledger_of_who_uses_it() -> None:
    world = World()
    plugin = GPUShare()
    seeing = plugin.seeing(world.ledger, None, None)  # type: ignore[arg-type]
    assert isinstance(seeing, GPUShare) and seeing is not plugin
    assert not wakes(seeing, asking(world, 700), ev.ASSIGNED_POD_DELETE, world.pod(), None)
