"""NodeResourcesFit leaves a resource to devices on nodes that offer none of it, and there alone."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.plugins.balanced_allocation import BalancedAllocation
from agent_scheduler.engine.plugins.node_resources_fit import LeastAllocated, MostAllocated, NodeResourcesFit
from agent_scheduler.engine.rules.device_backed import DeviceBacked
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.devices import (
    DRIVER,
    allocated_to,
    attributes,
    books,
    claim_of,
    class_of,
    device,
    slice_of,
)
from tests.support.engine import World, node, wakes

GPU = "example.com/gpu"
NIC = "other.io/nic"
NAMED: dict[str, Any] = {"extendedResourceName": GPU}


def named(*nodes: NodeInfo) -> World:
    """A cluster in which a class of devices stands for the resource."""
    return World(*nodes).add(class_of("gpu", **NAMED))


def verdicts(world: World, pod: PodInfo) -> tuple[list[bool], list[bool], dict[str, int]]:
    """For each node whether it fits, and would if empty; and the reasons."""
    plugin, columns, rows = NodeResourcesFit(), world.columns, world.rows
    state, fits = world.state(pod, plugin), world.fits(pod, plugin)
    for row, fit in zip(rows.tolist(), fits, strict=True):
        assert bool(plugin.missing(state, columns, row)) != fit
    refused = rows[[not fit for fit in fits]]
    return fits, plugin.curable(state, columns, rows).tolist(), dict(plugin.reasons(state, columns, refused))


def test_a_node_that_offers_none_is_judged_by_the_rest() -> None:
    world = named(
        node("none"),
        node("zero", extended={GPU: "0"}),
        node("some", extended={GPU: "2"}),
        node("small", cpu="1"),
    )
    pod = world.pod(requests={"cpu": "2", GPU: "3"})
    fits, curable, reasons = verdicts(world, pod)
    assert fits == curable == [True, True, False, False]
    assert reasons == {f"Insufficient {GPU}": 1, "Insufficient cpu": 1}


@pytest.mark.parametrize("extended", [{}, {GPU: "1"}])
def test_a_resource_that_no_class_stands_for_has_to_be_offered(extended: dict[str, str]) -> None:
    world = named(node("n"), node("other", extended=extended))
    fits, _, reasons = verdicts(world, world.pod(requests={GPU: "1", NIC: "1"}))
    assert fits == [False, False]
    assert reasons[f"Insufficient {NIC}"] == 2
    assert f"Insufficient {GPU}" not in reasons


def test_what_is_taken_of_a_resource_counts_where_it_is_offered_and_elsewhere_it_is_left_to_devices() -> None:
    some, none = named(node("some", extended={GPU: "2"})), named(node("n"))
    some.place("some", requests={GPU: "2"})
    pod = some.pod(requests={GPU: "1"})
    assert verdicts(some, pod)[:2] == ([False], [True])
    assert verdicts(none, pod)[0] == [True]
    assert verdicts(World(node("n")).add(class_of("gpu")), pod)[0] == [False]


def test_nodes_are_near_by_what_they_have_to_offer_themselves() -> None:
    world = named(node("far", cpu="1"), node("near", cpu="3", extended={GPU: "4"}))
    plugin = NodeResourcesFit()
    state = world.state(world.pod(requests={"cpu": "4", GPU: "4"}), plugin)
    assert plugin.nearest(state, world.columns, world.rows).tolist() == [1, 0]


def test_a_node_wakes_those_for_whom_devices_may_be_there() -> None:
    world = World()
    pod = world.pod(requests={"cpu": "2", GPU: "3"})

    def woken(plugin: NodeResourcesFit, old: NodeInfo | None, new: NodeInfo) -> bool:
        return wakes(plugin, pod, ev.NODE_ADD if old is None else ev.NODE_UPDATE_ALLOCATABLE, old, new)

    for unnamed in (NodeResourcesFit(), NodeResourcesFit(devices=books(class_of("gpu")))):
        assert not woken(unnamed, None, node("n"))
    plugin = NodeResourcesFit(devices=books(class_of("gpu", **NAMED)))
    assert woken(plugin, None, node("n"))
    assert not woken(plugin, None, node("n", cpu="1"))
    assert not woken(plugin, None, node("n", extended={GPU: "2"}))
    assert not woken(plugin, node("n"), node("n", extended={GPU: "2"}))
    assert woken(plugin, node("n", extended={GPU: "2"}), node("n", extended={GPU: "0"}))
    assert woken(plugin, node("n", cpu="1"), node("n"))
    assert not woken(plugin, node("n", cpu="4"), node("n", cpu="3"))


# ---- how full a node is: the formulas are those for any other resource


def half_used() -> World:
    """Devices: 2 of 4 GPUs are taken, beside a device that is none. Plugin: 4 are offered. Full: 1 of 2 is taken."""
    kind = f"device.attributes['{DRIVER}'].kind == 'gpu'"
    world = World(*(node(name, cpu="10") for name in ("devices", "full")))
    world.ledger.set_node(node("plugin", cpu="10", extended={GPU: "4"}))
    world.add(class_of("gpu", kind, **NAMED))
    for name, kinds in (("devices", ("gpu", "nic", "gpu", "gpu", "gpu")), ("full", ("gpu", "gpu"))):
        made = [device(f"dev-{at}", attributes=attributes(kind=each)) for at, each in enumerate(kinds)]
        world.add(slice_of(f"s-{name}", *made, pool={"name": name}, nodeName=name))
    world.add(claim_of("one", status=allocated_to("dev-0", "dev-2", pool="devices", node_name="devices")))
    return world.add(claim_of("other", status=allocated_to("dev-0", pool="full", node_name="full")))


def scores(world: World, plugin: Any) -> dict[str, int]:
    """Of a pod that asks for half of the CPU and for one GPU."""
    found = world.scores(world.pod(requests={"cpu": "5", GPU: "1"}), DeviceBacked(plugin))
    assert found is not None
    return dict(zip(world.ledger.rows, found, strict=True))


def test_devices_count_as_offered_and_taken_where_the_node_offers_none() -> None:
    """Devices: (2 + 1) of 4; plugin: 1 of 4; full: (1 + 1) of 2; and everywhere 5 of 10 CPU."""
    world, weights = half_used(), {GPU: 3, "cpu": 1}
    most = {"devices": (3 * 75 + 50) // 4, "plugin": (3 * 25 + 50) // 4, "full": (3 * 100 + 50) // 4}
    assert scores(world, MostAllocated(weights)) == most
    least = {"devices": (3 * 25 + 50) // 4, "plugin": (3 * 75 + 50) // 4, "full": 50 // 4}
    assert scores(world, LeastAllocated(weights)) == least
    # They follow devices that are taken and given back.
    world.add(claim_of("more", status=allocated_to("dev-3", pool="devices", node_name="devices")))
    assert scores(world, MostAllocated(weights))["devices"] == (3 * 100 + 50) // 4
    world.devices.delete_claim(("default", "more"))
    assert scores(world, MostAllocated(weights)) == most


def test_balance_counts_devices_too() -> None:
    # Deviation of two shares is half of their difference; 75 is no change, and each point of change counts a half.
    assert scores(half_used(), BalancedAllocation([GPU, "cpu"])) == {
        "devices": 50 + (50 + (87 - 75)) // 2,
        "plugin": 50 + (50 + (87 - 100)) // 2,
        "full": 50 + (50 + (75 - 75)) // 2,
    }
