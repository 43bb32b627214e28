"""The events that may help pods refused by the volume rules, with hints for each pod (KEP-4247).

The hints compare the object before and after, never the whole `Catalogue`, and prefer a needless retry to a missed one.
Where kube-scheduler wakes all pods (any change of a volume) or none (a driver that no longer reports its capacity),
they are more precise. Released reservations are passed on as new objects (`Catalogue.release`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, HintFn, QueueingHint
from ..events.prehints import ALL_PODS, ANYWAY, AllPods, ByKeys, Key, PodIndex
from ..state.inline import conflicts
from ..state.migration import BETA_REGION, BETA_ZONE, REGION, SEPARATOR, ZONE
from ..state.nodeinfo import NodeInfo
from ..state.podinfo import PodInfo
from ..state.podvolumes import PodVolumes
from ..state.records import same
from .records import WAIT_FOR_CONSUMER, CapacityInfo, ClaimInfo, ClassInfo, CSINodeInfo, DriverInfo, VolumeInfo

#: The volumes of a pod of the queue or the watch.
VolumesOf = Callable[[PodInfo], PodVolumes | None]

#: A hint of one rule: (volumes of the waiting pod, object before, object after).
Hint = Callable[[PodVolumes, Any, Any], bool]


_ADD_OR_UPDATE = ActionType.ADD | ActionType.UPDATE
_NONE: frozenset[str] = frozenset()
_NODE = ActionType.ADD | ActionType.UPDATE_NODE_LABEL


#: The labels of a volume with its zones and regions (VolumeZone).
TOPOLOGY_LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)


class Topology(NamedTuple):
    """A label that the node must have, with one of the values."""

    key: str
    values: frozenset[str]


def topologies(volume: VolumeInfo) -> tuple[Topology, ...]:
    """Return the node labels that the volume's labels require.

    A label with an empty part in its value requires none.
    """
    found = []
    for key in TOPOLOGY_LABELS:
        if key in volume.labels:
            values = frozenset(part.strip() for part in volume.labels[key].split(SEPARATOR))
            if "" not in values:
                found.append(Topology(key, values))
    return tuple(found)


def volumes_of(pod: PodInfo) -> PodVolumes | None:
    return pod.cls.volumes


def binding_events(of: VolumesOf) -> tuple[ClusterEventWithHint, ...]:
    """Return the events of VolumeBinding."""
    on = _Asked(of).on
    return (
        on(Resource.STORAGE_CLASS, _ADD_OR_UPDATE, class_may_help, _any_pod),
        on(Resource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, claim_may_help, _of_claim),
        on(Resource.PERSISTENT_VOLUME, _ADD_OR_UPDATE, volume_may_help, _of_volume),
        ClusterEventWithHint(ClusterEvent(Resource.NODE, _NODE)),
        on(Resource.CSI_NODE, _ADD_OR_UPDATE | ActionType.DELETE, migration_may_help, _any_pod),
        on(Resource.CSI_DRIVER, ActionType.UPDATE | ActionType.DELETE, driver_may_help, _any_pod),
        on(Resource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE, capacity_may_help, _any_pod),
    )


def zone_events(of: VolumesOf) -> tuple[ClusterEventWithHint, ...]:
    """Return the events of VolumeZone."""
    on = _Asked(of).on
    return (
        on(Resource.STORAGE_CLASS, ActionType.ADD, waiting_class_may_help, _any_pod),
        on(Resource.NODE, _NODE, node_may_help, _any_pod),
        on(Resource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, claim_may_help, _of_claim),
        on(Resource.PERSISTENT_VOLUME, _ADD_OR_UPDATE, zone_may_help, _any_pod),
    )


def restriction_events(of: VolumesOf) -> tuple[ClusterEventWithHint, ...]:
    """Return the events of VolumeRestrictions."""
    asked = _Asked(of)
    on = asked.on
    return (
        asked.on_pod_gone(conflict_may_end, _of_gone),
        # A pod counts as using its claims only as long as its node exists.
        ClusterEventWithHint(ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.DELETE)),
        on(Resource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD, claim_may_help, _of_claim),
    )


def limit_events(of: VolumesOf) -> tuple[ClusterEventWithHint, ...]:
    """Return the events of NodeVolumeLimits."""
    asked = _Asked(of)
    on = asked.on
    return (
        # A node without a CSINode has no limits.
        ClusterEventWithHint(ClusterEvent(Resource.NODE, ActionType.ADD)),
        ClusterEventWithHint(ClusterEvent(Resource.CSI_NODE, ActionType.ADD | ActionType.DELETE)),
        on(Resource.CSI_NODE, ActionType.UPDATE, limit_may_help, _any_pod),
        asked.on_pod_gone(detached_may_help, _any_pod),
        on(Resource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD, claim_may_help, _of_claim),
        on(Resource.VOLUME_ATTACHMENT, ActionType.DELETE, attachment_gone_may_help, _with_claims),
    )


# ---- hints


def claim_may_help(pod: PodVolumes, old: ClaimInfo | None, new: ClaimInfo) -> bool:
    """Return whether the claim is the pod's and changed in more than its resourceVersion."""
    return new.key in pod.keys and (old is None or not same(new, old))


