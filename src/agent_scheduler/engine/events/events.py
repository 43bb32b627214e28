"""The events of a cluster that the queue and the plugins use.

A plugin registers `ClusterEvent`s that may resolve its refusal; the observer of an object's change passes the
`ClusterEvent` that happened to the queue. Names and labels are kube-scheduler's (`framework.ClusterEvent`), so that its
metrics and logs have the same values here.
"""

from __future__ import annotations

from enum import IntFlag, StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr


class Resource(StrEnum):
    """The kind of object that an event is about.

    There are three kinds of pods: ASSIGNED_POD has a node, TARGET_POD is the waiting pod itself, UNSCHEDULED_POD is
    another waiting pod. POD covers all three.
    """

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    TARGET_POD = "TargetPod"
    UNSCHEDULED_POD = "UnscheduledPod"
    NODE = "Node"
    NAMESPACE = "Namespace"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CSI_STORAGE_CAPACITY = "CSIStorageCapacity"
    VOLUME_ATTACHMENT = "VolumeAttachment"
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_SLICE = "ResourceSlice"
    DEVICE_CLASS = "DeviceClass"
    NODE_SHARD = "NodeShard"
    POD_GROUP = "PodGroup"
    WILDCARD = "*"

    def overlaps(self, other: Resource) -> bool:
        """Return whether one includes the other: equal, either a wildcard, or POD and a kind of pod."""
        return (
            self is other
            or Resource.WILDCARD in (self, other)
            or (self is Resource.POD and other in _POD_KINDS)
            or (other is Resource.POD and self in _POD_KINDS)
        )


_POD_KINDS = frozenset({Resource.ASSIGNED_POD, Resource.TARGET_POD, Resource.UNSCHEDULED_POD})


class ActionType(IntFlag):
    """The change of the object; a bitmask. UPDATE includes every narrower update, ALL everything."""

    ADD = 1 << 0
    DELETE = 1 << 1
    UPDATE_NODE_ALLOCATABLE = 1 << 2
    UPDATE_NODE_LABEL = 1 << 3
    UPDATE_NODE_TAINT = 1 << 4
    UPDATE_NODE_CONDITION = 1 << 5
    UPDATE_NODE_ANNOTATION = 1 << 6
    UPDATE_POD_LABEL = 1 << 7
    UPDATE_POD_SCALE_DOWN = 1 << 8
    UPDATE_POD_SCALE_UP = 1 << 9
    UPDATE_POD_TOLERATION = 1 << 10
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 11
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 12
    #: A change that none of the narrower updates names; wakes only plugins that registered UPDATE.
    UPDATE_POD_OTHER = 1 << 13
    UPDATE_NODE_DECLARED_FEATURE = 1 << 14
    UPDATE = (1 << 15) - 1 - ADD - DELETE
    ALL = (1 << 15) - 1


_NODE_UPDATES = {
    ActionType.UPDATE_NODE_ALLOCATABLE: "UpdateAllocatable",
    ActionType.UPDATE_NODE_LABEL: "UpdateLabel",
    ActionType.UPDATE_NODE_TAINT: "UpdateTaint",
    ActionType.UPDATE_NODE_CONDITION: "UpdateCondition",
    ActionType.UPDATE_NODE_ANNOTATION: "UpdateAnnotation",
    ActionType.UPDATE_NODE_DECLARED_FEATURE: "UpdateDeclaredFeature",
}


class ClusterEvent(Struct, frozen=True, cache_hash=True):
    """An `action` on an object of kind `resource`. `label` names it in metrics; if empty, it is derived."""

    resource: Resource
    action: ActionType
    label: str = ""
    #: Derived from the others: true for an event that may concern every pod, whatever refused it.
    is_wildcard: bool = False

    def __post_init__(self) -> None:
        if not self.label:
            force_setattr(self, "label", _derived_label(self.resource, self.action))
        wildcard = self.resource is Resource.WILDCARD and self.action == ActionType.ALL
        force_setattr(self, "is_wildcard", wildcard)

    def matches(self, happened: ClusterEvent) -> bool:
        """Return whether a plugin that registered this event receives `happened`.

        The kinds overlap and the actions have a bit in common. kube-scheduler also requires that `happened` is no
        broader than the registered event; here an event with several changes reaches every plugin that registered one
        of them, because a needless retry costs less than a pod that is never woken.
        """
        return bool(self.action & happened.action) and self.resource.overlaps(happened.resource)

    def parts(self) -> tuple[str, ...]:
        """Return its parts for people: an object and one change, as in `NodeAdd` or `NodeUpdateLabel`.

        Unlike labels these distinguish the pod itself (TargetPod) from other waiting pods. `All` is any event.
        """
        if self.is_wildcard:
            return ("All",)
        done = [action for action in (ActionType.ADD, ActionType.DELETE) if action in self.action]
        updates = self.action & ActionType.UPDATE
        done += [ActionType.UPDATE] if updates == ActionType.UPDATE else list(updates)
        return tuple(f"{self.resource}{_verb(action)}" for action in done)

    def __str__(self) -> str:
        return self.label


