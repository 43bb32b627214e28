"""The sub-queues activeQ and backoffQ, and the pods in flight with the events that arrived meanwhile.

backoffQ is two queues, as in kube-scheduler: pods that plugins refused, which may leave early when nothing else is
ready (KEP-5142), and pods whose attempt failed with an error, which never do, so that a failing API server is not
overloaded.

An event that happens while a pod is being tried may be the one that its refusal needed, and the attempt may have missed
it. So events are kept while any pod is in flight, and a pod that fails is checked against those after it was popped.
kube-scheduler interleaves pods and events in one linked list (inFlightEvents). Here an event has a position in one log,
and a pod records the position at which it was popped. The log is pruned up to the oldest pod that is still in flight;
finished pods leave the line when they reach its head, so popping and finishing a pod needs no linked list.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, KeysView, Mapping
from heapq import heapify, heappop, heappush, nsmallest
from math import floor
from typing import Any

from msgspec import Struct

from ..events.events import POD_POPPED, ClusterEvent
from ..state.podinfo import PodInfo
from .entry import QueuedPodInfo

#: Up to this number of unneeded items are kept because a pass over the rest costs more: dead items in a heap, finished
#: pods in the line behind an unfinished one, events before the oldest pod's.
_SLACK = 64


class EntryHeap:
    """Pods by ascending key; equal keys leave in the order in which they came. Supports lookup by UID.

    Deletion is lazy: a removed pod's item stays in the heap until it surfaces or until dead items outnumber live ones,
    which costs less than tracking positions (about 0.6 µs a push and pop, heapq in C).
    """

    __slots__ = ("_heap", "_live", "_sequence")

    def __init__(self) -> None:
        # Items are (*key, sequence, entry), never compared beyond the sequence. An item is live only while `_live` maps
        # its UID to this very item; every other item in `_heap` is dead.
        self._heap: list[tuple[Any, ...]] = []
        self._live: dict[str, tuple[Any, ...]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, uid: object) -> bool:
        return uid in self._live

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """Return all pods, in no particular order."""
        return (item[-1] for item in self._live.values())

    def uids(self) -> KeysView[str]:
        """Return the UIDs of the heap, as a view that stays current."""
        return self._live.keys()

    def get(self, uid: str) -> QueuedPodInfo | None:
        item = self._live.get(uid)
        return None if item is None else item[-1]

    def push(self, entry: QueuedPodInfo, key: tuple[float, ...]) -> None:
        """Add `entry`. `key` has the same length for every pod of one heap. The UID must not be present."""
        self._sequence += 1
        item = (*key, self._sequence, entry)
        self._live[entry.uid] = item
        heappush(self._heap, item)

    def first_item(self) -> tuple[Any, ...] | None:
        """Return the smallest key with the entry as its last component; None if empty."""
        self._drop_dead()
        return self._heap[0] if self._heap else None

    def first_key(self) -> float | None:
        """Return the first component of the smallest key, or None if empty."""
        item = self.first_item()
        return None if item is None else item[0]

    def pop(self) -> QueuedPodInfo | None:
        """Return the pod with the smallest key, or None if empty."""
        heap, live = self._heap, self._live
        while heap:
            item = heappop(heap)
            entry: QueuedPodInfo = item[-1]
            if live.get(entry.uid) is item:
                del live[entry.uid]
                return entry
        return None

    def pop_until(self, bound: float, limit: int) -> list[QueuedPodInfo]:
        """Return up to `limit` pods whose key has a first component of at most `bound`, the smallest first."""
        found: list[QueuedPodInfo] = []
        while len(found) < limit and (first := self.first_key()) is not None and first <= bound:
            entry = self.pop()
            assert entry is not None
            found.append(entry)
        return found

    def remove(self, uid: str) -> QueuedPodInfo | None:
        """Remove `uid`; return None if it was not present."""
        item = self._live.pop(uid, None)
        if item is None:
            return None
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = list(self._live.values())
            heapify(self._heap)
        entry: QueuedPodInfo = item[-1]
        return entry

    def first(self, count: int, select: Callable[[QueuedPodInfo], bool]) -> list[QueuedPodInfo]:
        """Return the first `count` pods for which `select` is true, in the order in which they would leave; O(n)."""
        chosen = nsmallest(count, (item for item in self._live.values() if select(item[-1])))
        return [item[-1] for item in chosen]

    def _drop_dead(self) -> None:
        heap, live = self._heap, self._live
        while heap and live.get(heap[0][-1].uid) is not heap[0]:
            heappop(heap)


class ActiveQueue(EntryHeap):
    """activeQ: owns every pod that can be popped without waiting, best first.

    The order is the urgent level, then PrioritySort as in kube-scheduler: descending priority, then the instant at
    which the pod was last queued, so that a pod just tried goes behind its peers. Ties are first come, first served.
    """

    __slots__ = ("_untried",)

    def __init__(self) -> None:
        super().__init__()
        #: Those of the pods that have not been tried yet, with the same keys. None until it is needed, and again once
        #: no pod is left, since it costs time for each pod.
        self._untried: EntryHeap | None = None

    def add(self, entry: QueuedPodInfo) -> None:
        """Add `entry`, which may be tried from now on."""
        key = (-entry.urgent, -entry.pod.priority, entry.timestamp)
        self.push(entry, key)
        if self._untried is not None and not entry.attempts:
            self._untried.push(entry, key)

    def pop(self) -> QueuedPodInfo | None:
        entry = super().pop()
        if self._untried is not None:
            if entry is None:
                self._untried = None
            else:
                self._untried.remove(entry.uid)
        return entry

    def remove(self, uid: str) -> QueuedPodInfo | None:
        if self._untried is not None:
            self._untried.remove(uid)
        return super().remove(uid)

    def pop_untried(self) -> QueuedPodInfo | None:
        """Return the first pod that has not been tried yet; None if pods of a higher level or priority precede it."""
        if self._untried is None:
            self._untried = EntryHeap()
            for item in self._live.values():
                if not item[-1].attempts:
                    self._untried.push(item[-1], item[:3])
        first, untried = self.first_item(), self._untried.first_item()
        if first is None or untried is None or untried[:2] != first[:2]:
            return None
        return self.remove(untried[-1].uid)


class QueueSettings(Struct, frozen=True, kw_only=True):
    """Settings of the queue; durations are in seconds. Raises ValueError for an invalid setting."""

    initial_backoff: float = 1.0
    #: 0 disables backoff.
    max_backoff: float = 10.0
    #: Granularity of expirations while `pop_from_backoff` is on.
    backoff_window: float = 1.0
    pop_from_backoff: bool = True
    #: The time after which a pod is retried although no event woke it.
    max_in_unschedulable: float = 300.0
    #: See `SchedulingQueue.requeue_urgent`.
    max_urgent_retries: int = 5
    #: The limit of kept events; see `InFlight`. A queue reads this and the next setting only once, when it is made.
    max_inflight_events: int = 10_000
    #: Whether plugins' pre-hints are asked. Without them every event reaches all pods that its plugins refused, which
    #: costs more and wakes the same pods.
    pre_queueing_hints: bool = True

    def __post_init__(self) -> None:
        for name in ("initial_backoff", "backoff_window", "max_in_unschedulable"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be above 0 seconds")
        if self.max_backoff != 0 and self.max_backoff < self.initial_backoff:
            least = f"at least initial_backoff, {self.initial_backoff}"
            raise ValueError(f"max_backoff is {self.max_backoff}: it must be 0 (no backoff) or {least}")
        if self.max_urgent_retries < 0:
            raise ValueError(f"max_urgent_retries is {self.max_urgent_retries}: it must not be negative")


class BackoffQueue:
    """backoffQ: owns every pod that waits only for time to pass.

    The penalty is min(initial * 2^(n-1), maximum) for the n-th refusal, or the n-th error in a row. If early leaving is
    on, penalties end on whole ordering windows and pods of one window leave by priority.

    Invariant: an entry has its `backoff_expiration` set and was admitted by all PreEnqueue plugins, so it may go to
    activeQ without another check.
    """

    __slots__ = ("_errors", "_refused", "settings")

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._refused = EntryHeap()
        self._errors = EntryHeap()

    def __len__(self) -> int:
        return len(self._refused) + len(self._errors)

    def __contains__(self, uid: object) -> bool:
        return uid in self._refused or uid in self._errors

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        yield from self._refused
        yield from self._errors

    def uids(self) -> tuple[KeysView[str], KeysView[str]]:
        """Return the UIDs of refused pods and of pods after an error, as views that stay current."""
        return self._refused.uids(), self._errors.uids()

    def get(self, uid: str) -> QueuedPodInfo | None:
        return self._refused.get(uid) or self._errors.get(uid)

    def duration(self, entry: QueuedPodInfo) -> float:
        """Return the penalty of `entry` in seconds, before alignment to a window; 0 for a pod that never failed."""
        failures = entry.consecutive_errors_count or entry.unschedulable_count
        maximum = self.settings.max_backoff
        if failures == 0 or maximum == 0:
            return 0.0
        # The exponent is bounded so that a pod that failed for days does not overflow a float.
        return min(self.settings.initial_backoff * 2.0 ** min(failures - 1, 64), maximum)

    def is_backing_off(self, entry: QueuedPodInfo, now: float) -> bool:
        """Return whether `entry` has to wait at `now`. Sets its expiration on the first call after a failure."""
        if entry.backoff_expiration == 0.0:
            duration = self.duration(entry)
            if duration == 0.0:
                return False
            entry.backoff_expiration = self._expiration(entry.timestamp + duration)
        return entry.backoff_expiration > now

    def _expiration(self, ends: float) -> float:
        """Return `ends`, or the end of its window: in kube-scheduler a pod waits for its last window to end."""
        if not self.settings.pop_from_backoff:
            return ends
        window = self.settings.backoff_window
        return (floor(ends / window) + 1) * window

    def may_leave_early(self, entry: QueuedPodInfo) -> bool:
        """Return whether `entry`, which is in this queue, can be popped before its time."""
        return self.settings.pop_from_backoff and bool(entry.rejectors)

    def add(self, entry: QueuedPodInfo) -> None:
        """Add `entry`; it waits among the errors if no plugin refused it."""
        heap = self._refused if entry.rejectors else self._errors
        heap.push(entry, (entry.backoff_expiration, -entry.pod.priority, entry.timestamp))

    def pop_early(self) -> QueuedPodInfo | None:
        """Return the refused pod whose unfinished penalty ends first; None if no pod may leave early."""
        return self._refused.pop() if self.settings.pop_from_backoff else None

    def pop_expired(self, now: float, limit: int) -> list[QueuedPodInfo]:
        """Return up to `limit` pods whose penalty has ended, soonest first in each of the two queues."""
        refused = self._refused.pop_until(now, limit)
        return refused + self._errors.pop_until(now, limit - len(refused))

    def next_expiration(self) -> float | None:
        """Return the instant at which the next penalty ends, or None if no pod waits."""
        firsts = [first for heap in (self._refused, self._errors) if (first := heap.first_key()) is not None]
        return min(firsts, default=None)

    def remove(self, uid: str) -> QueuedPodInfo | None:
        return self._refused.remove(uid) or self._errors.remove(uid)

    def first(self, count: int, select: Callable[[QueuedPodInfo], bool]) -> list[QueuedPodInfo]:
        """Return pods as `EntryHeap.first`: refused pods in their order, then those that wait after an error."""
        refused = self._refused.first(count, select)
        return refused + self._errors.first(count - len(refused), select)


#: An event, and the object that it is about before and after: the three values that a hint function receives.
InFlightEvent = tuple[ClusterEvent, object | None, object | None]


class InFlightPod(Struct, eq=False, gc=False):
    """One pod in flight. `newest` is its current version."""

    entry: QueuedPodInfo
    newest: PodInfo
    #: The position of the next event when the pod was popped.
    position: int
    #: The events of this very pod: updates and activations. They concern no other pod.
    own: tuple[InFlightEvent, ...] = ()
    deleted: bool = False
    done: bool = False


class InFlight:
    """Owns the pods in flight and the event log.

    Invariants: the line has every pod in flight, in the order in which they were popped and so by position, and its
    head is one of them; the log begins at the head's position, or later if events were dropped; without pods both are
    empty.
    """

    def __init__(self, *, max_events: int, forgotten: Callable[[int], None]) -> None:
        """Create an empty log that keeps up to `max_events` events for the slowest pod.

        Beyond, the oldest are dropped and reported to `forgotten`. A pod that may have needed them is tried again after
        its backoff instead of waiting for an event.
        """
        if max_events < 1:
            raise ValueError(f"max_events is {max_events}: it must be at least 1")
        self._max_events = max_events
        self._pods: dict[str, InFlightPod] = {}
        self._line: deque[InFlightPod] = deque()
        # The events from `_first` to `end`; those before `begin` remain until removing them is worth a pass.
        self._log: list[InFlightEvent] = []
        self._first = 0
        # Positions of events that may concern every pod, whatever refused it. They are few.
        self._wildcards: list[int] = []
        #: Position of the first event in the log, and of the next one to come.
        self.begin = 0
        self.end = 0
        self._forgotten = forgotten

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[InFlightPod]:
        """Return the pods in the order in which they were popped."""
        return iter(self._pods.values())

    def uids(self) -> KeysView[str]:
        """Return the UIDs in flight, as a view that stays current."""
        return self._pods.keys()

    def get(self, uid: str) -> InFlightPod | None:
        return self._pods.get(uid)

    def counts(self) -> Mapping[str, int]:
        """Return the number of kept events by label. As in kube-scheduler a pod in flight is an event, too."""
        labels = Counter(event.label for event, _, _ in self.events_from(self.begin))
        labels.update(event.label for pod in self._pods.values() for event, _, _ in pod.own)
        return {POD_POPPED: len(self._pods), **labels}

    def start(self, entry: QueuedPodInfo) -> None:
        """Record that `entry` was popped; it must not be in flight yet."""
        self._pods[entry.uid] = pod = InFlightPod(entry, entry.pod, self.end)
        self._line.append(pod)

    def record(self, event: ClusterEvent, old: object | None, new: object | None) -> None:
        """Log an event. The caller ensures that a pod is in flight and that some plugin registered the event."""
        if event.is_wildcard:
            self._wildcards.append(self.end)
        self._log.append((event, old, new))
        self.end = end = self.end + 1
        if end - self.begin > self._max_events:
            self._forgotten(1)
            self._begin_at(self.begin + 1)

    def record_own(self, uid: str, event: ClusterEvent, old: PodInfo | None, new: PodInfo) -> None:
        """Log an event of the pod `uid` itself, which is in flight."""
        self._pods[uid].own += ((event, old, new),)

    def since(self, uid: str) -> int | None:
        """Return the position of the first event after `uid` was popped.

        None if the pod is not in flight or some of its events were dropped.
        """
        pod = self._pods.get(uid)
        return None if pod is None or pod.position < self.begin else pod.position

    def at(self, position: int) -> InFlightEvent:
        """Return the event at a position from `begin` to `end`."""
        return self._log[position - self._first]

    def wildcards_from(self, position: int) -> Iterator[InFlightEvent]:
        return (self.at(each) for each in self._wildcards if each >= position)

    def events_from(self, position: int) -> Iterator[InFlightEvent]:
        return (self.at(each) for each in range(position, self.end))

    def done(self, uid: str) -> None:
        """Remove `uid` from the pods in flight.

        An unknown UID is ignored: an attempt may end on more than one path.
        """
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        pod.done = True
        line = self._line
        if line[0] is not pod:
            if len(line) > 2 * len(self._pods) + _SLACK:
                self._line = deque(self._pods.values())
            return
        while line and line[0].done:
            line.popleft()
        begin = line[0].position if line else self.end
        if begin > self.begin:
            self._begin_at(begin)

    def check_invariants(self) -> None:
        assert [pod for pod in self._line if not pod.done] == list(self._pods.values()), "the line misses pods"
        assert not (self._line and self._line[0].done), "a pod that is done heads the line"
        positions = [pod.position for pod in self._line]
        assert positions == sorted(positions), "the line is out of order"
        assert self._pods or self.begin == self.end, "events are kept without a pod in flight"
        oldest = positions[0] if positions else self.begin
        assert oldest <= self.begin, "the log is not pruned up to the oldest pod"
        assert self._first <= self.begin <= self.end == self._first + len(self._log), "the log has gaps"
        assert self.begin - self._first <= _SLACK, "the log keeps events that no pod needs"

    def _begin_at(self, position: int) -> None:
        """Drop the events before `position`."""
        self.begin = position
        if position - self._first > _SLACK:
            del self._log[: position - self._first]
            self._first = position
        if self._wildcards and self._wildcards[0] < position:
            self._wildcards = [each for each in self._wildcards if each >= position]