def class_may_help(pod: PodVolumes, old: ClassInfo | None, new: ClassInfo) -> bool:
    """Return whether the class is new, or its volumes may be provisioned elsewhere.

    Nothing else of a class can change.
    """
    return old is None or new.reach != old.reach


def waiting_class_may_help(pod: PodVolumes, old: ClassInfo | None, new: ClassInfo) -> bool:
    return new.binding_mode == WAIT_FOR_CONSUMER


def volume_may_help(pod: PodVolumes, old: VolumeInfo | None, new: VolumeInfo) -> bool:
    """Return whether the pod could use or uses the volume, and more than its resourceVersion changed."""
    if old is not None and same(new, old):
        return False
    ref = new.claim_ref
    return ref is None or (ref.namespace, ref.name) in pod.keys


def zone_may_help(pod: PodVolumes, old: VolumeInfo | None, new: VolumeInfo) -> bool:
    return old is None or topologies(new) != topologies(old)


def node_may_help(pod: PodVolumes, old: NodeInfo | None, new: NodeInfo) -> bool:
    """Return whether the node is new, or its zone or region has changed."""
    return old is None or any(old.labels.get(key) != new.labels.get(key) for key in TOPOLOGY_LABELS)


def migration_may_help(pod: PodVolumes, old: CSINodeInfo | None, new: CSINodeInfo | None) -> bool:
    """Return whether the topology of in-tree volumes is interpreted differently on the node."""
    return (old.migrated if old else _NONE) != (new.migrated if new else _NONE)


def driver_may_help(pod: PodVolumes, old: DriverInfo, new: DriverInfo | None) -> bool:
    """Return whether the driver's capacity is no longer checked."""
    return old.tells_capacity and (new is None or not new.tells_capacity)


def capacity_may_help(pod: PodVolumes, old: CapacityInfo | None, new: CapacityInfo) -> bool:
    """Return whether there is more capacity than before, or other nodes can reach it."""
    return old is None or new.limit > old.limit or new.reach != old.reach


def limit_may_help(pod: PodVolumes, old: CSINodeInfo, new: CSINodeInfo) -> bool:
    """Return whether a driver can attach more than before, or no longer has a limit."""
    return any(driver not in new.limits or new.limits[driver] > count for driver, count in old.limits.items())


def attachment_gone_may_help(pod: PodVolumes, old: object, new: object) -> bool:
    return bool(pod.claims or pod.in_tree)


def conflict_may_end(pod: PodVolumes, gone: PodVolumes, _: object) -> bool:
    """Return whether the deleted pod used a disk that this one must not share, or a claim of this one."""
    return not pod.keys.isdisjoint(gone.keys) or any(
        conflicts(disk, other) for disk in pod.disks for other in gone.disks
    )


