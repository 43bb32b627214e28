"""Pods in flight, and the events that arrived meanwhile.

An event that happens while a pod is being tried may be the one that its refusal needed, and the attempt cannot
have seen it. So events are kept while any pod is in flight, and a pod that fails is asked about those that came
after it was popped.

kube-scheduler interleaves pods and events in one linked list. Here an event has a position in one log and a pod
remembers the position at which it was popped. The log is pruned up to the oldest pod that is still in flight; pods
that are done leave the line when they come to its head, so popping and finishing a pod costs no list surgery.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, KeysView, Mapping
from typing import Generic

from msgspec import Struct

from ..events.events import POD_POPPED, ClusterEvent
from .entry import PodT, QueuedPodInfo

#: An event, and the object that it is about before and after: the three values that a hint function gets.
InFlightEvent = tuple[ClusterEvent, object | None, object | None]

#: Pods that are done, in the line behind one that is not, and events that nobody needs: as many are not worth a pass
#: over the rest.
_SLACK = 64


class InFlightPod(Struct, Generic[PodT], eq=False, gc=False):
    """One pod being tried. `newest` is what the pod has become since it was popped."""

    entry: QueuedPodInfo[PodT]
    newest: PodT
    #: That of the next event when it was popped.
    position: int
    #: What happened to this very pod: updates and activations. Nobody else is asked about them.
    own: tuple[InFlightEvent, ...] = ()
    deleted: bool = False
    done: bool = False


class InFlight(Generic[PodT]):
    """Owner of the pods in flight and of the event log.

    Invariants: the line has every pod in flight, in the order in which they were popped and so by position, and its
    head is one of them; the log begins at that one's position, or later where events were forgotten; without pods
    both are empty.
    """

    def __init__(self, *, max_events: int, forgotten: Callable[[int], None] = lambda count: None) -> None:
        """`max_events`: how many events to keep for the slowest pod. Beyond, the oldest are forgotten, which
        `forgotten` is told, and a pod that could have needed them is tried again after its backoff instead of waiting
        for an event."""
        if max_events < 1:
            raise ValueError(f"max_events is {max_events}: it must be at least 1")
        self._max_events = max_events
        self._pods: dict[str, InFlightPod[PodT]] = {}
        self._line: deque[InFlightPod[PodT]] = deque()
        # Those from `_first` to `end`; what is before `begin` is there because cutting it off was not worth it yet.
        self._log: list[InFlightEvent] = []
        self._first = 0
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
        return self.end - self.begin

    def counts(self) -> Mapping[str, int]:
        """What is kept, by label, as kube-scheduler counts it: a pod in flight is an event, too."""
        labels = Counter(event.label for event, _, _ in self.events_from(self.begin))
        labels.update(event.label for pod in self._pods.values() for event, _, _ in pod.own)
        return {POD_POPPED: len(self._pods), **labels}

    def start(self, entry: QueuedPodInfo[PodT]) -> None:
        """`entry` was popped; it must not be in flight yet."""
        self._pods[entry.uid] = pod = InFlightPod(entry, entry.pod, self.end)
        self._line.append(pod)

    def record(self, event: ClusterEvent, old: object | None, new: object | None) -> None:
        """`event` happened. The caller knows that a pod is in flight, and that some plugin wants to hear of it."""
        if event.is_wildcard:
            self._wildcards.append(self.end)
        self._log.append((event, old, new))
        self.end = end = self.end + 1
        if end - self.begin > self._max_events:
            self._forgotten(1)
            self._begin_at(self.begin + 1)

    def record_own(self, uid: str, event: ClusterEvent, old: PodT | None, new: PodT) -> None:
        """`event` happened to `uid` itself, which is in flight."""
        self._pods[uid].own += ((event, old, new),)

    def since(self, uid: str) -> int | None:
        """From which position on events came since `uid` was popped; None when it is not in flight or some of them
        were forgotten."""
        pod = self._pods.get(uid)
        return None if pod is None or pod.position < self.begin else pod.position

    def at(self, position: int) -> InFlightEvent:
        """The event at a position from `begin` to `end`."""
        return self._log[position - self._first]

    def wildcards_from(self, position: int) -> Iterator[InFlightEvent]:
        return (self.at(each) for each in self._wildcards if each >= position)

    def events_from(self, position: int) -> Iterator[InFlightEvent]:
        return (self.at(each) for each in range(position, self.end))

    def done(self, uid: str) -> None:
        """`uid` is no longer being tried. Unknown is fine: an attempt may end on more than one path."""
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
        assert [pod for pod in self._line if not pod.done] == list(self._pods.values()), (
            "the line misses pods"
        )
        assert not (self._line and self._line[0].done), "a pod that is done heads the line"
        positions = [pod.position for pod in self._line]
        assert positions == sorted(positions), "the line is out of order"
        assert self._pods or self.begin == self.end, "events are kept for nobody"
        oldest = positions[0] if positions else self.begin
        assert oldest <= self.begin, "the log is not pruned up to the oldest pod"
        assert self._first <= self.begin <= self.end == self._first + len(self._log), "the log has gaps"
        assert self.begin - self._first <= _SLACK, "the log keeps what nobody needs"

    def _begin_at(self, position: int) -> None:
        """Nobody needs the events before `position`, or they are forgotten."""
        self.begin = position
        if position - self._first > _SLACK:
            del self._log[: position - self._first]
            self._first = position
        if self._wildcards and self._wildcards[0] < position:
            self._wildcards = [each for each in self._wildcards if each >= position]
