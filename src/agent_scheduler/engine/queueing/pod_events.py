"""Which events a change of one pod amounts to.

After kube-scheduler's `PodSchedulingPropertiesChange`: one event a property that scheduling looks at, or
UPDATE_POD_OTHER when none of them changed.
"""

from __future__ import annotations

from .entry import PodLike
from .events import ActionType, ClusterEvent, Resource


def pod_change_events(
    new: PodLike, old: PodLike, *, resource: Resource = Resource.TARGET_POD
) -> list[ClusterEvent]:
    """The events of `old` becoming `new`; none where both are the same version.

    `resource` is TARGET_POD for a waiting pod, ASSIGNED_POD for one that has a node.
    """
    if new is old or (new.resource_version and new.resource_version == old.resource_version):
        return []
    changes = (
        (ActionType.UPDATE_POD_LABEL, new.labels != old.labels),
        (ActionType.UPDATE_POD_SCALE_DOWN, _any_less(new, old)),
        (ActionType.UPDATE_POD_SCALE_UP, _any_less(old, new)),
        (ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, bool(old.gates) and not new.gates),
        (ActionType.UPDATE_POD_TOLERATION, new.tolerations != old.tolerations),
        (ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM, new.claim_statuses != old.claim_statuses),
    )
    events = [ClusterEvent(resource, action) for action, changed in changes if changed]
    return events or [ClusterEvent(resource, ActionType.UPDATE_POD_OTHER)]


def _any_less(left: PodLike, right: PodLike) -> bool:
    requests = left.requests
    return any(requests.get(name, 0) < amount for name, amount in right.requests.items())