def detached_may_help(pod: PodVolumes, gone: PodVolumes, _: object) -> bool:
    return bool(gone.claims or gone.in_tree)


# ---- pre-hints

#: (hint, object before, object after) -> keys of the pods that it can concern.
KeysOf = Callable[[Hint, Any, Any], AllPods | Iterable[Key]]

#: A key of pods with claims or volumes that a driver attaches.
_ATTACHES = "attaches"
_NO_VOLUMES = PodVolumes()


def _keys_of_waiting(volumes: PodVolumes | None) -> Iterable[Key]:
    if volumes is None:
        return (ANYWAY,)
    keys: list[Key] = [("claim", *claim.key) for claim in volumes.claims]
    keys.extend(("disk", disk.kind, disk.name) for disk in volumes.disks)
    if volumes.claims or volumes.in_tree:
        keys.append(_ATTACHES)
    return keys


def _any_pod(hint: Hint, old: Any, new: Any) -> AllPods | Iterable[Key]:
    """Return keys for hints that ignore the pod."""
    return ALL_PODS if hint(_NO_VOLUMES, old, new) else (ANYWAY,)


def _of_claim(hint: Hint, old: ClaimInfo | None, new: ClaimInfo) -> Iterable[Key]:
    return ANYWAY, ("claim", *new.key)


def _of_volume(hint: Hint, old: VolumeInfo | None, new: VolumeInfo) -> AllPods | Iterable[Key]:
    """Return the key of the volume's claim, or all pods: the claims that could use a free volume are unknown here."""
    if old is not None and same(new, old):
        return (ANYWAY,)
    ref = new.claim_ref
    return ALL_PODS if ref is None else (ANYWAY, ("claim", ref.namespace, ref.name))


def _of_gone(hint: Hint, gone: PodVolumes, new: object) -> Iterable[Key]:
    return ANYWAY, *_keys_of_waiting(gone)


def _with_claims(hint: Hint, old: object, new: object) -> Iterable[Key]:
    return ANYWAY, _ATTACHES


# ---- adapters for the queue


class _Asked:
    """The events of one rule, whose pods are indexed by the volumes that `of` returns."""

    def __init__(self, of: VolumesOf) -> None:
        self._of = of
        self._index = PodIndex(keys_of=lambda pod: _keys_of_waiting(of(pod)), shared=of)

    def on(self, kind: Resource, action: ActionType, hint: Hint, keys_of: KeysOf) -> ClusterEventWithHint:
        def keys(event: ClusterEvent, old: Any, new: Any) -> AllPods | Iterable[Key]:
            return keys_of(hint, old, new)

        event = ClusterEvent(kind, action)
        return ClusterEventWithHint(event, self._ask(hint), ByKeys(self._index, keys, once=True))

    def on_pod_gone(self, hint: Hint, keys_of: KeysOf) -> ClusterEventWithHint:
        of = self._of

        def with_volumes_of_gone(pod: PodVolumes, old: Any, new: object) -> bool:
            gone = of(old)
            return gone is not None and hint(pod, gone, None)

        def keys(event: ClusterEvent, old: Any, new: Any) -> AllPods | Iterable[Key]:
            gone = of(old)
            return (ANYWAY,) if gone is None else keys_of(hint, gone, None)

        return ClusterEventWithHint(
            ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE),
            self._ask(with_volumes_of_gone),
            ByKeys(self._index, keys, once=True),
        )

    def _ask(self, hint: Hint) -> HintFn:
        of = self._of

        def ask(pod: Any, old: object | None, new: object | None) -> QueueingHint:
            volumes = of(pod)
            # The pod may have lost its volumes with its class since it was refused; the rules decide.
            helps = volumes is None or hint(volumes, old, new)
            return QueueingHint.QUEUE if helps else QueueingHint.SKIP

        return ask
