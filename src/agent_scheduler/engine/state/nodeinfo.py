"""A node in compiled form, with the fields that decisions depend on; built once per version of the object."""

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

#: A node's taints, in their order; TaintToleration evaluates each distinct list once.
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
    #: Amounts in the ledger's units; an invalid quantity counts as zero.
    allocatable: Amounts
    #: Type -> status.
    conditions: Mapping[str, str]
    #: The invalid fields, for one log line per node.
    errors: tuple[str, ...]
    namespace: str = ""
    #: Image -> size in bytes; empty if no plugin needs images (see `node_info`).
    images: Mapping[str, int] = NO_IMAGES
    #: The features declared by the kubelet, of those that pods may require.
    features: frozenset[str] = NO_FEATURES

    @property
    def metadata(self) -> NodeInfo:
        """The node itself: a reflector reads uid, name, namespace and resource_version from an object's metadata."""
        return self


def node_info(node: wire.Node, *, images: bool = False) -> NodeInfo:
    """Compile a node. Never raises; invalid fields are in `errors`.

    Without `images` the node's images are left out: no plugin needs them, and they change with each image pull.
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
    """Return whether no decision depends on the difference between the two, for example after a heartbeat."""
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
    """Return whether the node is ready; a node without the condition counts as ready."""
    return node.conditions.get("Ready", "True") == "True"


def node_change_events(new: NodeInfo, old: NodeInfo) -> list[ClusterEvent]:
    """Return the changes of the node that may help a waiting pod; none for a heartbeat.

    A cordon counts as a taint, as in kube-scheduler (`extractNodeTaintsChange`), so that removing it wakes the pods
    that wait for either.
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
    """The largest allocatable amount of each resource on any node so far; scores normalize amounts by it.

    Owner: the ledger. It never decreases, so deleting a node does not change the scores of others.
    """

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        #: Increases whenever an amount does.
        self.version = 0
