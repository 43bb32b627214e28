"""The siblings of a pod: the pods among which default constraints spread it, and the controller that defines them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

from agent_scheduler.objects import wire
from apimachinery.labels import LabelSelector


class OwnerKind(enum.Enum):
    SERVICE = "Service"
    REPLICATION_CONTROLLER = "ReplicationController"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"


_CONTROLLERS: Final = {
    ("v1", "ReplicationController"): OwnerKind.REPLICATION_CONTROLLER,
    ("apps/v1", "ReplicaSet"): OwnerKind.REPLICA_SET,
    ("apps/v1", "StatefulSet"): OwnerKind.STATEFUL_SET,
}


class ControllerRef(NamedTuple):
    """The controller that owns a pod, in the pod's namespace."""

    kind: OwnerKind
    name: str


class Siblings(NamedTuple):
    """The pods that are selected by a pod's services and controller."""

    namespace: str
    selector: LabelSelector
    #: Whether the selector also selects the pod itself.
    itself: bool


def controller_of(references: Sequence[wire.OwnerReference]) -> ControllerRef | None:
    """Return the controller among the owners, if its kind is one of those with a known selector."""
    for each in references:
        if each.controller:
            kind = _CONTROLLERS.get((each.api_version, each.kind))
            return None if kind is None else ControllerRef(kind, each.name)
    return None
