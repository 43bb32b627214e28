"""Events on their way to the pods that wait: to the pool at once or after a burst, to pods in flight when they fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic

from . import events as ev
from .entry import PodT, QueuedPodInfo
from .events import ClusterEvent
from .hints import HintMap
from .narrowing import Happening, Narrowing
from .places import Places
from .pod_events import pod_change_events
from .record import QueueRecorder
from .replay import Replay
from .requeue import AFTER_BACKOFF, SKIP, RequeueJudge, Strategy
from .views import ACTIVE, BACKOFF, Place

_LEFT_POOL = (ACTIVE, BACKOFF)

PreCheck = Callable[[PodT], bool]


class Waker(Generic[PodT]):
    """Moves pods out of the pool. Owner of the events of a burst that nobody was asked about yet.

    Invariant: whoever looks at the pool or changes it calls `settle` first, so that the order in which things happened
    is the order in which they count.
    """

    def __init__(
        self,
        *,
        places: Places[PodT],
        hint_maps: Mapping[str, HintMap],
        clock: Callable[[], float],
        recorder: QueueRecorder,
        pre_hints: bool,
        on_ready: Callable[[], None],
    ) -> None:
        """Arguments as in `SchedulingQueue`."""
        self._places = places
        self._clock = clock
        self._recorder = recorder
        self._pre_hints = pre_hints
        self._on_ready = on_ready
        self._bursts = 0
        self._put_off: list[tuple[Happening, PreCheck[PodT] | None]] = []
        # Asked for every event, so it goes past the classes straight to their dicts.
        self._flying = places.in_flight.uids()
        self._waiting = places.pool.uids()
        places.before_pool = self.settle
        self.reconfigure(hint_maps)

    def reconfigure(self, hint_maps: Mapping[str, HintMap]) -> None:
        self._profiles = tuple(hint_maps)
        self.judge = RequeueJudge(hint_maps=hint_maps, clock=self._clock, recorder=self._recorder)
        self._replay: Replay[PodT] = Replay(
            in_flight=self._places.in_flight,
            hint_maps=hint_maps,
            judge=self.judge,
            recorder=self._recorder,
            pre_hints=self._pre_hints,
        )
        self._narrowing: Narrowing[PodT] = Narrowing(
            pool=self._places.pool,
            profiles=self._profiles,
            judge=self.judge,
            recorder=self._recorder,
            pre_hints=self._pre_hints,
        )

    # -- events of the cluster -----------------------------------------------------------------------------

    def move_all(
        self, event: ClusterEvent, old: object | None, new: object | None, pre_check: PreCheck[PodT] | None
    ) -> int:
        """As `SchedulingQueue.move_all`."""
        if not self.judge.of_interest(event):
            return 0
        if self._flying:
            self._places.in_flight.record(event, old, new)
        if not self._waiting or not self._narrowing.concerns(event):
            return 0
        happening = Happening(event, old, new)
        if self._bursts:
            self._put_off.append((happening, pre_check))
            return 0
        moved, ready = self._wake(happening, pre_check)
        if ready:
            self._on_ready()
        return moved

    def __enter__(self) -> None:
        """A burst begins; see `SchedulingQueue.burst`."""
        self._bursts += 1

    def __exit__(self, *raised: object) -> None:
        self._bursts -= 1
        if not self._bursts:
            self.settle()

    def settle(self) -> None:
        """Put what was put off to the pool."""
        if not self._put_off:
            return
        ready = False
        # Asking may bring more: a plugin is free to tell of an event of its own.
        while self._put_off:
            put_off, self._put_off = self._put_off, []
            told: set[tuple[ClusterEvent, int, int, int]] = set()
            for happening, pre_check in put_off:
                # The same change again wakes nobody whom it has not woken.
                same = (happening.event, id(happening.old), id(happening.new), id(pre_check))
                if same not in told and self._waiting:
                    told.add(same)
                    ready = self._wake(happening, pre_check)[1] or ready
        if ready:
            self._on_ready()

    def _wake(self, happening: Happening, pre_check: PreCheck[PodT] | None) -> tuple[int, bool]:
        """How many pods left the pool, and whether one of them can be popped."""
        places = self._places
        moved = 0
        ready = False
        now = self._clock()
        label = happening.event.label
        for profile in self._profiles:
            for entry, strategy in self._narrowing.woken(profile, happening, pre_check):
                if places.pool.get(entry.uid) is not entry:
                    continue  # a gate that was asked about another pod has let it go
                place = places.requeue(entry, strategy, label=label, now=now)
                ready = ready or places.poppable(entry, place)
                moved += place in _LEFT_POOL
        return moved, ready

    # -- one pod -------------------------------------------------------------------------------------------

    def updated(self, entry: QueuedPodInfo[PodT], pod: PodT) -> None:
        """`entry`, which is in the pool, has become `pod`; that may be what its refusal needed."""
        places = self._places
        old = entry.pod
        entry.pod = pod
        places.pool.update(entry)
        now = self._clock()
        for event in pod_change_events(pod, old):
            hints = self.judge.lookup(pod.scheduler_name, event)
            strategy = self.judge.after(entry, event, old, pod, hints=hints)
            if strategy is SKIP:
                continue
            place = places.requeue(entry, strategy, label=event.label, now=now)
            if place in _LEFT_POOL:
                if places.poppable(entry, place):
                    self._on_ready()
                return

    def failed(self, entry: QueuedPodInfo[PodT]) -> Place:
        """The attempt on `entry` ended without a node, for the reasons that it carries now: put it where the events
        since it was popped say."""
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