def _verb(action: ActionType) -> str:
    words = (action.name or "").split("_")
    # The resource already names the kind of object that is updated.
    return "".join(word.capitalize() for word in words if word not in ("NODE", "POD"))


def _derived_label(resource: Resource, action: ActionType) -> str:
    subject = "UnscheduledPod" if resource is Resource.TARGET_POD else str(resource)
    if action == ActionType.ADD:
        return subject + "Add"
    if action == ActionType.DELETE:
        return subject + "Delete"
    if resource is Resource.NODE and action in _NODE_UPDATES:
        return subject + _NODE_UPDATES[action]
    if not action & ~ActionType.UPDATE:
        return subject + "Update"
    return subject + "All"


ASSIGNED_POD_ADD = ClusterEvent(Resource.ASSIGNED_POD, ActionType.ADD)
ASSIGNED_POD_UPDATE = ClusterEvent(Resource.ASSIGNED_POD, ActionType.UPDATE)
ASSIGNED_POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE)
UNSCHEDULED_POD_ADD = ClusterEvent(Resource.UNSCHEDULED_POD, ActionType.ADD)
UNSCHEDULED_POD_UPDATE = ClusterEvent(Resource.UNSCHEDULED_POD, ActionType.UPDATE)
UNSCHEDULED_POD_DELETE = ClusterEvent(Resource.UNSCHEDULED_POD, ActionType.DELETE)
NODE_ADD = ClusterEvent(Resource.NODE, ActionType.ADD)
NODE_DELETE = ClusterEvent(Resource.NODE, ActionType.DELETE)
NODE_UPDATE_ALLOCATABLE = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_ALLOCATABLE)
NODE_UPDATE_LABEL = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_LABEL)
NODE_UPDATE_TAINT = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_TAINT)
NODE_UPDATE_CONDITION = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_CONDITION)
NODE_SHARD_UPDATE = ClusterEvent(Resource.NODE_SHARD, ActionType.UPDATE)
POD_GROUP_ADD = ClusterEvent(Resource.POD_GROUP, ActionType.ADD)
POD_GROUP_UPDATE = ClusterEvent(Resource.POD_GROUP, ActionType.UPDATE)
NAMESPACE_ADD = ClusterEvent(Resource.NAMESPACE, ActionType.ADD)
NAMESPACE_UPDATE = ClusterEvent(Resource.NAMESPACE, ActionType.UPDATE)
NAMESPACE_DELETE = ClusterEvent(Resource.NAMESPACE, ActionType.DELETE)
NODE_UPDATE_ANNOTATION = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_ANNOTATION)
NODE_UPDATE_DECLARED_FEATURE = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_DECLARED_FEATURE)

#: The registration of a plugin that declares no events.
ANY = ClusterEvent(Resource.WILDCARD, ActionType.ALL, "All")
FORCE_ACTIVATE = ClusterEvent(Resource.WILDCARD, ActionType.ALL, "ForceActivate")
UNSCHEDULABLE_TIMEOUT = ClusterEvent(Resource.WILDCARD, ActionType.ALL, "UnschedulableTimeout")
RULES_CHANGED = ClusterEvent(Resource.WILDCARD, ActionType.ALL, "RulesChanged")

# Labels of moves that no cluster event caused.
SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POP_FROM_BACKOFF = "PopFromBackoffQ"
URGENT_RETRY = "UrgentRetry"

#: Label under which pods in flight are counted among in-flight events.
POD_POPPED = "PodPopped"
