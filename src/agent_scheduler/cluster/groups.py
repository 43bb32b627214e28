"""Groups of pods and their queues, as in the API server.

Pods arrive together with those of `Cluster`, from the same watch. If groups are kept, that watch includes finished
pods, because a group, and nothing else, counts finished members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from agent_scheduler.engine.events.signals import Signal
from agent_scheduler.engine.gangs.native import NativeGroup
from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects import batch
from agent_scheduler.objects.wire import Namespace
from kube_client.informers import Kind

from .cluster import Cluster

#: The names of Volcano's and Kubernetes' own PodGroup in `Kind.name` and metrics.
POD_GROUP: Final = "PodGroup"
NATIVE_POD_GROUP: Final = "PodGroup.scheduling.k8s.io"
#: Changes of namespaces before other tasks run. Most change no queue, and a cluster may have ten thousand.
_NAMESPACES_AT_ONCE: Final = 10

#: A label of pods of Kubernetes' Jobs.
_JOB_UID: Final = "batch.kubernetes.io/controller-uid"


class GroupSignals:
    """The signals of `Groups`, each given after the change was applied. Receivers connect when they are constructed."""

    def __init__(self) -> None:
        #: The queue that a Volcano PodGroup names has changed, with the UIDs of its members; None for a deleted group.
        self.queue_named: Signal[[GroupKey, str | None, Collection[str]]] = Signal()
        #: A Volcano PodGroup was added or changed, with its members; or deleted.
        self.seen: Signal[[batch.PodGroup, Collection[PodInfo]]] = Signal()
        self.gone: Signal[[GroupKey]] = Signal()
        #: A member, as UID, has left its group; a group has lost its last one.
        self.member_left: Signal[[str]] = Signal()
        self.abandoned: Signal[[GroupKey]] = Signal()
        #: A group's object, a member, or its set of members has changed. The group may be deleted. A pod without a
        #: group, for which no group is expected any longer, is a group of its own, named by its UID.
        self.changed: Signal[[GroupKey]] = Signal()
        self.unnamed: Signal[[GroupKey]] = Signal()
        #: A finished member is new or was removed, which nothing else reports.
        self.ended_members_changed: Signal[[GroupKey]] = Signal()
        #: A queue, as name, has changed. It may be deleted.
        self.queue_changed: Signal[[str]] = Signal()
        self.priority_classes_changed: Signal[[]] = Signal()
        #: A ResourceQuota in a namespace has changed.
        self.quotas_changed: Signal[[str]] = Signal()


class TrackedGroup:
    """A group as last seen. Only its owner `Groups` changes it.

    Invariant: it exists while its object exists or a pod names it.
    """

    __slots__ = ("key", "members", "object")

    def __init__(self, key: GroupKey) -> None:
        self.key: Final = key
        #: None while there is no such PodGroup.
        self.object: batch.PodGroup | batch.NativePodGroup | None = None
        #: UID -> member, in the order of first observation, including finished members that still exist.
        self.members: dict[str, PodInfo] = {}


class Groups:
    """Owns groups, their members, queues, priority classes and quotas, each in its last seen version.

    Invariant: a pod is either a member of the one group that it names, or in `bare`, or in neither.
    """

    def __init__(self, *, schedulers: Collection[str]) -> None:
        """`schedulers` are the names by which pods request the batch scheduler."""
        self.schedulers = frozenset(schedulers)
        self.signals = GroupSignals()
        self._groups: dict[GroupKey, TrackedGroup] = {}
        #: UID -> the group of a member.
        self._group_of: dict[str, GroupKey] = {}
        #: Unfinished pods of the batch scheduler without a group, by UID.
        self._bare: dict[str, PodInfo] = {}
        #: UIDs of those that belong to workloads and have no node: their group may be about to be created.
        self._to_be_named: set[str] = set()
        #: Whether the last wait for a group was in vain, which means that no podgroup controller runs.
        self._nobody_names = False
        self._queues: dict[str, batch.Queue] = {}
        self._priority_classes: dict[str, batch.PriorityClass] = {}
        #: Indexed by namespace and name.
        self._quotas: dict[str, dict[str, batch.ResourceQuota]] = {}

    def of_volcano(self) -> Iterator[tuple[batch.PodGroup, Collection[PodInfo]]]:
        """Yield Volcano's PodGroups with their members."""
        for group in self._groups.values():
            if isinstance(group.object, batch.PodGroup):
                yield group.object, group.members.values()

    # ---- questions

    @property
    def groups(self) -> Mapping[GroupKey, TrackedGroup]:
        return self._groups

    @property
    def bare(self) -> Mapping[str, PodInfo]:
        """Unfinished pods of the batch scheduler without a group, by UID; each counts as a group of one."""
        return self._bare

    @property
    def to_be_named(self) -> Collection[str]:
        """UIDs of pods whose workload's group may be about to be created.

        If they were placed or passed the gate of their queue before, they could lack other pods that their workload
        needs.
        """
        return self._to_be_named

    def leave_unnamed(self, uid: str) -> None:
        """Stop waiting for a group of this pod, after enough time.

        Pods that arrive from now on do not wait for a group, until one gets a group.
        """
        pod = self._bare.get(uid)
        if pod is not None and uid in self._to_be_named:
            self._nobody_names = True
            self._to_be_named.remove(uid)
            self.signals.unnamed(GroupKey(pod.namespace, uid))

    @property
    def queues(self) -> Mapping[str, batch.Queue]:
        return self._queues

    @property
    def priority_classes(self) -> Mapping[str, batch.PriorityClass]:
        return self._priority_classes

    def quotas(self, namespace: str) -> Iterable[batch.ResourceQuota]:
        return self._quotas.get(namespace, {}).values()

    # ---- pods

    def set_pod(self, pod: PodInfo) -> None:
        """Handle an added, changed or finished pod."""
        info = pod.batch
        key = None if info is None else info.group
        before = self._group_of.get(pod.uid)
        if before is not None and before != key:
            self._leave(pod.uid, before)
        if key is not None:
            if pod.uid in self._bare:
                self._nobody_names = False
            self._drop_bare(pod.uid)
            self._group_of[pod.uid] = key
            self._group(key).members[pod.uid] = pod
            self.signals.changed(key)
            if pod.finished and before != key:
                self.signals.ended_members_changed(key)
        elif pod.finished or pod.scheduler_name not in self.schedulers:
            self._drop_bare(pod.uid)
        else:
            is_new = pod.uid not in self._bare
            if is_new and not (pod.node_name or self._nobody_names) and _is_of_workload(pod):
                self._to_be_named.add(pod.uid)
            self._bare[pod.uid] = pod

    def delete_pod(self, uid: str) -> None:
        """Handle a deleted pod; no-op if unknown."""
        key = self._group_of.get(uid)
        if key is not None:
            self._leave(uid, key)
        else:
            self._drop_bare(uid)

    def _leave(self, uid: str, key: GroupKey) -> None:
        del self._group_of[uid]
        group = self._groups[key]
        pod = group.members.pop(uid)
        self.signals.member_left(uid)
        if not group.members:
            self.signals.abandoned(key)
        self._drop_if_empty(group)
        self.signals.changed(key)
        if pod.finished:
            self.signals.ended_members_changed(key)

    def _drop_bare(self, uid: str) -> None:
        if self._bare.pop(uid, None) is not None:
            self._to_be_named.discard(uid)

    # ---- groups

    def _group(self, key: GroupKey) -> TrackedGroup:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = TrackedGroup(key)
        return group

    def _drop_if_empty(self, group: TrackedGroup) -> None:
        if group.object is None and not group.members:
            del self._groups[group.key]

    def set_group(self, found: batch.PodGroup | batch.NativePodGroup) -> None:
        key = _key(found)
        group = self._group(key)
        group.object = found
        if isinstance(found, batch.PodGroup):
            self.signals.queue_named(key, found.spec.queue, group.members.keys())
            self.signals.seen(found, group.members.values())
        self.signals.changed(key)

    def delete_group(self, gone: batch.PodGroup | batch.NativePodGroup) -> None:
        """Handle a deleted group object; another one with the same name may exist by now."""
        key = _key(gone)
        group = self._groups.get(key)
        if group is None or group.object is None or group.object.metadata.uid != gone.metadata.uid:
            return
        group.object = None
        self.signals.queue_named(key, None, group.members.keys())
        if not key.native:
            self.signals.gone(key)
        self._drop_if_empty(group)
        self.signals.changed(key)

    # ---- queues, priority classes, quotas

    def set_queue(self, found: batch.Queue) -> None:
        self._queues[found.name] = found
        self.signals.queue_changed(found.name)

    def delete_queue(self, gone: batch.Queue) -> None:
        known = self._queues.get(gone.name)
        if known is not None and known.metadata.uid == gone.metadata.uid:
            del self._queues[gone.name]
            self.signals.queue_changed(gone.name)

    def set_priority_class(self, found: batch.PriorityClass) -> None:
        self._priority_classes[found.metadata.name] = found
        self.signals.priority_classes_changed()

    def delete_priority_class(self, gone: batch.PriorityClass) -> None:
        known = self._priority_classes.get(gone.metadata.name)
        if known is not None and known.metadata.uid == gone.metadata.uid:
            del self._priority_classes[gone.metadata.name]
            self.signals.priority_classes_changed()

    def set_quota(self, found: batch.ResourceQuota) -> None:
        self._quotas.setdefault(found.metadata.namespace, {})[found.metadata.name] = found
        self.signals.quotas_changed(found.metadata.namespace)

    def delete_quota(self, gone: batch.ResourceQuota) -> None:
        namespace, name = gone.metadata.namespace, gone.metadata.name
        known = self._quotas.get(namespace, {}).get(name)
        if known is None or known.metadata.uid != gone.metadata.uid:
            return
        del self._quotas[namespace][name]
        if not self._quotas[namespace]:
            del self._quotas[namespace]
        self.signals.quotas_changed(namespace)

    # ---- watches

    def kinds(self) -> list[Kind]:
        """Return the kinds to watch beside pods, `native_groups`, `counted_queues` and `quota_kind`."""
        return [
            pod_groups(self.set_group, self.delete_group, known=self._known),
            Kind(
                "PriorityClass",
                batch.PRIORITY_CLASSES,
                msgspec.json.Decoder(batch.PriorityClass).decode,
                self.set_priority_class,
                self.delete_priority_class,
                known=lambda each: self._priority_classes.get(each.metadata.name),
            ),
        ]

    def quota_kind(self) -> Kind:
        """Return the kind of quotas, for sessions that check them."""
        return Kind(
            "ResourceQuota",
            batch.RESOURCE_QUOTAS,
            msgspec.json.Decoder(batch.ResourceQuota).decode,
            self.set_quota,
            self.delete_quota,
            known=lambda each: self._quotas.get(each.metadata.namespace, {}).get(each.metadata.name),
        )

    def _known(self, found: batch.PodGroup | batch.NativePodGroup) -> batch.PodGroup | batch.NativePodGroup | None:
        group = self._groups.get(_key(found))
        return None if group is None else group.object


