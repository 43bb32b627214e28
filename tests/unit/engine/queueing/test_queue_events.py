"""Names of events, what matches what, and which events a change of a pod amounts to."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.queueing.entry import pod_change_events

from .queue_world import pod, replace


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ev.UNSCHEDULED_POD_ADD, "UnscheduledPodAdd"),
        (ev.UNSCHEDULED_POD_UPDATE, "UnscheduledPodUpdate"),
        (ev.UNSCHEDULED_POD_DELETE, "UnscheduledPodDelete"),
        (ev.ASSIGNED_POD_ADD, "AssignedPodAdd"),
        (ev.ASSIGNED_POD_UPDATE, "AssignedPodUpdate"),
        (ev.ASSIGNED_POD_DELETE, "AssignedPodDelete"),
        (ev.NODE_ADD, "NodeAdd"),
        (ev.NODE_DELETE, "NodeDelete"),
        (ev.NODE_UPDATE_ALLOCATABLE, "NodeUpdateAllocatable"),
        (ev.NODE_UPDATE_LABEL, "NodeUpdateLabel"),
        (ev.NODE_UPDATE_TAINT, "NodeUpdateTaint"),
        (ev.NODE_UPDATE_CONDITION, "NodeUpdateCondition"),
        (ev.NODE_UPDATE_ANNOTATION, "NodeUpdateAnnotation"),
        (ev.FORCE_ACTIVATE, "ForceActivate"),
        (ev.UNSCHEDULABLE_TIMEOUT, "UnschedulableTimeout"),
        (ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD), "PersistentVolumeClaimAdd"),
        (ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.UPDATE), "ResourceClaimUpdate"),
        (ClusterEvent(Resource.VOLUME_ATTACHMENT, ActionType.DELETE), "VolumeAttachmentDelete"),
        (ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_LABEL), "UnscheduledPodUpdate"),
        (ClusterEvent(Resource.ASSIGNED_POD, ActionType.UPDATE_POD_SCALE_DOWN), "AssignedPodUpdate"),
        (ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL), "NodeAll"),
    ],
)
def test_an_event_is_labelled_as_kube_scheduler_labels_it(event: ClusterEvent, label: str):
    assert event.label == str(event) == label


def test_only_every_action_on_every_resource_is_a_wildcard():
    assert ev.FORCE_ACTIVATE.is_wildcard
    assert not ClusterEvent(Resource.WILDCARD, ActionType.ADD).is_wildcard
    assert not ClusterEvent(Resource.NODE, ActionType.ALL).is_wildcard


def test_update_includes_every_narrower_update_and_neither_add_nor_delete():
    for action in ActionType:
        narrower = action not in (ActionType.ADD, ActionType.DELETE)
        assert bool(action & ActionType.UPDATE) is narrower, action
        assert action & ActionType.ALL


POD_KINDS = {Resource.ASSIGNED_POD, Resource.TARGET_POD, Resource.UNSCHEDULED_POD}


@pytest.mark.parametrize("one", list(Resource))
@pytest.mark.parametrize("other", list(Resource))
def test_resources_overlap_when_one_includes_the_other(one: Resource, other: Resource):
    expected = (
        one == other
        or Resource.WILDCARD in {one, other}
        or (Resource.POD in {one, other} and bool(POD_KINDS & {one, other}))
    )
    assert one.overlaps(other) is expected


BASE = pod(
    "a",
    resource_version="1",
    labels={"app": "x"},
    gates=("hold",),
    requests={"cpu": 500, "memory": 1000},
    tolerations=("t1",),
    claim_statuses=(("gpu", ""),),
)


@pytest.mark.parametrize(
    ("change", "actions"),
    [
        ({"labels": {"app": "y"}}, ["UPDATE_POD_LABEL"]),
        ({"requests": {"cpu": 400, "memory": 1000}}, ["UPDATE_POD_SCALE_DOWN"]),
        ({"requests": {"cpu": 500}}, ["UPDATE_POD_SCALE_DOWN"]),
        ({"requests": {"cpu": 600, "memory": 1000}}, ["UPDATE_POD_SCALE_UP"]),
        ({"requests": {"cpu": 600, "memory": 1}}, ["UPDATE_POD_SCALE_DOWN", "UPDATE_POD_SCALE_UP"]),
        ({"gates": ()}, ["UPDATE_POD_SCHEDULING_GATES_ELIMINATED"]),
        ({"gates": ("other",)}, ["UPDATE_POD_OTHER"]),
        ({"tolerations": ("t1", "t2")}, ["UPDATE_POD_TOLERATION"]),
        ({"claim_statuses": (("gpu", "gpu-abc"),)}, ["UPDATE_POD_GENERATED_RESOURCE_CLAIM"]),
        ({"phase": "Other"}, ["UPDATE_POD_OTHER"]),
        ({"labels": {}, "tolerations": ()}, ["UPDATE_POD_LABEL", "UPDATE_POD_TOLERATION"]),
    ],
    ids="+".join,
)
def test_a_changed_pod_amounts_to_one_event_a_property(change: dict[str, object], actions: list[str]):
    events = pod_change_events(replace(BASE, resource_version="2", **change), BASE)
    assert [event.action for event in events] == [ActionType[name] for name in actions]
    assert {event.resource for event in events} == {Resource.TARGET_POD}


def test_a_changed_pod_that_has_a_node_is_an_assigned_pod():
    [event] = pod_change_events(replace(BASE, resource_version="2", labels={}), BASE, assigned=True)
    assert event == ClusterEvent(Resource.ASSIGNED_POD, ActionType.UPDATE_POD_LABEL)


def test_a_pod_that_did_not_change_amounts_to_no_event():
    assert pod_change_events(BASE, BASE) == []
    assert pod_change_events(replace(BASE), BASE) == []
