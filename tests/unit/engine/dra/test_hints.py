"""Which events wake a pod that DynamicResources refused: those that can help it, all of them, and few others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import ClusterEventWithHint
from agent_scheduler.engine.events.prehints import ByKeys
from agent_scheduler.engine.plugins.dynamic_resources import DynamicResources
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from tests.support.devices import (
    DRIVER,
    allocated_to,
    attributes,
    books,
    claim_of,
    class_of,
    device,
    exactly,
    slice_of,
)
from tests.support.engine import node, pod_json
from tests.support.engine import wakes as any_wakes

GPU = f"device.attributes['{DRIVER}'].kind == 'gpu'"


def waiting(*claims: str, template: str = "") -> PodInfo:
    entries: list[dict[str, str]] = [{"name": name, "resourceClaimName": name} for name in claims]
    if template:
        entries.append({"name": template, "resourceClaimTemplateName": template})
    return PodReader(PodClasses())(msgspec.json.encode(pod_json("p", resourceClaims=entries)))


def entries_for(plugin: DynamicResources, kind: Resource, action: ActionType) -> list[ClusterEventWithHint]:
    happened = ClusterEvent(kind, action)
    return [each for each in plugin.events_to_register() if each.event.matches(happened)]


def wakes(
    devices: Devices | None,
    pod: PodInfo,
    kind: Resource,
    old: Any,
    new: Any,
    action: ActionType | None = None,
) -> bool:
    did = action or (
        ActionType.ADD if old is None else ActionType.DELETE if new is None else ActionType.UPDATE
    )
    return any_wakes(DynamicResources(devices=devices), pod, ClusterEvent(kind, did), old, new)


@pytest.fixture
def devices() -> Devices:
    """A GPU on n0 that somebody has."""
    return books(
        class_of("gpu", GPU),
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
    old, new = class_of("gpu", GPU), class_of("gpu", "true", version=2)
    assert wakes(devices, waiting("mine"), Resource.DEVICE_CLASS, old, new)
    assert wakes(devices, waiting("mine"), Resource.DEVICE_CLASS, None, new)
    assert not wakes(devices, waiting("mine"), Resource.DEVICE_CLASS, old, class_of("gpu", GPU, version=2))
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
    assert wakes(devices, pod, Resource.RESOURCE_SLICE, empty, None), (
        "it may have kept its pool from being whole"
    )
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
    assert (
        isinstance(entry.pre_hint, ByKeys) and entry.pre_hint.index.shared is not None and entry.pre_hint.once
    )
    shared = entry.pre_hint.index.shared
    assert shared(waiting("mine")) is shared(waiting("mine"))
