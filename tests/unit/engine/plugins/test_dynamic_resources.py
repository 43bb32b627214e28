"""DynamicResources among the other plugins of a profile, and which events wake a pod that it refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.records import read_claim
from agent_scheduler.engine.dra.reservation import ReservedClaims
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import ClusterEventWithHint
from agent_scheduler.engine.events.prehints import ByKeys
from agent_scheduler.engine.plugins.dynamic_resources import DynamicResources
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from tests.support.devices import (
    DRIVER,
    N0,
    N1,
    allocated_to,
    attributes,
    books,
    claim_of,
    class_of,
    device,
    exactly,
    slice_of,
)
from tests.support.engine import SPREAD, World, node, pod_json
from tests.support.engine import wakes as any_wakes


class Cluster(World):
    """Two nodes with two devices each, n0's in pool `p` and n1's in pool `q`."""

    def __init__(self) -> None:
        super().__init__(N0, N1, profile=SPREAD)
        self.add(class_of(), slice_of("s0", device("a"), device("b")))
        more = device("c"), device("d"), device("e")
        self.add(slice_of("s1", *more, pool={"name": "q"}, nodeName="n1"))

    def with_claim(self, name: str, claim: str) -> PodInfo:
        return self.pod(name, resourceClaims=[{"name": "mine", "resourceClaimName": claim}])

    def nodes(self, pod: PodInfo) -> list[str]:
        decision = self.decide(pod)
        return [] if isinstance(decision, Refusal) else [each.node_name for each in decision.candidates]

    def reserve(self, pod: PodInfo, node_name: str) -> ReservedClaims | None:
        plugin = DynamicResources(devices=self.devices)
        return plugin.reserve(self.state(pod, plugin), pod, self.node(node_name), "")


@pytest.mark.promise("S17")
def test_pods_of_one_template_are_one_class_and_each_sees_what_those_before_it_took() -> None:
    cluster = Cluster()
    pods = []
    for index in range(6):
        cluster.devices.set_claim(claim_of(f"c{index}"))
        pods.append(cluster.with_claim(f"p{index}", f"c{index}"))
    classes = {cluster.snapshot.handle.class_of(pod) for pod in pods}
    assert len(classes) == 1
    placed = []
    for pod in pods[:5]:
        name = cluster.nodes(pod)[0]
        placed.append(name)
        assert cluster.reserve(pod, name)
    assert sorted(placed) == ["n0", "n0", "n1", "n1", "n1"]
    refusal = cluster.decide(pods[5])
    assert isinstance(refusal, Refusal)
    assert refusal.message == "0/2 nodes are available: 2 cannot allocate all claims."
    assert refusal.plugins == {"DynamicResources"}
    assert cluster.reserve(pods[5], "n0") is None
    cluster.devices.forget(pods[0].uid)
    assert cluster.nodes(pods[5]) == [placed[0]]


def test_a_node_where_the_first_alternative_can_be_had_ranks_before_others() -> None:
    cluster = Cluster()
    options = [{"name": "three", "deviceClassName": "any", "count": 3}, {"name": "one", "deviceClassName": "any"}]
    cluster.devices.set_claim(claim_of("mine", {"name": "r", "firstAvailable": options}))
    pod = cluster.with_claim("p", "mine")
    assert cluster.nodes(pod)[0] == "n1"
    view = cluster.views.of(cluster.snapshot.handle.class_of(pod))
    columns = cluster.snapshot.columns
    rows = columns.all_rows()
    (scores,) = [values for name, values in view.plugin_scores(columns, rows).items() if name == "DynamicResources"]
    assert dict(zip(("n0", "n1"), scores.tolist(), strict=True)) == {"n0": 2 * (700 // 8), "n1": 2 * 100}


def test_nobody_is_evicted_for_devices() -> None:
    cluster = Cluster()
    cluster.devices.set_claim(claim_of("mine", exactly(count=9)))
    cluster.decide(cluster.with_claim("p", "mine"))
    view = cluster.views.of(cluster.snapshot.handle.class_of(cluster.with_claim("p", "mine")))
    assert view.refused(cluster.snapshot.columns).curable.size == 0


def test_an_explanation_counts_the_devices_that_match_and_those_that_are_free() -> None:
    cluster = Cluster()
    cluster.devices.set_claim(claim_of("mine", exactly(count=2)))
    cluster.devices.set_claim(claim_of("other", status=allocated_to("a")))
    pod = cluster.with_claim("p", "mine")
    cluster.decide(pod)
    plugin = DynamicResources(cluster.devices)
    state = plugin.prepare(cluster.snapshot.handle.class_of(pod), cluster.snapshot.handle)
    assert state is not None
    assert plugin.missing(state, cluster.snapshot.columns, 0) == (
        "cannot allocate all claims; claim mine, request r: wants 2 of class any, 2 match, 1 of them free"
    )
    assert plugin.missing(state, cluster.snapshot.columns, 1) == ""


def test_what_was_worked_out_for_a_node_goes_with_it() -> None:
    cluster = Cluster()
    cluster.devices.set_claim(claim_of("mine"))
    pod = cluster.with_claim("p", "mine")
    assert set(cluster.nodes(pod)) == {"n0", "n1"}
    assert "n0" in cluster.devices.node_devices
    cluster.ledger.remove_node("n0")
    cluster.devices.forget_node("n0")
    assert "n0" not in cluster.devices.node_devices
    assert cluster.nodes(pod) == ["n1"]
    cluster.ledger.set_node(node("n0"))
    assert set(cluster.nodes(pod)) == {"n0", "n1"}


def test_a_claim_with_a_status_that_cannot_be_read_is_not_lost_and_keeps_its_pods_waiting() -> None:
    cluster = Cluster()
    body = b'{"metadata":{"name":"mine","namespace":"default","uid":"u","resourceVersion":"3"},"spec":{},"status":7}'
    cluster.devices.set_claim(read_claim(body))
    refusal = cluster.decide(cluster.with_claim("p", "mine"))
    assert isinstance(refusal, Refusal)
    assert "resourceclaim default/mine: Expected `object`, got `int` - at `$.status`" in refusal.message


IS_GPU = f"device.attributes['{DRIVER}'].kind == 'gpu'"


def waiting(*claims: str, template: str = "") -> PodInfo:
    entries: list[dict[str, str]] = [{"name": name, "resourceClaimName": name} for name in claims]
    if template:
        entries.append({"name": template, "resourceClaimTemplateName": template})
    return PodReader(PodClasses())(msgspec.json.encode(pod_json("p", resourceClaims=entries)))


def entries_for(plugin: DynamicResources, kind: Resource, action: ActionType) -> list[ClusterEventWithHint]:
    happened = ClusterEvent(kind, action)
    return [each for each in plugin.events_to_register() if each.event.matches(happened)]


def wakes(
    devices: Devices | None, pod: PodInfo, kind: Resource, old: Any, new: Any, action: ActionType | None = None
) -> bool:
    did = action or (ActionType.ADD if old is None else ActionType.DELETE if new is None else ActionType.UPDATE)
    return any_wakes(DynamicResources(devices=devices), pod, ClusterEvent(kind, did), old, new)


@pytest.fixture
def devices() -> Devices:
    """A IS_GPU on n0 that somebody has."""
    return books(
        class_of("gpu", IS_GPU),
        slice_of("s", device("a", attributes=attributes(kind="gpu"))),
        claim_of("mine", exactly(class_name="gpu")),
        claim_of("other", status=allocated_to("a")),
    )


def test_a_claim_that_lost_its_devices_wakes_everybody_who_can_be_tried(devices: Devices) -> None:
    old, new = claim_of("other", status=allocated_to("a")), claim_of("other", version=2)
    assert wakes(devices, waiting("mine"), Resource.RESOURCE_CLAIM, old, new)
    assert wakes(devices, waiting("mine"), Resource.RESOURCE_CLAIM, old, None)
    assert not wakes(devices, waiting("mine", "none"), Resource.RESOURCE_CLAIM, old, new)


def test_a_claim_wakes_the_pods_that_name_it_if_anything_about_it_changed(devices: Devices) -> None:
    mine, later = claim_of("mine", exactly(class_name="gpu")), claim_of("mine", version=2)
    allocated = claim_of("mine", exactly(class_name="gpu"), version=3, status=allocated_to("a"))
    pod = waiting("mine")
    assert wakes(devices, pod, Resource.RESOURCE_CLAIM, None, mine)
    assert wakes(devices, pod, Resource.RESOURCE_CLAIM, mine, allocated)
    assert wakes(devices, pod, Resource.RESOURCE_CLAIM, mine, later)
    same = claim_of("mine", exactly(class_name="gpu"), version=9)
    assert not wakes(devices, pod, Resource.RESOURCE_CLAIM, mine, same)
    assert not wakes(devices, pod, Resource.RESOURCE_CLAIM, None, claim_of("stranger"))


def test_a_status_that_comes_late_wakes_its_own_pod_once_all_claims_are_there(devices: Devices) -> None:
    update = ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM
    pod, other = waiting("mine"), waiting("mine")
    assert wakes(devices, pod, Resource.TARGET_POD, pod, pod, update)
    assert not wakes(devices, pod, Resource.TARGET_POD, other, other, update)
    short = waiting("mine", template="t")
    assert not wakes(devices, short, Resource.TARGET_POD, short, short, update)


def test_a_class_wakes_those_who_ask_for_its_devices(devices: Devices) -> None:
    old, new = class_of("gpu", IS_GPU), class_of("gpu", "true", version=2)
    assert wakes(devices, waiting("mine"), Resource.DEVICE_CLASS, old, new)
    assert wakes(devices, waiting("mine"), Resource.DEVICE_CLASS, None, new)
    assert not wakes(devices, waiting("mine"), Resource.DEVICE_CLASS, old, class_of("gpu", IS_GPU, version=2))
    assert not wakes(devices, waiting("mine"), Resource.DEVICE_CLASS, None, class_of("nic"))


def test_a_slice_wakes_those_who_ask_for_what_its_pool_has(devices: Devices) -> None:
    pod = waiting("mine")
    gpu = slice_of("t", device("b", attributes=attributes(kind="gpu")), pool={"name": "q"})
    nic = slice_of("t", device("b", attributes=attributes(kind="nic")), pool={"name": "q"})
    dumb = slice_of("t", device("b"), pool={"name": "q"})
    assert wakes(devices, pod, Resource.RESOURCE_SLICE, None, gpu)
    assert not wakes(devices, pod, Resource.RESOURCE_SLICE, None, nic)
    assert wakes(devices, pod, Resource.RESOURCE_SLICE, dumb, nic), "the old one could not be asked"
    empty = slice_of("u")
    assert wakes(devices, pod, Resource.RESOURCE_SLICE, empty, None), "it may have kept its pool from being whole"
    everything = books(claim_of("mine", exactly(allocationMode="All")))
    assert wakes(everything, pod, Resource.RESOURCE_SLICE, nic, None)


def test_a_node_wakes_those_whose_claims_can_be_had_there(devices: Devices) -> None:
    pod = waiting("mine")
    assert not wakes(devices, pod, Resource.NODE, None, node("n0")), "its device is taken"
    devices.set_claim(claim_of("other", version=2))
    assert wakes(devices, pod, Resource.NODE, None, node("n0"))
    assert not wakes(devices, pod, Resource.NODE, None, node("n1"))
    label = ActionType.UPDATE_NODE_LABEL
    assert wakes(devices, pod, Resource.NODE, node("n0"), node("n0", labels={"a": "b"}), label)
    more = ActionType.UPDATE_NODE_ALLOCATABLE
    assert not wakes(devices, pod, Resource.NODE, node("n0"), node("n0", cpu="64"), more)


def test_without_a_picture_of_the_devices_every_event_wakes() -> None:
    pod = waiting("mine")
    events: list[tuple[Resource, Any, Any]] = [
        (Resource.NODE, None, node("n0")),
        (Resource.DEVICE_CLASS, None, class_of("gpu")),
        (Resource.RESOURCE_SLICE, None, slice_of("s")),
    ]
    assert all(wakes(None, pod, *event) for event in events)


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (waiting, None),
        (lambda: waiting("mine"), None),
        (lambda: waiting("none"), 'resourceclaim.resource.k8s.io "none" not found'),
        (lambda: waiting(template="t"), 'pod "default/p": ResourceClaim not created yet'),
    ],
)
def test_a_pod_is_kept_from_the_queue_until_its_claims_are_there(
    pod: Callable[[], PodInfo], said: str | None, devices: Devices
) -> None:
    assert DynamicResources(devices=devices).pre_enqueue(pod()) == said


def test_pods_that_ask_for_the_same_have_one_place_in_the_index(devices: Devices) -> None:
    plugin = DynamicResources(devices=devices)
    (entry,) = entries_for(plugin, Resource.RESOURCE_SLICE, ActionType.ADD)
    assert isinstance(entry.pre_hint, ByKeys) and entry.pre_hint.index.shared is not None and entry.pre_hint.once
    shared = entry.pre_hint.index.shared
    assert shared(waiting("mine")) is shared(waiting("mine"))
