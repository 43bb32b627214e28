"""Which events a change of one pod amounts to.

After kube-scheduler's `PodSchedulingPropertiesChange`: one event a property that scheduling looks at, or
UPDATE_POD_OTHER when none of them changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..events.events import ActionType, ClusterEvent, Resource
from .entry import PodLike


class _Changes(NamedTuple):
    """The events of one kind of pod, made once: every report of a kubelet about a pod is one of them."""

    label: ClusterEvent
    scale_down: ClusterEvent
    scale_up: ClusterEvent
    gates: ClusterEvent
    toleration: ClusterEvent
    claim: ClusterEvent
    other: ClusterEvent

    @classmethod
    def of(cls, resource: Resource) -> _Changes:
        return cls(
            ClusterEvent(resource, ActionType.UPDATE_POD_LABEL),
            ClusterEvent(resource, ActionType.UPDATE_POD_SCALE_DOWN),
            ClusterEvent(resource, ActionType.UPDATE_POD_SCALE_UP),
            ClusterEvent(resource, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
            ClusterEvent(resource, ActionType.UPDATE_POD_TOLERATION),
            ClusterEvent(resource, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
            ClusterEvent(resource, ActionType.UPDATE_POD_OTHER),
        )


_OF_WAITING = _Changes.of(Resource.TARGET_POD)
_OF_ASSIGNED = _Changes.of(Resource.ASSIGNED_POD)


def pod_change_events(new: PodLike, old: PodLike, *, assigned: bool = False) -> list[ClusterEvent]:
    """The events of `old` becoming `new`: a waiting pod, or one that has a node. None for one and the same version."""
    if new is old or (new.resource_version and new.resource_version == old.resource_version):
        return []
    changes = _OF_ASSIGNED if assigned else _OF_WAITING
    events = []
    if new.labels != old.labels:
        events.append(changes.label)
    before, after = old.requests, new.requests
    # Those of one class are one object.
    if before is not after:
        if _any_less(after, before):
            events.append(changes.scale_down)
        if _any_less(before, after):
            events.append(changes.scale_up)
    if old.gates and not new.gates:
        events.append(changes.gates)
    if new.tolerations != old.tolerations:
        events.append(changes.toleration)
    if new.claim_statuses != old.claim_statuses:
        events.append(changes.claim)
    return events or [changes.other]


def _any_less(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    return any(left.get(name, 0) < amount for name, amount in right.items())
