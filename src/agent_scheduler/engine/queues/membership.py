"""Determines the queue of each pod, and what the pod requests of it.

The queue of a pod is that of its group (a Volcano PodGroup), or that of its annotation
`scheduling.volcano.sh/queue-name`, or that of the same annotation on its namespace. Without any of these, a pod of the
batch scheduler is in the default queue, and any other pod is in no queue and not counted.
"""

from __future__ import annotations

from collections.abc import Collection

from ..quotas.vector import Vector, of_requests
from ..state.batchinfo import GroupKey
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

#: The maximum number of classes whose vector is cached.
_KEPT = 1024


class QueueMembership:
    """Owner of the queues that namespaces and groups name."""

    def __init__(self, batch_schedulers: Collection[str], default_queue: str) -> None:
        #: The names of the batch scheduler, and the queue of its pods that name none.
        self.batch_schedulers = batch_schedulers
        self.default_queue = default_queue
        #: Namespace -> the queue of its pods that name none.
        self._namespaces: dict[str, str] = {}
        #: Known Volcano PodGroup -> the queue that it names.
        self._groups: dict[GroupKey, str] = {}
        #: Volcano PodGroups that were not observed so far and that pods with room in their queue name already. The
        #: podgroup controller creates a group before it names it in a pod, but another watch delivers it.
        self._expected: set[GroupKey] = set()
        #: The known Kubernetes PodGroups.
        self._native: set[GroupKey] = set()
        self._vectors: dict[PodClass, Vector] = {}

    # ---- objects

    def set_namespace(self, name: str, queue: str) -> bool:
        """Set the queue that a namespace names; empty for none or a deleted namespace. Returns whether it changed."""
        if self._namespaces.get(name, "") == queue:
            return False
        if queue:
            self._namespaces[name] = queue
        else:
            del self._namespaces[name]
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
