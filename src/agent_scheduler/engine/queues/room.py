"""The state that all parts of the account of queues share: the book, the line, and the pods that keep room.

The parts know one another in one direction only: `WantingPods`, `Promises`, `KeptRoom`, `GatedPods`, `QueueUsage`. A
part notifies those after it by the signals of `QueueRoom`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..events.signals import Signal
from ..state.batchinfo import GroupKey
from ..state.podinfo import Placement, PodInfo
from .asks import turn_of_pod
from .book import QuotaBook
from .events import QueueEvents
from .membership import QueueMembership
from .waiting import QuotaWaitingPods, Wanted

_NOBODY: Final[Mapping[str, PodInfo]] = MappingProxyType({})


class QueueRoom:
    """The room of queues, and the pods that count in it. Owner: `QueueUsage`; the parts change it by their rules."""

    def __init__(self, placements: Mapping[str, Placement], members: QueueMembership, *, asks_queues: bool) -> None:
        """Create the state for the placements in `placements`, a live map by UID."""
        self.placements = placements
        self.members = members
        #: Whether queues are checked. If not, the gate is removed from every pod at once, and none is reserved.
        self.asks_queues = asks_queues
        self.events = QueueEvents()
        #: Whether any queue exists; if not, nothing is counted.
        self.active = False
        self.book = QuotaBook()
        self.waiting = QuotaWaitingPods()
        #: UIDs of pods that are reserved in a queue beyond its limit and wait until it is no longer exceeded, in the
        #: order of addition.
        self.over: dict[str, None] = {}
        #: UID -> pod that was admitted past the gate of its queue and is not known to be on a node; assumed pods are
        #: among them. Changed by `GatedPods`, like `given_back`.
        self.reserved: dict[str, PodInfo] = {}
        #: UID -> the message to report, for pods without a node whose reservation was released. Such a pod competes for
        #: the queue like a pod that never had the gate, and is no reason to add nodes.
        self.given_back: dict[str, str] = {}
        #: There may be room for pods and groups that wait: `QueueUsage.call`.
        self.freed: Signal[[]] = Signal()
        #: What a group is promised, or waits for, has changed: `GatedPods.group_changed`.
        self.group_changed: Signal[[GroupKey]] = Signal()
        #: The promises of all groups were read: `GatedPods.decide_all_anew`.
        self.groups_read: Signal[[]] = Signal()
        #: The groups of a session are about to request admission: `GatedPods.admit`.
        self.session_begins: Signal[[]] = Signal()

    @property
    def keeping(self) -> Mapping[str, PodInfo]:
        """The reserved pods for which room is kept if they can be placed: all, or none if queues are not checked."""
        return self.reserved if self.asks_queues else _NOBODY

    def keeps_room(self, queue: str) -> bool:
        """Return whether room of the queue may be kept for pods and groups without nodes, that is, whether it is open.

        A closed or missing queue places no pods, so the room would be kept from its siblings in vain.
        """
        info = self.book.info(queue)
        return info is not None and info.open

    def keeping_queue(self, pod: PodInfo) -> str:
        """Return the queue that keeps room for the pod while it has no node; empty if none does.

        No queue does for a pod that cannot be placed: its queue accepts no pods or is too small for it even when empty,
        or its group does not exist.
        """
        members = self.members
        queue = members.queue_of(pod)
        is_placeable = self.keeps_room(queue) and self.book.could_hold(queue, members.vector(pod))
        return queue if is_placeable and members.has_group(pod) else ""

    def wait_for(self, name: str, wanted: Wanted, first: PodInfo) -> None:
        """Let the pods under this name wait for `wanted` in their queues, with the turn of the pod `first`."""
        own = turn_of_pod(first)
        self.waiting.add(name, wanted, own if own.uid == name else own._replace(uid=name))
        self.book.fallen.update(wanted)
