"""Pods in flight, and the events that arrived meanwhile.

An event that happens while a pod is being tried may be the one that its refusal needed, and the attempt cannot
have seen it. So events are kept while any pod is in flight, and a pod that fails is asked about those that came
after it was popped.

kube-scheduler interleaves pods and events in one linked list. Here an event has a position in one log and a pod
remembers the position at which it was popped; pods popped between the same two events share one `_Mark`. The
log is pruned up to the oldest mark that still has a pod, so popping and finishing a pod costs no list surgery.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, KeysView, Mapping
from typing import Generic, NamedTuple

from msgspec import Struct

from .entry import PodT, QueuedPodInfo
from .events import POD_POPPED, ClusterEvent


class InFlightEvent(NamedTuple):
    """An event and the object that it is about; the same three values that a hint function gets."""

    event: ClusterEvent
    old: object | None
    new: object | None


class _Mark(Struct, eq=False, gc=False):
    """A position in the log and how many pods in flight were popped there."""

    position: int
    pods: int


class InFlightPod(Struct, Generic[PodT], eq=False, gc=False):
    """One pod being tried. `newest` is what the pod has become since it was popped."""

    entry: QueuedPodInfo[PodT]
    newest: PodT
    mark: _Mark
    #: What happened to this very pod: updates and activations. Nobody else is asked about them.
    own: tuple[InFlightEvent, ...] = ()
    deleted: bool = False


class InFlight(Generic[PodT]):
    """Owner of the pods in flight and of the event log.

    Invariants: marks are in order of position and each has at least one pod; the log begins at the first mark,
    or later where events were forgotten; without pods both are empty.
    """

    def __init__(self, *, max_events: int, forgotten: Callable[[int], None] = lambda count: None) -> None:
        """`max_events`: how many events to keep for the slowest pod. Beyond, the oldest are forgotten, which
        `forgotten` is told, and a pod that could have needed them is tried again after its backoff instead of waiting
        for an event."""
        if max_events < 1:
            raise ValueError(f"max_events is {max_events}: it must be at least 1")
        self._max_events = max_events
        self._pods: dict[str, InFlightPod[PodT]] = {}
        # By position. Ordered, because the first of a plain dict is found slowly once its head was deleted.
        self._marks: OrderedDict[int, _Mark] = OrderedDict()
        # By position, from `begin` to `end`.
        self._log: dict[int, InFlightEvent] = {}
        # Positions of events that may concern every pod, whatever refused it. They are few.
        self._wildcards: list[int] = []
        #: Position of the first event in the log, and of the next one that comes.
        self.begin = 0
        self.end = 0
        self._forgotten = forgotten

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[InFlightPod[PodT]]:
        """In the order in which they were popped."""
        return iter(self._pods.values())

    def uids(self) -> KeysView[str]:
        """The UIDs that are here, as a view that stays current."""
        return self._pods.keys()

    def get(self, uid: str) -> InFlightPod[PodT] | None:
        return self._pods.get(uid)

    @property
    def events(self) -> int:
        """How many events are kept, those of single pods not counted."""
        return len(self._log)

    def counts(self) -> Mapping[str, int]:
        """What is kept, by label, as kube-scheduler counts it: a pod in flight is an event, too."""
        labels = Counter(event.label for event, _, _ in self._log.values())
        labels.update(own.event.label for pod in self._pods.values() for own in pod.own)
        return {POD_POPPED: len(self._pods), **labels}

    def start(self, entry: QueuedPodInfo[PodT]) -> None:
        """`entry` was popped; it must not be in flight yet."""
        end = self.end
        mark = self._marks.get(end)
        if mark is None:
            mark = self._marks[end] = _Mark(end, 0)
        mark.pods += 1
        self._pods[entry.uid] = InFlightPod(entry, entry.pod, mark)

    def record(self, event: ClusterEvent, old: object | None, new: object | None) -> None:
        """`event` happened. Kept only while a pod is in flight; the caller knows that some plugin wants it."""
        if not self._pods:
            return
        if event.is_wildcard:
            self._wildcards.append(self.end)
        self._log[self.end] = InFlightEvent(event, old, new)
        self.end += 1
        if len(self._log) > self._max_events:
            self._forgotten(1)
            self._drop(1)

    def record_own(self, uid: str, event: ClusterEvent, old: PodT | None, new: PodT) -> None:
        """`event` happened to `uid` itself, which is in flight."""
        self._pods[uid].own += (InFlightEvent(event, old, new),)

    def since(self, uid: str) -> int | None:
        """From which position on events came since `uid` was popped; None when it is not in flight or some of them
        were forgotten."""
        pod = self._pods.get(uid)
        return None if pod is None or pod.mark.position < self.begin else pod.mark.position

    def at(self, position: int) -> InFlightEvent:
        """The event at a position from `begin` to `end`."""
        return self._log[position]

    def wildcards_from(self, position: int) -> Iterator[InFlightEvent]:
        return (self._log[each] for each in self._wildcards if each >= position)

    def events_from(self, position: int) -> Iterator[InFlightEvent]:
        return (self._log[each] for each in range(position, self.end))

    def done(self, uid: str) -> None:
        """`uid` is no longer being tried. Unknown is fine: an attempt may end on more than one path."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        pod.mark.pods -= 1
        if pod.mark.pods == 0:
            del self._marks[pod.mark.position]
            if self._log:
                oldest = next(iter(self._marks), self.end)
                self._drop(oldest - self.begin)

    def timeline(self) -> list[str | ClusterEvent]:
        """UIDs and events, interleaved as they came: for a debug page and for tests."""
        line: list[str | ClusterEvent] = []
        position = self.begin
        log = self.events_from(position)
        for uid, pod in self._pods.items():
            while position < pod.mark.position:
                line.append(next(log).event)
                position += 1
            line.append(uid)
        line.extend(event for event, _, _ in log)
        return line

    def check_invariants(self) -> None:
        pods: dict[int, int] = {}
        for pod in self._pods.values():
            position = pod.mark.position
            assert self._marks.get(position) is pod.mark, f"{pod.entry.uid} has a mark that was dropped"
            pods[position] = pods.get(position, 0) + 1
        assert pods == {position: mark.pods for position, mark in self._marks.items()}, "marks miscount pods"
        assert list(self._marks) == sorted(self._marks), "marks are out of order"
        assert self._pods or not self._log, "events are kept for nobody"
        oldest = next(iter(self._marks), self.begin)
        assert oldest <= self.begin, "the log is not pruned up to the oldest pod"
        assert list(self._log) == list(range(self.begin, self.end)), "the log has gaps"

    def _drop(self, count: int) -> None:
        """Forget the `count` oldest events; negative where more than that is forgotten already."""
        for _ in range(count):
            del self._log[self.begin]
            self.begin += 1
        if self._wildcards and self._wildcards[0] < self.begin:
            self._wildcards = [each for each in self._wildcards if each >= self.begin]
