"""Which events may cure a refusal by one of the volume rules, and whether this one does for this pod (KEP-4247).

The hints compare what is before and after, never the whole catalogue, and rather wake a pod in vain than leave one
asleep. Where kube-scheduler wakes all (any change of a volume) or nobody (a driver that no longer tells its
capacity), they look closer. What a reservation gave back is told as new (`Catalogue.release`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..podinfo import PodInfo
from ..queueing.events import ActionType, ClusterEvent, Resource
from ..queueing.hints import ClusterEventWithHint, HintFn, QueueingHint
from .catalogue import same
from .inline import conflicts
from .podvolumes import PodVolumes
from .records import (
    WAIT_FOR_CONSUMER,
    CapacityInfo,
    ClaimInfo,
    ClassInfo,
    CSINodeInfo,
    DriverInfo,
    VolumeInfo,
)
from .zone import topologies

#: The volumes of a pod as the queue and the watch have it.
VolumesOf = Callable[[PodInfo], PodVolumes | None]

#: A hint of one rule: (volumes of the waiting pod, object before, object after).
Hint = Callable[[PodVolumes, Any, Any], bool]


_ADD_OR_UPDATE = ActionType.ADD | ActionType.UPDATE
_NONE: frozenset[str] = frozenset()
_NODE = ActionType.ADD | ActionType.UPDATE_NODE_LABEL


def volumes_of(pod: PodInfo) -> PodVolumes | None:
    return pod.cls.volumes


def binding_events(of: VolumesOf) -> tuple[ClusterEventWithHint, ...]:
    """VolumeBinding's."""
    return (
        _on(of, Resource.STORAGE_CLASS, _ADD_OR_UPDATE, class_may_help),
        _on(of, Resource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, claim_may_help),
        _on(of, Resource.PERSISTENT_VOLUME, _ADD_OR_UPDATE, volume_may_help),
        _on(of, Resource.NODE, _NODE, None),
        _on(of, Resource.CSI_NODE, _ADD_OR_UPDATE | ActionType.DELETE, migration_may_help),
        _on(of, Resource.CSI_DRIVER, ActionType.UPDATE | ActionType.DELETE, driver_may_help),
        _on(of, Resource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE, capacity_may_help),
    )


def zone_events(of: VolumesOf) -> tuple[ClusterEventWithHint, ...]:
    """VolumeZone's."""
    return (
        _on(of, Resource.STORAGE_CLASS, ActionType.ADD, waiting_class_may_help),
        _on(of, Resource.NODE, _NODE, None),
        _on(of, Resource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, claim_may_help),
        _on(of, Resource.PERSISTENT_VOLUME, _ADD_OR_UPDATE, zone_may_help),
    )


def restriction_events(of: VolumesOf) -> tuple[ClusterEventWithHint, ...]:
    """VolumeRestrictions'."""
    return (
        _on_pod_gone(of, conflict_may_end),
        _on(of, Resource.NODE, ActionType.ADD, None),
        _on(of, Resource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD, claim_may_help),
    )


def limit_events(of: VolumesOf) -> tuple[ClusterEventWithHint, ...]:
    """NodeVolumeLimits'."""
    return (
        # A node without a CSINode, or whose CSINode goes, has no limits.
        _on(of, Resource.NODE, ActionType.ADD, None),
        _on(of, Resource.CSI_NODE, ActionType.ADD | ActionType.DELETE, None),
        _on(of, Resource.CSI_NODE, ActionType.UPDATE, limit_may_help),
        _on_pod_gone(of, detached_may_help),
        _on(of, Resource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD, claim_may_help),
        _on(of, Resource.VOLUME_ATTACHMENT, ActionType.DELETE, attachment_gone_may_help),
    )


# ---- hints


def claim_may_help(pod: PodVolumes, old: ClaimInfo | None, new: ClaimInfo) -> bool:
    """It is the pod's, and not only its resourceVersion has changed."""
    return new.key in pod.keys and (old is None or not same(new, old))


def class_may_help(pod: PodVolumes, old: ClassInfo | None, new: ClassInfo) -> bool:
    """It is new, or its volumes may be made elsewhere. Nothing else of a class can change."""
    return old is None or new.reach != old.reach


def waiting_class_may_help(pod: PodVolumes, old: ClassInfo | None, new: ClassInfo) -> bool:
    return new.binding_mode == WAIT_FOR_CONSUMER


def volume_may_help(pod: PodVolumes, old: VolumeInfo | None, new: VolumeInfo) -> bool:
    """The pod could get it, or has it, and not only its resourceVersion has changed."""
    if old is not None and same(new, old):
        return False
    ref = new.claim_ref
    return ref is None or (ref.namespace, ref.name) in pod.keys


def zone_may_help(pod: PodVolumes, old: VolumeInfo | None, new: VolumeInfo) -> bool:
    return old is None or topologies(new) != topologies(old)


def migration_may_help(pod: PodVolumes, old: CSINodeInfo | None, new: CSINodeInfo | None) -> bool:
    """The topology of in-tree volumes is read otherwise on the node."""
    return (old.migrated if old else _NONE) != (new.migrated if new else _NONE)


def driver_may_help(pod: PodVolumes, old: DriverInfo, new: DriverInfo | None) -> bool:
    """It no longer asks to have its capacity looked at."""
    return old.tells_capacity and (new is None or not new.tells_capacity)


def capacity_may_help(pod: PodVolumes, old: CapacityInfo | None, new: CapacityInfo) -> bool:
    """There is more room than before, or it can be reached from elsewhere."""
    return old is None or new.limit > old.limit or new.reach != old.reach


def limit_may_help(pod: PodVolumes, old: CSINodeInfo, new: CSINodeInfo) -> bool:
    """A driver can attach more than before, or has no limit any more."""
    return any(driver not in new.limits or new.limits[driver] > count for driver, count in old.limits.items())


def attachment_gone_may_help(pod: PodVolumes, old: object, new: object) -> bool:
    return bool(pod.claims or pod.in_tree)


def conflict_may_end(pod: PodVolumes, gone: PodVolumes, _: object) -> bool:
    """The pod that went had a disk that this one must not share, or a claim that only one may have."""
    return not pod.keys.isdisjoint(gone.keys) or any(
        conflicts(disk, other) for disk in pod.disks for other in gone.disks
    )


def detached_may_help(pod: PodVolumes, gone: PodVolumes, _: object) -> bool:
    return bool(gone.claims or gone.in_tree)


# ---- as the queue asks


def _on(of: VolumesOf, kind: Resource, action: ActionType, hint: Hint | None) -> ClusterEventWithHint:
    return ClusterEventWithHint(ClusterEvent(kind, action), _asked(of, hint) if hint is not None else None)


def _asked(of: VolumesOf, hint: Hint) -> HintFn:
    def ask(pod: Any, old: object | None, new: object | None) -> QueueingHint:
        volumes = of(pod)
        # It may have lost its volumes with its class since it was refused: let the rules say.
        helps = volumes is None or hint(volumes, old, new)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    return ask


def _on_pod_gone(of: VolumesOf, hint: Hint) -> ClusterEventWithHint:
    def with_volumes_of_gone(pod: PodVolumes, old: Any, new: object) -> bool:
        gone = of(old)
        return gone is not None and hint(pod, gone, None)

    return _on(of, Resource.ASSIGNED_POD, ActionType.DELETE, with_volumes_of_gone)
