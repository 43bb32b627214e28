"""NodeResourcesFit: whom nobody's leaving would help, what it ignores or leaves to devices, and its strategies."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.dra.records import DeviceClassInfo
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.plugins.balanced_allocation import BalancedAllocation
from agent_scheduler.engine.plugins.node_resources_fit import (
    LeastAllocated,
    MostAllocated,
    NodeResourcesFit,
    RequestedToCapacityRatio,
)
from agent_scheduler.engine.rules.device_backed import DeviceBacked
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.devices import DRIVER, allocated_to, attributes, books, claim_of, class_of, device, slice_of
from tests.support.engine import World, node, wakes
from tests.support.examples import examples

GPU = "example.com/gpu"
NIC = "other.io/nic"


def curable(world: World, pod: PodInfo, plugin: NodeResourcesFit | None = None) -> list[bool]:
    plugin = plugin or NodeResourcesFit()
    assert not any(world.fits(pod, plugin))
    return plugin.curable(world.state(pod, plugin), world.columns, world.rows).tolist()


def test_a_node_that_is_too_small_when_empty_is_not_cured_by_anybody_leaving() -> None:
    world = World(node("full"), node("small", cpu="1"), node("poor", memory="1Gi"), node("none", pods="0"))
    world.place("full", requests={"cpu": "3", "memory": "6Gi"})
    # What it offers exactly it can have, and too many pods are always worth a try.
    assert curable(world, world.pod(requests={"cpu": "4", "memory": "8Gi"})) == [True, False, False, True]
    assert curable(world, world.pod(requests={GPU: "1"})) == [False] * 4


@pytest.mark.parametrize(
    "plugin", [NodeResourcesFit([GPU, "cpu", "hugepages-2Mi"]), NodeResourcesFit((), ["example.com"])]
)
def test_ignored_extended_resources_are_left_to_somebody_else(plugin: NodeResourcesFit) -> None:
    world = World(node("a"))
    assert world.fits(world.pod(requests={GPU: "9"}), plugin) == [True]
    assert world.fits(world.pod(requests={NIC: "1"}), plugin) == [False]
    # Kubernetes' own resources are looked at whatever the arguments say.
    assert world.fits(world.pod(requests={"cpu": "9"}), plugin) == [False]
    assert world.fits(world.pod(requests={"hugepages-2Mi": "2Mi"}), plugin) == [False]
    assert curable(world, world.pod(requests={"cpu": "9", GPU: "1"}), plugin) == [False]


@pytest.mark.parametrize(
    ("plugin", "resource"),
    [
        # A group is all that stands before the slash; resources of Kubernetes with a prefix are never ignored.
        (NodeResourcesFit((), ["example"]), GPU),
        (NodeResourcesFit(["x.kubernetes.io/y"], ["x.kubernetes.io"]), "x.kubernetes.io/y"),
    ],
)
def test_what_only_looks_like_an_ignored_resource_is_not_ignored(plugin: NodeResourcesFit, resource: str) -> None:
    world = World(node("a"))
    assert world.fits(world.pod(requests={resource: "1"}), plugin) == [False]


def test_a_node_without_an_ignored_resource_wakes_the_pod() -> None:
    world = World()
    pod = world.pod(requests={GPU: "1", "cpu": "2"})

    def woken(plugin: NodeResourcesFit, old: Any, new: Any) -> bool:
        return wakes(plugin, pod, ev.NODE_ADD if old is None else ev.NODE_UPDATE_ALLOCATABLE, old, new)

    small, large = node("n", cpu="1"), node("n", cpu="4")
    assert not woken(NodeResourcesFit(), None, large)
    assert woken(NodeResourcesFit([GPU]), None, large)
    assert not woken(NodeResourcesFit([GPU]), None, small)
    assert woken(NodeResourcesFit([GPU]), small, large)
    assert not woken(NodeResourcesFit([GPU]), large, large)


def test_storage_counts_for_pods_that_ask_for_none_and_devices_do_not() -> None:
    world = World(node("a", extended={"ephemeral-storage": "10Gi", GPU: "10"}))
    world.place("a", requests={"ephemeral-storage": "5Gi", GPU: "5"})
    for strategy in (LeastAllocated, MostAllocated):
        assert world.scores(world.pod(), strategy({"ephemeral-storage": 1, GPU: 1, "pods": 1})) == [50]
        assert world.scores(world.pod(requests={GPU: "5"}), strategy({GPU: 1})) in ([0], [100])
        assert world.scores(world.pod(), strategy({GPU: 1})) is None


CLASS_ADD = ClusterEvent(Resource.DEVICE_CLASS, ActionType.ADD)
CLASS_UPDATE = ClusterEvent(Resource.DEVICE_CLASS, ActionType.UPDATE)


def named(resource: str) -> DeviceClassInfo:
    more: dict[str, Any] = {"extendedResourceName": resource} if resource else {}
    return class_of("gpu", **more)


@pytest.mark.parametrize(
    ("event", "old", "new", "resource", "expected"),
    [
        (CLASS_ADD, None, named(GPU), GPU, True),
        (CLASS_ADD, None, named("example.com/nic"), GPU, False),
        (CLASS_ADD, None, named(""), "deviceclass.resource.kubernetes.io/gpu", True),
        (CLASS_UPDATE, named(""), named(GPU), GPU, True),
        (CLASS_UPDATE, named(GPU), named(""), GPU, True),
        (CLASS_UPDATE, named(GPU), named(GPU), GPU, False),
    ],
)
def test_a_device_class_wakes_pods_that_ask_for_the_resource_that_it_is(
    event: ClusterEvent, old: Any, new: Any, resource: str, expected: bool
) -> None:
    pod = World().pod(requests={resource: "1"})
    assert wakes(NodeResourcesFit(), pod, event, old, new) is expected


# ---- against a plain reading

AMOUNTS = st.integers(0, 9)
SHAPES = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=4, unique_by=lambda at: at[0]
).map(sorted)
NAMES = ("cpu", "memory", "ephemeral-storage", GPU, NIC)
WEIGHTS = st.dictionaries(st.sampled_from((*NAMES, "pods")), st.integers(1, 5), min_size=1)


def requests(amounts: list[int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in zip(NAMES, amounts, strict=True) if amount}


def shares(
    world: World, names: list[str], offered: list[int], taken: list[int], wanted: list[int], *, scored: bool
) -> list[tuple[str, int, int, int]]:
    """(resource, taken before, taken with the pod, offered), for the resources that count."""
    found = []
    for name, whole, have, more in zip(NAMES, offered, taken, wanted, strict=True):
        if name not in names or not whole or (name in (GPU, NIC) and not more):
            continue
        unit = 1000 if name == "cpu" else 1
        default = {"cpu": 100, "memory": 200 * 2**20}.get(name, 0) if scored else 0
        have, more = (each * unit or default for each in (have, more))
        found.append((name, have, have + more, whole * unit))
    return found


def on_curve(shape: list[tuple[int, int]], at: int) -> int:
    for index, (end, high) in enumerate(shape):
        if at <= end:
            if not index:
                return high * 10
            start, low = shape[index - 1]
            return low * 10 + math.trunc((high - low) * 10 * (at - start) / (end - start))
    return shape[-1][1] * 10


@examples(300)
@given(
    offered=st.lists(AMOUNTS, min_size=5, max_size=5),
    taken=st.lists(AMOUNTS, min_size=5, max_size=5),
    wanted=st.lists(AMOUNTS, min_size=5, max_size=5),
    weights=WEIGHTS,
    shape=SHAPES,
)
def test_strategies_agree_with_a_plain_reading(
    offered: list[int], taken: list[int], wanted: list[int], weights: dict[str, int], shape: list[tuple[int, int]]
) -> None:
    whole = dict(zip(NAMES, map(str, offered), strict=True))
    world = World(node("a", cpu=whole.pop("cpu"), memory=whole.pop("memory"), extended=whole))
    world.place("a", requests=requests(taken))
    pod = world.pod(requests=requests(wanted))
    counted = shares(world, list(weights), offered, taken, wanted, scored=True)

    def mean(rates: dict[str, int]) -> int:
        total = sum(weights[name] for name in rates)
        return sum(weights[name] * rate for name, rate in rates.items()) // total if total else 0

    least = mean({name: max(full - use, 0) * 100 // full for name, _, use, full in counted})
    most = mean({name: min(use, full) * 100 // full for name, _, use, full in counted})
    rated = {name: on_curve(shape, min(use, full) * 100 // full) for name, _, use, full in counted}
    rated = {name: rate for name, rate in rated.items() if rate}
    total = sum(weights[name] for name in rated)
    curve = math.floor(sum(weights[n] * r for n, r in rated.items()) / total + 0.5) if total else 0
    for plugin, expected in (
        (LeastAllocated(weights), least),
        (MostAllocated(weights), most),
        (RequestedToCapacityRatio(shape, weights), curve),
    ):
        assert (world.scores(pod, plugin) or [0]) == [expected]


@examples(300)
@given(
    offered=st.lists(AMOUNTS, min_size=5, max_size=5),
    taken=st.lists(AMOUNTS, min_size=5, max_size=5),
    wanted=st.lists(AMOUNTS, min_size=5, max_size=5),
    names=st.lists(st.sampled_from((*NAMES, "pods")), min_size=1, unique=True),
)
def test_balance_agrees_with_a_plain_reading(
    offered: list[int], taken: list[int], wanted: list[int], names: list[str]
) -> None:
    whole = dict(zip(NAMES, map(str, offered), strict=True))
    world = World(node("a", cpu=whole.pop("cpu"), memory=whole.pop("memory"), extended=whole))
    world.place("a", requests=requests(taken))
    pod = world.pod(requests=requests(wanted))
    plugin = BalancedAllocation(names)
    asked = any(more for name, more in zip(NAMES, wanted, strict=True) if name in names)
    if not asked:
        assert world.scores(pod, plugin) is None
        return
    counted = {each[0]: each for each in shares(world, names, offered, taken, wanted, scored=False)}
    ordered = [counted[name] for name in names if name in counted]

    def evenness(fractions: list[float]) -> int:
        if len(fractions) < 2:
            return 100
        if len(fractions) == 2:
            return int((1 - abs((fractions[0] - fractions[1]) / 2)) * 100)
        mean, squares = 0.0, 0.0
        for each in fractions:
            mean += each
        mean /= len(fractions)
        for each in fractions:
            squares += (each - mean) * (each - mean)
        return int((1 - math.sqrt(squares / len(fractions))) * 100)

    before = evenness([min(have / full, 1.0) for _, have, _, full in ordered])
    after = evenness([min(use / full, 1.0) for _, _, use, full in ordered])
    assert world.scores(pod, plugin) == [50 + (50 + after - before) // 2]


NAMED: dict[str, Any] = {"extendedResourceName": GPU}


def with_class(*nodes: NodeInfo) -> World:
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
    world = with_class(
        node("none"), node("zero", extended={GPU: "0"}), node("some", extended={GPU: "2"}), node("small", cpu="1")
    )
    pod = world.pod(requests={"cpu": "2", GPU: "3"})
    fits, curable, reasons = verdicts(world, pod)
    assert fits == curable == [True, True, False, False]
    assert reasons == {f"Insufficient {GPU}": 1, "Insufficient cpu": 1}


@pytest.mark.parametrize("extended", [{}, {GPU: "1"}])
def test_a_resource_that_no_class_stands_for_has_to_be_offered(extended: dict[str, str]) -> None:
    world = with_class(node("n"), node("other", extended=extended))
    fits, _, reasons = verdicts(world, world.pod(requests={GPU: "1", NIC: "1"}))
    assert fits == [False, False]
    assert reasons[f"Insufficient {NIC}"] == 2
    assert f"Insufficient {GPU}" not in reasons


def test_what_is_taken_of_a_resource_counts_where_it_is_offered_and_elsewhere_it_is_left_to_devices() -> None:
    some, none = with_class(node("some", extended={GPU: "2"})), with_class(node("n"))
    some.place("some", requests={GPU: "2"})
    pod = some.pod(requests={GPU: "1"})
    assert verdicts(some, pod)[:2] == ([False], [True])
    assert verdicts(none, pod)[0] == [True]
    assert verdicts(World(node("n")).add(class_of("gpu")), pod)[0] == [False]


def test_nodes_are_near_by_what_they_have_to_offer_themselves() -> None:
    world = with_class(node("far", cpu="1"), node("near", cpu="3", extended={GPU: "4"}))
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
