"""The kinds that the scheduler watches, including those that wake pods.

A kind is vital if decisions with an old view of it could assign the same room or device twice. For volumes the API
server notices that: they are written with the version that was seen. Services and the controllers of pods are watched
once a profile spreads by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.preemption.pdbs import PDBs, read_pdb
from agent_scheduler.engine.state.labelselector import label_selector
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.engine.state.siblings import OwnerKind
from agent_scheduler.objects import wire
from agent_scheduler.objects.batch import QUEUE_NAME
from agent_scheduler.objects.selecting import PodDisruptionBudget, SelectsByLabels, SelectsByMap
from kube_client.informers import Kind
from kube_client.watch_events import Decode, Object

from .cluster import Cluster
from .subscribers import EventReceivers

R = TypeVar("R", bound=Object)

#: The query for pods without groups: a finished pod uses nothing, so it leaves the watch as DELETED.
_LIVING_PODS = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


def cached_kind(
    events: EventReceivers,
    kind: Resource,
    path: str,
    read: Decode[R],
    *,
    known: Callable[[R], R | None],
    put: Callable[[R], bool],
    drop: Callable[[R], bool],
    changed: Callable[[R], None] = lambda _: None,
    optional: bool = False,
    vital: bool = False,
) -> Kind:
    """Return a kind whose objects a catalog stores, and whose changes wake pods.

    `known` returns the stored object. `put` and `drop` return whether decisions are affected; if so, `events` are
    informed and then `changed` is called.
    """
    added, updated, deleted = (
        ClusterEvent(kind, action) for action in (ActionType.ADD, ActionType.UPDATE, ActionType.DELETE)
    )

    def change(new: R) -> None:
        old = known(new)
        if put(new):
            events.move_all(added if old is None else updated, old, new)
            changed(new)

    def delete(gone: R) -> None:
        old = known(gone)
        if drop(gone):
            events.move_all(deleted, old, None)
            changed(gone)

    return Kind(kind.value, path, read, change, delete, optional=optional, vital=vital, known=known)


class GroupsOfPods(Protocol):
    """Receives pods after the cluster, including finished ones."""

    def set_pod(self, pod: PodInfo) -> None: ...
    def delete_pod(self, uid: str) -> None: ...


def kinds(cluster: Cluster, classes: PodClasses, found: PDBs, groups: GroupsOfPods | None = None) -> list[Kind]:
    """Return the kinds that are always watched, beside those for volumes, devices and groups.

    `storage`, `claims` and `groups` have the others.
    """
    return [nodes(cluster, classes), pods(cluster, classes, groups), namespaces(cluster), budgets(found)]


def nodes(cluster: Cluster, classes: PodClasses) -> Kind:
    """Return the kind of nodes. Their images are kept only if some pods need them."""
    decode = msgspec.json.Decoder(wire.Node).decode
    return Kind(
        "Node",
        "/api/v1/nodes",
        lambda raw: node_info(decode(raw), images=bool(classes.images_for)),
        cluster.set_node,
        lambda node: cluster.delete_node(node.name),
        vital=True,
        known=lambda node: cluster.ledger.node(node.name),
    )


def pods(cluster: Cluster, classes: PodClasses, groups: GroupsOfPods | None = None) -> Kind:
    read = PodReader(classes)
    if groups is None:
        return Kind(
            "Pod",
            "/api/v1/pods",
            read,
            cluster.set_pod,
            lambda pod: cluster.delete_pod(pod.uid),
            query=_LIVING_PODS,
            read_event=read.read_event,
            vital=True,
            known=lambda pod: cluster.pods.get(pod.uid),
        )

    def put(pod: PodInfo) -> None:
        cluster.set_pod(pod)
        groups.set_pod(pod)

    def delete(pod: PodInfo) -> None:
        cluster.delete_pod(pod.uid)
        groups.delete_pod(pod.uid)

    return Kind(
        "Pod",
        "/api/v1/pods",
        read,
        put,
        delete,
        read_event=read.read_event,
        vital=True,
        # The cluster keeps nothing of a finished pod.
        known=lambda pod: pod if pod.finished else cluster.pods.get(pod.uid),
    )


def budgets(found: PDBs) -> Kind:
    """Return the kind of disruption budgets, for preemption."""
    decode = msgspec.json.Decoder(PodDisruptionBudget).decode
    return Kind(
        "PodDisruptionBudget",
        "/apis/policy/v1/poddisruptionbudgets",
        lambda raw: read_pdb(decode(raw)),
        found.set,
        lambda each: found.delete(each.namespace, each.name),
    )


def namespaces(cluster: Cluster) -> Kind:
    """Return the kind of namespaces, for terms that select namespaces by labels, and for queues of pods without one."""

    def put(each: wire.Namespace) -> None:
        metadata = each.metadata
        queue = (metadata.annotations or {}).get(QUEUE_NAME, "")
        cluster.set_namespace(metadata.name, metadata.labels or {}, queue)

    return Kind(
        "Namespace",
        "/api/v1/namespaces",
        msgspec.json.Decoder(wire.Namespace).decode,
        put,
        lambda each: cluster.set_namespace(each.metadata.name, None),
    )


def owners(cluster: Cluster) -> list[Kind]:
    """Return the kinds of services and controllers, for profiles that spread by default."""
    return [
        _owner(cluster, OwnerKind.SERVICE, "/api/v1/services", SelectsByMap),
        _owner(cluster, OwnerKind.REPLICATION_CONTROLLER, "/api/v1/replicationcontrollers", SelectsByMap),
        _owner(cluster, OwnerKind.REPLICA_SET, "/apis/apps/v1/replicasets", SelectsByLabels),
        _owner(cluster, OwnerKind.STATEFUL_SET, "/apis/apps/v1/statefulsets", SelectsByLabels),
    ]


def _owner(cluster: Cluster, kind: OwnerKind, path: str, shape: type[SelectsByMap] | type[SelectsByLabels]) -> Kind:
    def put(each: SelectsByMap | SelectsByLabels) -> None:
        said = each.spec.selector
        selector = label_selector(
            wire.LabelSelector(match_labels=said) if isinstance(said, dict) else said, "spec.selector"
        )
        cluster.owners.set(kind, each.metadata.namespace, each.metadata.name, selector)

    return Kind(
        kind.value,
        path,
        msgspec.json.Decoder(shape).decode,
        put,
        lambda each: cluster.owners.delete(kind, each.metadata.namespace, each.metadata.name),
    )
