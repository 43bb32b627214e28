"""Determines the queue of each pod, and what the pod requests of it.

The queue of a pod is that of its group (a Volcano PodGroup), or that of its annotation
`scheduling.volcano.sh/queue-name`, or that of the same annotation on its namespace. Without any of these, a pod of the
batch scheduler is in the default queue, and any other pod is in no queue and not counted. A pod whose namespace may not
use its queue is in one that does not exist (`quotas.access`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ..quotas.access import NamespaceList, closed_to, may_use
from ..quotas.queues import QueueInfo
from ..quotas.vector import Vector, of_requests
from ..state.batchinfo import GroupKey
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

#: The maximum number of classes whose vector is cached, and of queues and namespaces whose answer is.
_KEPT = 1024

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class QueueMembership:
    """Owner of the queues that namespaces and groups name."""

    def __init__(self, batch_schedulers: Collection[str], default_queue: str) -> None:
        #: The names of the batch scheduler, and the queue of its pods that name none.
        self.batch_schedulers = batch_schedulers
        self.default_queue = default_queue
        #: Namespace -> the queue of its pods that name none.
        self._namespaces: dict[str, str] = {}
        #: Namespace -> its labels, for queues that select namespaces.
        self._labels: dict[str, Mapping[str, str]] = {}
        #: Queue -> the namespaces that it lists, and its parent.
        self._queues: dict[str, tuple[NamespaceList | None, str]] = {}
        #: The number of queues that list namespaces; and (queue, namespace) -> the result of `usable`.
        self._listing = 0
        self._usable: dict[tuple[str, str], str] = {}
        #: Known Volcano PodGroup -> the queue that it names.
        self._groups: dict[GroupKey, str] = {}
        #: Volcano PodGroups that were not observed so far and that pods with room in their queue name already. The
        #: podgroup controller creates a group before it names it in a pod, but another watch delivers it.
        self._expected: set[GroupKey] = set()
        #: The known Kubernetes PodGroups.
        self._native: set[GroupKey] = set()
        self._vectors: dict[PodClass, Vector] = {}

    # ---- objects

    def set_queue(self, name: str, queue: QueueInfo | None) -> bool:
        """Set a queue, or None for a deleted one. Returns whether other namespaces may use queues than before."""
        before, after = self._queues.get(name), None if queue is None else (queue.namespaces, queue.lies_in)
        if before == after:
            return False
        had_any = self._listing > 0
        self._listing += _lists(after) - _lists(before)
        if after is None:
            del self._queues[name]
        else:
            self._queues[name] = after
        self._usable.clear()
        return had_any or self._listing > 0

    def set_namespace(self, name: str, queue: str, labels: Mapping[str, str] = NO_LABELS) -> bool:
        """Set the queue that a namespace names, and its labels; both are empty for a deleted namespace.

        Returns whether its pods may be in other queues than before.
        """
        is_labeled_so = self._labels.get(name, NO_LABELS) == labels
        if not is_labeled_so:
            self._usable.clear()
            self._labels[name] = labels
            if not labels:
                del self._labels[name]
        if self._namespaces.get(name, "") == queue and (is_labeled_so or not self._listing):
            return False
        if queue:
            self._namespaces[name] = queue
        else:
            self._namespaces.pop(name, None)
        return True

    def set_group(self, key: GroupKey, queue: str | None) -> bool:
        """Set the queue that a Volcano PodGroup names. Returns whether it changed.

        `queue` is empty if the group names none, None if the group is deleted.
        """
        if self._groups.get(key) == queue:
            return False
        if queue is None:
            del self._groups[key]
        else:
            self._groups[key] = queue
            self._expected.discard(key)
        return True

    def set_native_group(self, key: GroupKey, *, exists: bool) -> bool:
        """Set whether a Kubernetes PodGroup exists. Returns whether that has changed."""
        if exists == (key in self._native):
            return False
        if exists:
            self._native.add(key)
        else:
            self._native.remove(key)
        return True

    def expect_group(self, pod: PodInfo, before: PodInfo | None) -> None:
        """Expect the group that a pod has come to name. `before` is the pod with room in its queue, or None.

        The room is kept until the group is observed, or other pods take it.
        """
        group = pod.batch.group if pod.batch is not None else None
        if before is None or group is None or group in self._groups:
            return
        if self.has_group(before) and (before.batch is None or before.batch.group != group):
            self._expected.add(group)

    # ---- questions

    def queue_of(self, pod: PodInfo) -> str:
        """Return the queue of a pod; empty for a pod in no queue."""
        named = self._named_by(pod)
        return self.usable(named, pod.namespace) if self._listing else named

    def queue_of_group(self, named: str, namespace: str) -> str:
        """Return the queue of a Volcano PodGroup that names this queue, or none if it is empty; as `usable`."""
        return self.usable(named or self.default_queue, namespace)

    def usable(self, queue: str, namespace: str) -> str:
        """Return the queue, or the name of a queue that does not exist if the namespace may not use it."""
        if not self._listing or not queue:
            return queue
        found = self._usable.get((queue, namespace))
        if found is None:
            if len(self._usable) >= _KEPT:
                self._usable.clear()
            allowed = may_use(self._upwards(queue), namespace, self._labels.get(namespace, NO_LABELS))
            found = self._usable[queue, namespace] = queue if allowed else closed_to(queue, namespace)
        return found

    def _upwards(self, queue: str) -> Iterator[NamespaceList | None]:
        """Yield the lists of the queue and of its ancestors; each once, since a queue may be its own ancestor."""
        seen: set[str] = set()
        while queue in self._queues and queue not in seen:
            seen.add(queue)
            listed, queue = self._queues[queue]
            yield listed

    def _named_by(self, pod: PodInfo) -> str:
        """Return the queue that a pod names, or that is named for it."""
        said, of_batch = pod.batch, pod.scheduler_name in self.batch_schedulers
        if said is not None:
            group = said.group
            of_group = self._groups.get(group) if group is not None else None
            if of_group is not None:
                return of_group or self.default_queue
            if of_batch and group is not None and group.native:
                # A Kubernetes PodGroup names no queue, and all of it must be in one queue.
                return self.default_queue
            if said.queue:
                return said.queue
        return self._namespaces.get(pod.namespace) or (self.default_queue if of_batch else "")

    def has_group(self, pod: PodInfo) -> bool:
        """Return whether the group that the pod names exists or is expected; True for a pod without a group."""
        group = pod.batch.group if pod.batch is not None else None
        if group is None:
            return True
        if group.native:
            return group in self._native
        known = group in self._groups or group in self._expected
        return known or pod.scheduler_name not in self.batch_schedulers

    def vector(self, pod: PodInfo) -> Vector:
        """Return the requests of the pod as a vector."""
        return self.vector_of(pod.cls)

    def vector_of(self, cls: PodClass) -> Vector:
        """Return the requests of a class of pods as a vector."""
        vector = self._vectors.get(cls)
        if vector is None:
            if len(self._vectors) >= _KEPT:
                self._vectors.clear()
            vector = self._vectors[cls] = of_requests(cls.requests)
        return vector


def _lists(queue: tuple[NamespaceList | None, str] | None) -> bool:
    return queue is not None and queue[0] is not None
