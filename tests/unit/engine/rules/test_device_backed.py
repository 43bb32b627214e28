"""NodeResourcesFit leaves a resource to devices on nodes that offer none of it, and there alone."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import QueueingHint
from agent_scheduler.engine.events.prehints import ALL_PODS, Amount, ByKeys, UpTo
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.devices import books, class_of
from tests.support.engine import World, node

GPU = "example.com/gpu"
NIC = "other.io/nic"
NAMED: dict[str, Any] = {"extendedResourceName": GPU}


def verdicts(world: World, pod: PodInfo, devices: Devices) -> tuple[list[bool], list[bool], dict[str, int]]:
    """For each node whether it fits, and would if empty; and the reasons."""
    plugin, handle = NodeResourcesFit(), Handle(world.ledger, devices=devices)
    columns = world.ledger.columns
    rows = columns.all_rows()
    state = plugin.prepare(handle.class_of(pod), handle)
    fits = plugin.feasible(state, columns, rows)
    assert [plugin.feasible_row(state, columns, row) for row in rows.tolist()] == fits.tolist()
    refused = rows[~fits]
    for row in rows.tolist():
        assert bool(plugin.missing(state, columns, row)) != bool(fits[row])
    curable = plugin.curable(state, columns, rows).tolist()
    return fits.tolist(), curable, dict(plugin.reasons(state, columns, refused))


def test_a_node_that_offers_none_is_judged_by_the_rest() -> None:
    world = World(
        node("none"),
        node("zero", extended={GPU: "0"}),
        node("some", extended={GPU: "2"}),
        node("small", cpu="1"),
    )
    pod = world.pod(requests={"cpu": "2", GPU: "3"})
    fits, curable, reasons = verdicts(world, pod, books(class_of("gpu", **NAMED)))
    assert fits == curable == [True, True, False, False]
    assert reasons == {f"Insufficient {GPU}": 1, "Insufficient cpu": 1}


def test_a_node_that_offers_some_counts_what_is_taken_of_it() -> None:
    world = World(node("some", extended={GPU: "2"}))
    world.place("some", requests={GPU: "2"})
    fits, curable, _ = verdicts(world, world.pod(requests={GPU: "1"}), books(class_of("gpu", **NAMED)))
    assert (fits, curable) == ([False], [True])


@pytest.mark.parametrize("extended", [{}, {GPU: "1"}])
def test_a_resource_that_no_class_stands_for_has_to_be_offered(extended: dict[str, str]) -> None:
    world = World(node("n"), node("other", extended=extended))
    fits, _, reasons = verdicts(
        world, world.pod(requests={GPU: "1", NIC: "1"}), books(class_of("gpu", **NAMED))
    )
    assert fits == [False, False]
    assert reasons[f"Insufficient {NIC}"] == 2
    assert f"Insufficient {GPU}" not in reasons


def test_a_resource_that_no_node_has_ever_offered_is_left_to_devices_too() -> None:
    world = World(node("n"))
    pod = world.pod(requests={GPU: "1"})
    assert verdicts(world, pod, books(class_of("gpu", **NAMED)))[0] == [True]
    assert verdicts(world, pod, books(class_of("gpu")))[0] == [False]


def test_nodes_are_near_by_what_they_have_to_offer_themselves() -> None:
    world = World(node("far", cpu="1"), node("near", cpu="3", extended={GPU: "4"}))
    plugin = NodeResourcesFit()
    handle = Handle(world.ledger, devices=books(class_of("gpu", **NAMED)))
    state = plugin.prepare(handle.class_of(world.pod(requests={"cpu": "4", GPU: "4"})), handle)
    assert plugin.nearest(state, world.ledger.columns, world.ledger.columns.all_rows()).tolist() == [1, 0]


def wakes(plugin: NodeResourcesFit, pod: PodInfo, old: NodeInfo | None, new: NodeInfo) -> bool:
    """Whether the node does; and whoever it wakes is among those whom the pre-hint names."""
    event = ClusterEvent(Resource.NODE, ActionType.ADD if old is None else ActionType.UPDATE_NODE_ALLOCATABLE)
    (entry,) = [each for each in plugin.events_to_register() if each.event.matches(event)]
    assert (
        entry.hint_fn is not None and isinstance(entry.pre_hint, ByKeys) and entry.pre_hint.keys is not None
    )
    if entry.hint_fn(pod, old, new) is not QueueingHint.QUEUE:
        return False
    keys: Any = entry.pre_hint.keys(event, old, new)
    assert keys is not ALL_PODS
    own = list(entry.pre_hint.index.keys_of(pod))
    assert any(key in own for key in keys) or any(
        isinstance(key, UpTo)
        and any(
            isinstance(each, Amount) and each.dimension == key.dimension and each.amount <= key.amount
            for each in own
        )
        for key in keys
    )
    return True


def test_a_node_wakes_those_for_whom_devices_may_be_there() -> None:
    world = World()
    pod = world.pod(requests={"cpu": "2", GPU: "3"})
    plugin = NodeResourcesFit()
    assert not wakes(plugin, pod, None, node("n"))
    plugin = NodeResourcesFit(devices=books(class_of("gpu")))
    assert not wakes(plugin, pod, None, node("n"))
    plugin = NodeResourcesFit(devices=books(class_of("gpu", **NAMED)))
    assert wakes(plugin, pod, None, node("n"))
    assert not wakes(plugin, pod, None, node("n", cpu="1"))
    assert not wakes(plugin, pod, None, node("n", extended={GPU: "2"}))
    assert not wakes(plugin, pod, node("n"), node("n", extended={GPU: "2"}))
    assert wakes(plugin, pod, node("n", extended={GPU: "2"}), node("n", extended={GPU: "0"}))
    assert wakes(plugin, pod, node("n", cpu="1"), node("n"))
    assert not wakes(plugin, pod, node("n", cpu="4"), node("n", cpu="3"))
