"""A node as the scheduler remembers it, compiled once from each change of the object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from agent_scheduler.objects import wire
from apimachinery.quantity import QuantityError, resource_value

from ..events import events
from ..events.events import ClusterEvent
from .features import NO_FEATURES, known_features
from .gpus import NODE_LIMIT as GPU_LIMIT
from .gpus import RESOURCE as GPU
from .gpus import WHOLE
from .requests import NODE_LIMIT, Amounts

#: A node's taints, in their order; the unit in which TaintToleration decides.
Taints = tuple[wire.Taint, ...]

NO_IMAGES: Mapping[str, int] = {}


class NodeInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True, eq=False):
    """One node at one resourceVersion."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: Taints
    unschedulable: bool
    #: Amounts in the ledger's units; a quantity that cannot be read counts as none.
    allocatable: Amounts
    #: type -> status.
    conditions: Mapping[str, str]
    #: What could not be read, for one log line a node.
    errors: tuple[str, ...]
    namespace: str = ""
    #: Size in bytes by name of the images that it has; empty where no plugin asks (see `node_info`).
    images: Mapping[str, int] = NO_IMAGES
    #: Names of features that its kubelet has declared, of those that a pod may need.
    features: frozenset[str] = NO_FEATURES

    @property
    def metadata(self) -> NodeInfo:
        """Itself: a reflector reads uid, name, namespace and resource_version of an object's metadata."""
        return self


def node_info(node: wire.Node, *, images: bool = False) -> NodeInfo:
    """What to remember of `node`. Never raises: what is wrong is in `errors`.

    `images`: whether a plugin asks for them. They change with every image that a node pulls, which is no change at all
    where none does.
    """
    allocatable: Amounts = {}
    errors = []
    for resource, quantity in (node.status.allocatable or {}).items():
        try:
            amount = resource_value(resource, quantity)
        except QuantityError as error:
            errors.append(f"status.allocatable[{resource}]: {error}")
            continue
        limit = GPU_LIMIT if resource == GPU else NODE_LIMIT
        allocatable[resource] = min(max(amount, 0), limit)
        if resource == GPU and amount > limit:
            errors.append(f"status.allocatable[{resource}]: {amount} is for more than {limit // WHOLE} GPUs")
    declared = node.status.declared_features
    return NodeInfo(
        name=node.metadata.name,
        uid=node.metadata.uid,
        resource_version=node.metadata.resource_version,
        labels=node.metadata.labels or {},
        annotations=node.metadata.annotations or {},
        taints=tuple(node.spec.taints or ()),
        unschedulable=bool(node.spec.unschedulable),
        allocatable=allocatable,
        conditions={condition.type: condition.status for condition in node.status.conditions or ()},
        errors=tuple(errors),
        images=_sizes(node.status.images) if images and node.status.images else NO_IMAGES,
        features=known_features(declared) if declared else NO_FEATURES,
    )


def _sizes(images: Iterable[wire.ContainerImage]) -> Mapping[str, int]:
    return {name: image.size_bytes for image in images for name in image.names or ()}


def same_for_scheduling(new: NodeInfo, old: NodeInfo) -> bool:
    """Whether no decision can tell them apart: a heartbeat changes nothing here."""
    return (
        new.uid == old.uid
        and new.unschedulable == old.unschedulable
        and new.allocatable == old.allocatable
        and new.taints == old.taints
        and new.labels == old.labels
        and new.images == old.images
        and new.features == old.features
        and is_ready(new) == is_ready(old)
    )


def is_ready(node: NodeInfo) -> bool:
    """Also where nobody says so."""
    return node.conditions.get("Ready", "True") == "True"


def node_change_events(new: NodeInfo, old: NodeInfo) -> list[ClusterEvent]:
    """What about the node changed that may help a waiting pod; empty for a mere heartbeat.

    A cordon counts as a taint, as in kube-scheduler (`extractNodeTaintsChange`), so that lifting it wakes those
    who wait for either.
    """
    changes = (
        (events.NODE_UPDATE_ALLOCATABLE, new.allocatable != old.allocatable),
        (events.NODE_UPDATE_LABEL, new.labels != old.labels),
        (events.NODE_UPDATE_TAINT, new.taints != old.taints or new.unschedulable != old.unschedulable),
        (events.NODE_UPDATE_CONDITION, new.conditions != old.conditions),
        (events.NODE_UPDATE_ANNOTATION, new.annotations != old.annotations),
        (events.NODE_UPDATE_DECLARED_FEATURE, new.features != old.features),
    )
    return [event for event, changed in changes if changed]


class Largest:
    """The most that any node has offered of each resource: what amounts of different nodes are measured by in scores.

    Owner: the ledger. Only ever grows, so that a node which goes changes nothing for the others.
    """

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        #: Rises whenever an amount does.
        self.version = 0
