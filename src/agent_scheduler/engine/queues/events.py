"""The one port by which the account of queues notifies the rest of a process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..events.signals import Signal
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo


class QueueEvents:
    """The signals of `QueueUsage` and of its parts. Their receivers connect when they are constructed."""

    def __init__(self) -> None:
        #: `QueueUsage.active` has changed.
        self.active_changed: Signal[[]] = Signal()
        #: Pods, as UIDs, may try again because their queues have room: as many as fit together.
        self.room: Signal[[Sequence[str]]] = Signal()
        #: The queues of these pods of sessions, which report `Unschedulable`, no longer have room for them.
        self.not_taken: Signal[[Collection[str]]] = Signal()
        #: Queues have room that no event of a pod reports: a pod's reservation was released, the rest of a group's
        #: promise ended, or pods changed their queue with their group or namespace.
        self.unreserved: Signal[[]] = Signal()
        #: The usage of queues by placed pods may have changed.
        self.usage_changed: Signal[[]] = Signal()
        #: A queue has room for a group that waited for admission.
        self.let_in: Signal[[GroupKey]] = Signal()
        #: `GatedPods.admit` has something to do.
        self.gates_due: Signal[[]] = Signal()
        #: The gates of these pods must be removed now.
        self.admitted: Signal[[Sequence[PodInfo]]] = Signal()
        #: These pods begin to wait for room in their queue, for this reason; only if this process admits pods.
        self.held: Signal[[Sequence[PodInfo], str]] = Signal()
        #: The reservation of this pod has ended, for any reason.
        self.reservation_ended: Signal[[PodInfo]] = Signal()