def count_in(usage: QueueUsage, groups: Groups) -> None:
    """Connect the account of queues to the groups. Call it before anything is watched."""
    signals, promises = groups.signals, usage.promises
    signals.queue_named.connect(usage.set_group)
    signals.seen.connect(promises.see)
    signals.gone.connect(promises.gone)
    # A new process would not know a deleted member that has run.
    signals.member_left.connect(promises.restore)
    signals.abandoned.connect(promises.abandoned)
    signals.changed.connect(usage.gated.group_changed)
    signals.unnamed.connect(usage.gated.group_changed)


def native_groups(cluster: Cluster, groups: Groups | None = None) -> Kind:
    """Return the kind of Kubernetes' own PodGroups, for `cluster`, whose pods they may wake, and then for `groups`.

    Optional: most clusters do not serve this version of the API.
    """
    decode = msgspec.json.Decoder(batch.NativePodGroup).decode

    def put(found: NativeGroup) -> None:
        cluster.set_native_group(found)
        if groups is not None:
            groups.set_group(found.object)

    def delete(gone: NativeGroup) -> None:
        cluster.delete_native_group(gone)
        if groups is not None:
            groups.delete_group(gone.object)

    return Kind(
        NATIVE_POD_GROUP,
        batch.NATIVE_POD_GROUPS,
        lambda raw: NativeGroup(decode(raw)),
        put,
        delete,
        optional=True,
        known=lambda each: cluster.groups.get(each.key),
    )


