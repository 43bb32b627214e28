"""Applies events to waiting pods: to the pool in portions, to pods in flight when they fail.

An event may concern twenty thousand pods, and evaluating and moving them all at once would block the loop. So at most a
portion is processed at once, which is all of it for nearly every event; the rest waits in a backlog, and the owner of
the loop calls `go_on` until nothing is left.

Guarantees in between: each pod is in one place; a pod that was not asked yet is still in the pool, and may be viewed,
changed, activated or deleted there. Events are processed in the order in which they came, each for the pods that were
in the pool then, in their state of then: a pod that is about to change is first asked about the outstanding events
(`catch_up`), and a pod that enters the pool later was asked when its attempt failed (`failed`). Pods of the highest
priority are asked and moved first, then those that have waited the longest, so that `pop` finds these meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from ..events import events as ev
from ..events.events import ClusterEvent
from ..events.hints import HintMap
from ..state.podinfo import PodInfo
from .entry import QueuedPodInfo, pod_change_events
from .places import ACTIVE, BACKOFF, Place, Places
from .record import QueueRecorder
from .replay import Replay
from .requeue import AFTER_BACKOFF, SKIP, QueueingHints, Registered, RequeueSearch, Strategy, Woken
from .subqueues import InFlightEvent

_LEFT_POOL = (ACTIVE, BACKOFF)

PreCheck = Callable[[PodInfo], bool]

#: Questions of the backlog that are processed at a time: about four milliseconds.
PORTION = 3_000
#: The questions that take as long as moving one pod.
_MOVE = 8
#: The longest backlog. Beyond it the sender of an event waits.
_MOST_EVENTS = 1_000


class _Waking(Struct, eq=False):
    """An event that is being applied to the pool, or waits for it."""

    #: Increases from event to event.
    number: int
    happening: InFlightEvent
    registered: Registered
    pre_check: PreCheck | None
    #: The remaining questions, once it has begun.
    steps: Iterator[Woken | None] | None = None


class Waker:
    """Moves pods out of the pool. Owns the events that are not yet fully applied.

    Invariant: while there is a backlog and no burst, `on_backlog` has been called since it was empty.
    """

    def __init__(
        self,
        *,
        places: Places,
        hint_maps: Mapping[str, HintMap],
        clock: Callable[[], float],
        recorder: QueueRecorder,
        pre_hints: bool,
        on_ready: Callable[[], None],
        on_backlog: Callable[[], None],
    ) -> None:
        """Create a waker; arguments as in `SchedulingQueue`. `on_backlog` is called when `go_on` has work."""
        self._places = places
        self._clock = clock
        self._recorder = recorder
        self._pre_hints = pre_hints
        self._on_ready = on_ready
        self._on_backlog = on_backlog
        #: See `PORTION`. May be changed at any time.
        self.portion = PORTION
        self._bursts = 0
        self._backlog: deque[_Waking] = deque()
        #: The number of the latest event.
        self._number = 0
        # UID -> the number of the latest event that the pod must not be asked about again: pods that came to the pool,
        # or were asked individually, while there was a backlog.
        self._asked_up_to: dict[str, int] = {}
        #: The events of a burst, by the ids of their objects: an equal change again wakes no further pod.
        self.burst_events: set[tuple[ClusterEvent, int, int, int]] = set()
        self._working = False
        # Read for every event, so the dicts are read without the classes around them.
        self._flying = places.in_flight.uids()
        self._waiting = places.unschedulable.entries.keys()
        places.before_unschedulable.connect(self._enters)
        self.reconfigure(hint_maps)

    def reconfigure(self, hint_maps: Mapping[str, HintMap]) -> None:
        self.hints = QueueingHints(
            hint_maps=hint_maps, clock=self._clock, recorder=self._recorder, pre_hints=self._pre_hints
        )
        self._replay = Replay(self._places.in_flight, self.hints)
        self._questions = RequeueSearch(self._places.unschedulable, self.hints)

    # -- events of the cluster -----------------------------------------------------------------------------

    def move_all(self, event: ClusterEvent, old: object | None, new: object | None, pre_check: PreCheck | None) -> int:
        """Apply an event as `SchedulingQueue.move_all`."""
        return self._begin() if self._keep(event, old, new, pre_check) and not self._bursts else 0

    def later(self, event: ClusterEvent, old: object | None, new: object | None, pre_check: PreCheck | None) -> None:
        """Keep an event like `move_all`, for callers within a move of a pod: no pod is woken before `go_on`."""
        if self._keep(event, old, new, pre_check):
            self._on_backlog()

    def _keep(self, event: ClusterEvent, old: object | None, new: object | None, pre_check: PreCheck | None) -> bool:
        """Log the event for pods in flight, and append it to the backlog.

        Return false if it concerns no pod in the pool, or if this burst already has it.
        """
        registered = self.hints.registered(event)
        if not registered:
            return False
        if self._flying:
            self._places.in_flight.record(event, old, new)
        if not self._waiting or not self._questions.concerns(event, registered):
            return False
        if self._bursts:
            same = (event, id(old), id(new), id(pre_check))
            if same in self.burst_events:
                return False
            self.burst_events.add(same)
        self._number += 1
        self._backlog.append(_Waking(self._number, (event, old, new), registered, pre_check))
        return True

    def __enter__(self) -> None:
        """Begin a burst; see `SchedulingQueue.burst`."""
        self._bursts += 1

    def __exit__(self, *raised: object) -> None:
        self._bursts -= 1
        if not self._bursts:
            self.settle()

    def settle(self) -> None:
        """Apply the events that the burst has collected so far."""
        if self.burst_events:
            self.burst_events.clear()
            self._begin()

    def _begin(self) -> int:
        """Process the first portion of new events, unless an earlier event is unfinished.

        Return the number of pods that left the pool.
        """
        under_way = bool(self._backlog) and self._backlog[0].steps is not None
        moved = 0 if under_way else self.go_on()
        while len(self._backlog) > _MOST_EVENTS and not self._working:
            moved += self.go_on()
        if self._backlog:
            self._on_backlog()
        return moved

    @property
    def backlog(self) -> int:
        """The number of events that are not yet fully applied."""
        return len(self._backlog)

    def finish(self) -> None:
        """Process the whole backlog, however long it takes."""
        self.settle()
        while self._backlog and not self._working:
            self.go_on()

    def go_on(self) -> int:
        """Process the next portion of the backlog. Return the number of pods that left the pool."""
        if self._working:
            # A hint that is being evaluated caused this event, which is processed in its turn.
            return 0
        self._working = True
        places, backlog = self._places, self._backlog
        moved, ready, left = 0, False, self.portion
        now = self._clock()
        try:
            while backlog and left > 0:
                waking = backlog[0]
                if waking.steps is None:
                    waking.steps = self._questions.woken(
                        waking.registered,
                        waking.happening,
                        pre_check=waking.pre_check,
                        asked_up_to=self._asked_up_to,
                        number=waking.number,
                    )
                for woken in waking.steps:
                    left -= 1
                    if woken is not None:
                        entry, strategy = woken
                        left -= _MOVE
                        label = waking.happening[0].label
                        place = places.requeue(entry, strategy, label=label, now=now)
                        ready = ready or places.poppable(entry, place)
                        moved += place in _LEFT_POOL
                    if left <= 0:
                        break
                else:
                    backlog.popleft()
        except BaseException:
            # An event that raised must not block those behind it.
            backlog.popleft()
            if backlog:
                self._on_backlog()
            raise
        finally:
            self._working = False
            if not backlog:
                self._asked_up_to.clear()
        if ready:
            self._on_ready()
        return moved

    def _enters(self, uid: str) -> None:
        """Record that `uid` enters the pool: it was asked about earlier events when it failed, or none concerns it."""
        if self._backlog:
            self._asked_up_to[uid] = self._number

    def check_invariants(self) -> None:
        numbers = [waking.number for waking in self._backlog]
        assert numbers == sorted(set(numbers)), "events are out of order"
        assert not numbers or numbers[-1] <= self._number, "an event has a number of the future"
        assert all(waking.steps is None for waking in list(self._backlog)[1:]), "an event has overtaken another"
        assert numbers or not self._asked_up_to, "asked pods are recorded without a backlog"

    # -- one pod -------------------------------------------------------------------------------------------

    def catch_up(self, uid: str) -> None:
        """Ask `uid`, which is about to change, about the events of the backlog that it was not asked about yet."""
        entry = self._places.unschedulable.entries.get(uid)
        if entry is None or not self._backlog:
            return
        asked = self._asked_up_to.get(uid, 0)
        for waking in list(self._backlog):
            if waking.number <= asked or (waking.pre_check and not waking.pre_check(entry.pod)):
                continue
            if self._leaves(entry, *waking.happening):
                return
        self._asked_up_to[uid] = self._number

    def updated(self, entry: QueuedPodInfo, pod: PodInfo) -> None:
        """Replace the pod of `entry`, which is in the pool; the change may be the event that it waits for."""
        old = entry.pod
        entry.pod = pod
        self._places.unschedulable.update(entry)
        for event in pod_change_events(pod, old):
            if self._leaves(entry, event, old, pod):
                return

    def _leaves(self, entry: QueuedPodInfo, event: ClusterEvent, old: object | None, new: object | None) -> bool:
        """Apply an event to one pod. Return whether it has left the pool."""
        places = self._places
        hints = self.hints.lookup(entry.pod.scheduler_name, event)
        strategy = self.hints.worth_requeuing(entry, event, old, new, hints=hints)
        if strategy is SKIP:
            return False
        place = places.requeue(entry, strategy, label=event.label, now=self._clock())
        if place not in _LEFT_POOL:
            return False
        if places.poppable(entry, place):
            self._on_ready()
        return True

    def failed(self, entry: QueuedPodInfo) -> Place:
        """Place `entry`, whose attempt ended without a node, as the events since it was popped require."""
        places = self._places
        strategy: Strategy = AFTER_BACKOFF
        if entry.rejectors:
            since = places.in_flight.since(entry.uid)
            if since is not None:
                strategy = self._replay.strategy(entry, since)
        place = places.requeue(entry, strategy, label=ev.SCHEDULE_ATTEMPT_FAILURE, now=entry.timestamp)
        places.in_flight.done(entry.uid)
        if places.poppable(entry, place):
            self._on_ready()
        return place
