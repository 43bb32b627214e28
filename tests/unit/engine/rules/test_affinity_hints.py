"""Which events wake a pod that a plugin refused, where a hint looks closer than one that wakes all."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.dra.records import DeviceClassInfo
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import HintMap
from agent_scheduler.engine.plugins.inter_pod_affinity import InterPodAffinity
from agent_scheduler.engine.plugins.node_declared_features import NodeDeclaredFeatures
from agent_scheduler.engine.plugins.node_name import NodeName
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from agent_scheduler.engine.plugins.node_unschedulable import NodeUnschedulable
from agent_scheduler.engine.plugins.taint_toleration import TaintToleration
from agent_scheduler.engine.plugins.volume_restrictions import VolumeRestrictions
from agent_scheduler.engine.plugins.volume_zone import VolumeZone
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.features import HOST_NETWORK_USERS, RESTART_ALL
from agent_scheduler.engine.state.namespaces import NamespaceInfo
from agent_scheduler.engine.state.nodeinfo import node_change_events, same_for_scheduling
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.devices import class_of
from tests.support.engine import node, pod_json, read_pod

_classes = PodClasses()


def waiting(*, namespace: str = "default", labels: dict[str, str] | None = None, **spec: Any) -> PodInfo:
    body = pod_json(**spec)
    body["metadata"] |= {"namespace": namespace, "labels": labels or {}}
    return read_pod(body, _classes)


def wakes(plugin: Any, pod: PodInfo, event: ClusterEvent, old: object | None, new: object | None) -> bool:
    """Whether the event does, if `plugin` refused the pod: the same with and without pre-hints."""
    woken = []
    for pre_hints in (True, False):
        queue: SchedulingQueue[PodInfo] = SchedulingQueue(
            clock=lambda: 0.0,
            hint_maps={pod.scheduler_name: HintMap({plugin.name: plugin.events_to_register()})},
            pre_queueing_hints=pre_hints,
        )
        queue.add(pod)
        entry = queue.pop()
        assert entry is not None
        queue.add_unschedulable(entry, unschedulable_plugins=(plugin.name,))
        woken.append(queue.move_all(event, old, new) == 1)
    assert woken[0] is woken[1]
    return woken[0]


def term(**more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone", **more}


def required(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


TEAM_A = {"namespaceSelector": {"matchLabels": {"team": "a"}}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(
    ("event", "before", "after", "expected"),
    [
        (ev.NAMESPACE_UPDATE, {}, {"team": "a"}, True),
        (ev.NAMESPACE_UPDATE, {"team": "a"}, {"team": "b"}, True),
        (ev.NAMESPACE_UPDATE, {"team": "a"}, {"team": "a", "x": "y"}, False),
        (ev.NAMESPACE_ADD, None, {"team": "a"}, True),
        (ev.NAMESPACE_ADD, None, {"team": "b"}, False),
        (ev.NAMESPACE_DELETE, {"team": "a"}, None, True),
        (ev.NAMESPACE_DELETE, {"team": "b"}, None, False),
    ],
)
def test_a_namespace_that_a_term_speaks_of_now_or_no_more_wakes(
    kind: str, event: ClusterEvent, before: Any, after: Any, expected: bool
) -> None:
    pod = waiting(affinity=required(kind, term(**TEAM_A)))
    old, new = (None if labels is None else NamespaceInfo("elsewhere", labels) for labels in (before, after))
    assert wakes(InterPodAffinity(), pod, event, old, new) is expected


def test_other_labels_of_its_own_namespace_wake_a_pod_that_terms_of_others_may_have_refused() -> None:
    old, new = NamespaceInfo("default", {}), NamespaceInfo("default", {"team": "a"})
    assert wakes(InterPodAffinity(), waiting(), ev.NAMESPACE_UPDATE, old, new)
    assert not wakes(InterPodAffinity(), waiting(namespace="other"), ev.NAMESPACE_UPDATE, old, new)


def test_a_namespace_wakes_nobody_whose_terms_name_their_namespaces() -> None:
    pod = waiting(affinity=required("podAffinity", term(namespaces=["elsewhere"])))
    old, new = NamespaceInfo("elsewhere", {}), NamespaceInfo("elsewhere", {"team": "a"})
    assert not wakes(InterPodAffinity(), pod, ev.NAMESPACE_UPDATE, old, new)


def test_anti_affinity_that_is_made_of_labels_ends_with_them() -> None:
    """With matchLabelKeys a pod that runs keeps others away by its own labels."""
    pod = waiting(labels={"app": "db", "tier": "gold"})
    affinity = required("podAntiAffinity", term(matchLabelKeys=["tier"]))
    gold, iron = (
        waiting(labels={"tier": tier}, affinity=affinity, nodeName="n") for tier in ("gold", "iron")
    )
    event = ClusterEvent(Resource.ASSIGNED_POD, ActionType.UPDATE_POD_LABEL)
    assert wakes(InterPodAffinity(), pod, event, gold, iron)
    assert not wakes(InterPodAffinity(), pod, event, iron, gold)


@pytest.mark.parametrize(("labels", "expected"), [({"app": "db"}, True), ({"app": "web"}, False)])
def test_the_end_of_whom_affinity_wants_wakes_as_its_coming_does(
    labels: dict[str, str], expected: bool
) -> None:
    """A pod that wants its like may go anywhere once there is none."""
    pod = waiting(labels={"app": "db"}, affinity=required("podAffinity", term()))
    other = waiting(labels=labels, nodeName="n")
    assert wakes(InterPodAffinity(), pod, ev.ASSIGNED_POD_ADD, None, other) is expected
    assert wakes(InterPodAffinity(), pod, ev.ASSIGNED_POD_DELETE, other, None) is expected


@pytest.mark.parametrize("labels", [{}, {"zone": "a"}])
def test_any_new_node_wakes_a_pod_that_only_avoids_others(labels: dict[str, str]) -> None:
    """In a domain of its own, or in none, there is nobody to avoid."""
    pod = waiting(affinity=required("podAntiAffinity", term()))
    assert wakes(InterPodAffinity(), pod, ev.NODE_ADD, None, node("n", labels=labels))


TAINT = {"key": "k", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, [], True),
        (None, [TAINT], False),
        ([TAINT], [], True),
        ([TAINT, OTHER], [TAINT], False),
        ([], [{"key": "soft", "effect": "PreferNoSchedule"}], False),
    ],
)
def test_a_node_wakes_whom_taints_refused_when_all_that_are_left_are_tolerated(
    before: Any, after: Any, expected: bool
) -> None:
    old, new = (None if taints is None else node("n", taints=taints) for taints in (before, after))
    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_TAINT
    assert wakes(TaintToleration(), waiting(), event, old, new) is expected
    tolerant = waiting(tolerations=[{"key": "k", "operator": "Exists"}])
    tolerates = before in (None, [TAINT, OTHER])
    assert wakes(TaintToleration(), tolerant, event, old, new) is tolerates


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(None, False, True), (None, True, False), (True, False, True), (False, False, False)],
)
def test_a_node_wakes_whom_a_cordon_refused_when_it_comes_open_or_is_opened(
    before: bool | None, after: bool, expected: bool
) -> None:
    old, new = (
        None if cordoned is None else node("n", unschedulable=cordoned) for cordoned in (before, after)
    )
    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_TAINT
    assert wakes(NodeUnschedulable(), waiting(), event, old, new) is expected


def test_a_node_of_another_zone_wakes_whom_volume_zone_refused_and_one_of_another_rack_does_not() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pod = waiting(volumes=volumes)
    zone = "topology.kubernetes.io/zone"
    was, moved, renamed = (
        node("n", labels=labels) for labels in ({zone: "a"}, {zone: "b"}, {zone: "a", "rack": "7"})
    )
    bare = node("n")
    assert wakes(VolumeZone(), pod, ev.NODE_ADD, None, was)
    assert wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, moved)
    assert wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, bare), (
        "a node without zones takes every volume"
    )
    assert not wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, renamed)


def test_a_new_node_wakes_whom_node_name_refused_whatever_the_name_where_none_is_kept() -> None:
    assert wakes(NodeName(), waiting(), ev.NODE_ADD, None, node("n"))


CLASS_ADD = ClusterEvent(Resource.DEVICE_CLASS, ActionType.ADD)
CLASS_UPDATE = ClusterEvent(Resource.DEVICE_CLASS, ActionType.UPDATE)
GPU = "example.com/gpu"


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
    pod = waiting(requests={resource: "1"})
    assert wakes(NodeResourcesFit(), pod, event, old, new) is expected


WANTS_AND_AVOIDS = {
    **required("podAffinity", {**term(), "topologyKey": "rack"}),
    **required("podAntiAffinity", term()),
}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # The pod is kept from the zone of the changed node, which has no rack, and will never go there itself.
        ({"zone": "a"}, {"zone": "b"}, True),
        ({"zone": "a"}, {}, True),
        ({}, {"rack": "r"}, True),
        ({"zone": "a"}, {"zone": "a", "row": "7"}, False),
        (None, {"rack": "r"}, True),
        (None, {"zone": "a"}, False),
    ],
)
def test_a_node_that_moves_wakes_by_each_key_of_each_term(
    before: dict[str, str] | None, after: dict[str, str], expected: bool
) -> None:
    pod = waiting(affinity=WANTS_AND_AVOIDS)
    old, new = (None if labels is None else node("n", labels=labels) for labels in (before, after))
    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_LABEL
    assert wakes(InterPodAffinity(), pod, event, old, new) is expected


def test_a_node_by_which_one_term_is_met_wakes_whom_another_term_keeps_from_it() -> None:
    """The pod that is wanted runs there, and with the node it comes into a zone that has racks elsewhere."""
    both = required("podAffinity", term(), {**term(), "topologyKey": "rack"})
    old, new = node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"})
    assert wakes(InterPodAffinity(), waiting(affinity=both), ev.NODE_UPDATE_LABEL, old, new)


DECLARED = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_DECLARED_FEATURE)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, [HOST_NETWORK_USERS, RESTART_ALL], True),
        (None, [RESTART_ALL], False),
        ([], [HOST_NETWORK_USERS], True),
        ([HOST_NETWORK_USERS], [HOST_NETWORK_USERS, RESTART_ALL], False),
        ([HOST_NETWORK_USERS], [], False),
    ],
)
def test_a_node_that_declares_what_a_pod_needs_wakes_it(
    before: list[str] | None, after: list[str], expected: bool
) -> None:
    pod = waiting(hostNetwork=True, hostUsers=False)
    old, new = (None if each is None else node("n", declared=each) for each in (before, after))
    event = ev.NODE_ADD if old is None else DECLARED
    assert wakes(NodeDeclaredFeatures(), pod, event, old, new) is expected


def test_a_node_that_declares_something_else_is_another_to_decisions_and_tells_so() -> None:
    old, new = (node("n", declared=each) for each in ([RESTART_ALL, "Else"], [HOST_NETWORK_USERS]))
    same = node("n", declared=[RESTART_ALL, "Other"])
    assert not same_for_scheduling(new, old)
    assert DECLARED in node_change_events(new, old)
    assert same_for_scheduling(same, old)
    assert node_change_events(same, old) == []


def test_a_node_that_goes_wakes_whom_its_pods_claim_was_kept_from() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    assert wakes(VolumeRestrictions(), waiting(volumes=volumes), ev.NODE_DELETE, node("n"), None)
