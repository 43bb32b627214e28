"""Whom the end of a pod on a node helps that waits for room: the hint of NodeResourcesFit and its pre-hint.

Room comes free on one node, so it helps who fits there now. Where pods of lower priority run, it may also help who has
others evicted: on that node, if the one that ended stood above them, and on any node that is refused for want of room,
where whoever ended was in the way of a rule that looks at other nodes (spreading, affinity, a volume that one pod may
use). What these rules would say is not known here; so all that could preempt somebody hear of it, but for those whom no
node is large enough for.

The ledger is read as it is when a pod is asked about, which may be later than the event. More room than at that time
only comes with another event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from ..events.events import ClusterEvent
from ..events.hints import QueueingHint
from ..events.prehints import ALL_PODS, AllPods, Amount, Key, UpTo
from ..state.ledger import Ledger
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

#: Dimension under which pods that may preempt are filed: by their priority, the highest first.
_PREEMPTING: Final = "preempting"

Room = Mapping[str, int]


def preempting_key(pod: PodInfo) -> tuple[Key, ...]:
    """What a pod is found by for what it may preempt."""
    return (Amount(_PREEMPTING, -pod.priority),) if pod.preempts else ()


class RoomHints:
    """Of one plugin. Without a ledger every end of a pod is told to all."""

    def __init__(
        self,
        ledger: Ledger | None,
        wanted: Callable[[PodClass], Iterable[tuple[str, int]]],
        elsewhere: Callable[[Iterable[str]], Collection[str]],
        keys: Callable[[Room, Room], list[Key]],
    ) -> None:
        """`wanted`: what the plugin looks at of a pod's requests. `elsewhere`: which resources are the matter of
        devices where a node offers none. `keys`: of the pods that may fit a node by what it offers and has free."""
        self._ledger = ledger
        self._wanted = wanted
        self._elsewhere = elsewhere
        self._keys_of = keys
        #: What the answers below are true for: a sequence of the ledger, and a node.
        self._read: tuple[int, str] = (-1, "")
        self._free: Room = {}
        self._offered: Room = {}
        #: The most that any node offers, and the sequence for which that is true.
        self._most: tuple[int, Room] = (-1, {})

    def helps(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """The hint for the end of `old`."""
        assert isinstance(pod, PodInfo) and isinstance(old, PodInfo)
        ledger = self._ledger
        if ledger is None or not old.node_name:
            # Room that was kept or assumed somewhere: the pod does not say where.
            return QueueingHint.QUEUE
        self._look(ledger, old.node_name)
        wanted = dict(self._wanted(pod.cls))
        devices = self._elsewhere(wanted) if pod.cls.extended else ()
        if fits(wanted, self._free, [each for each in devices if not self._offered.get(each)]):
            return QueueingHint.QUEUE
        may_preempt = pod.preempts and pod.priority > ledger.lowest_priority
        helps = may_preempt and fits(wanted, self._largest(ledger), devices)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def whom(self, event: ClusterEvent, old: PodInfo, new: object) -> AllPods | list[Key]:
        """The pre-hint: keys of those whom `helps` may say yes to."""
        ledger = self._ledger
        if ledger is None or not old.node_name:
            return ALL_PODS
        self._look(ledger, old.node_name)
        keys = self._keys_of(self._offered, self._free)
        keys.append(UpTo(_PREEMPTING, -ledger.lowest_priority - 1))
        return keys

    def _look(self, ledger: Ledger, node_name: str) -> None:
        """See what a node offers and has free. One that is gone has nothing."""
        read = (ledger.sequence, node_name)
        if read == self._read:
            return
        columns, row = ledger.columns, ledger.rows.get(node_name)
        self._read, self._free, self._offered = read, {}, {}
        if row is not None:
            names, offers = columns.interns.resources, columns.offers[row]
            self._offered = dict(zip(names, offers, strict=False))
            self._free = {
                name: offered - taken
                for name, offered, taken in zip(names, offers, columns.taken[row], strict=False)
            }

    def _largest(self, ledger: Ledger) -> Room:
        sequence, most = self._most
        if sequence != ledger.sequence:
            columns = ledger.columns
            amounts = columns.allocatable[:, : columns.size].max(axis=1, initial=0).tolist()
            most = dict(zip(columns.interns.resources, amounts, strict=False))
            self._most = ledger.sequence, most
        return most


def fits(wanted: Room, room: Room, elsewhere: Collection[str]) -> bool:
    """Whether there is room for all that is wanted, but for what is the matter of devices."""
    return all(
        amount <= room.get(resource, 0) or resource in elsewhere for resource, amount in wanted.items()
    )