def counted_queues(cluster: Cluster, groups: Groups | None = None) -> Kind:
    """Return the kind of queues, for `cluster`, which counts by them, and then for `groups`."""

    def put(found: batch.Queue) -> None:
        cluster.set_queue(found)
        if groups is not None:
            groups.set_queue(found)

    def delete(gone: batch.Queue) -> None:
        cluster.delete_queue(gone)
        if groups is not None:
            groups.delete_queue(gone)

    return queues(put, delete, known=None if groups is None else lambda each: groups.queues.get(each.name))


def queues(
    put: Callable[[batch.Queue], None],
    delete: Callable[[batch.Queue], None],
    *,
    known: Callable[[batch.Queue], batch.Queue | None] | None = None,
) -> Kind:
    """Return the kind of queues. Optional: its CustomResourceDefinition may not be installed.

    A change of one may concern all waiting pods.
    """
    read = msgspec.json.Decoder(batch.Queue).decode
    return Kind("Queue", batch.QUEUES, read, put, delete, optional=True, known=known, portion=1)


def namespaces(put: Callable[[Namespace], None], delete: Callable[[Namespace], None]) -> Kind:
    """Return the kind of namespaces, for their queue annotations. A change of one may concern all waiting pods."""
    read = msgspec.json.Decoder(Namespace).decode
    return Kind("Namespace", "/api/v1/namespaces", read, put, delete, portion=_NAMESPACES_AT_ONCE)


def pod_groups(
    put: Callable[[batch.PodGroup], None],
    delete: Callable[[batch.PodGroup], None],
    *,
    known: Callable[[batch.PodGroup], batch.PodGroup | batch.NativePodGroup | None] | None = None,
) -> Kind:
    """Return the kind of Volcano's PodGroups. Optional: its CustomResourceDefinition may not be installed."""
    read = msgspec.json.Decoder(batch.PodGroup).decode
    return Kind(POD_GROUP, batch.POD_GROUPS, read, put, delete, optional=True, known=known)


def _key(found: batch.PodGroup | batch.NativePodGroup) -> GroupKey:
    metadata = found.metadata
    return GroupKey(metadata.namespace, metadata.name, native=isinstance(found, batch.NativePodGroup))


def _is_of_workload(pod: PodInfo) -> bool:
    """Return whether it is one of several similar pods of a workload."""
    return pod.controller is not None or _JOB_UID in pod.labels
