"""The scheduling queue, after kube-scheduler's `PriorityQueue`: every pod that waits for a node.

Synchronous and without locks, owned by one thread. It never waits: `pop` returns immediately, the signal `ready`
reports that another call may succeed, and `next_deadline` returns when a flush or the rest of a backlog (`go_on`) is
due.

Guarantees:
- a pod is in exactly one of active, backoff, unschedulable (including gated) and in flight, by UID;
- an event that arrives while a pod is in flight is considered for that pod if its attempt fails;
- a deleted pod does not return, and a repeated watch event never resets a pod's attempts;
- urgent retries are bounded: see `requeue_urgent`.

The owner of the loop calls `done`, `add_unschedulable` or `requeue_urgent` for every popped pod, and does not pass a
pod that it has assumed on a node to `add`: after `done` the queue no longer knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from ..events import events as ev
from ..events.events import ClusterEvent
from ..events.hints import HintMap
from ..events.signals import Signal
from ..framework.plugin import PreEnqueue
from ..state.podinfo import PodInfo
from .entry import QueuedPodInfo, pod_change_events
from .nominator import Nominator
from .places import ACTIVE, PendingCounts, Place, Places
from .record import QueueRecorder
from .requeue import IMMEDIATELY
from .subqueues import QueueSettings
from .waking import Waker

_NONE: frozenset[str] = frozenset()


class QueueSignals(NamedTuple):
    """Calls by which the queue wakes the owner of the loop."""

    #: Called once at the end of each call that made a pod poppable, and by `close`.
    ready: Callable[[], None]
    #: Called when `next_deadline` becomes earlier than its last answer.
    deadline_moved: Callable[[], None]


class QueueError(ValueError):
    """A call that violates the queue's contract."""


class SchedulingQueue:
    """Owns all waiting pods and the nominations."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        hint_maps: Mapping[str, HintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueue]],
        settings: QueueSettings,
        signals: QueueSignals,
        recorder: QueueRecorder,
        is_pending: Callable[[str], bool],
    ) -> None:
        """Create a queue for the profiles in `hint_maps`; `pre_enqueue` is by profile, too.

        `clock` returns seconds and never decreases. `is_pending` returns whether the pod of a UID exists without a
        node, according to the watch. Raises ValueError for an unknown profile.
        """
        self._clock = clock
        self.hint_maps = dict(hint_maps)
        self._on_ready = signals.ready
        self._recorder = recorder
        self._is_pending = is_pending
        self.places = Places(
            hint_maps=self.hint_maps,
            pre_enqueue=pre_enqueue,
            settings=settings,
            recorder=recorder,
            on_deadline=signals.deadline_moved,
        )
        # Read in every turn of the loop, so the dict is read without the class around it.
        self._active = self.places.active.uids()
        self._refused, _errors = self.places.backoff.uids()
        self.waker = Waker(
            places=self.places,
            hint_maps=self.hint_maps,
            clock=clock,
            recorder=recorder,
            pre_hints=settings.pre_queueing_hints,
            on_ready=signals.ready,
            on_backlog=signals.deadline_moved,
        )
        self.nominator = Nominator(is_pending=is_pending)
        #: The nomination of this pod ended, and the pods of this queue are woken.
        self.given_up: Signal[[PodInfo]] = Signal()
        self.closed = False

    def reconfigure(
        self,
        *,
        hint_maps: Mapping[str, HintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueue]],
        settings: QueueSettings,
    ) -> None:
        """Replace the rules; arguments as for a new queue.

        Every refused pod is tried again after its backoff, and every gate is checked again. Attempts in flight
        continue, and are tried again if they fail. Pods of profiles that `hint_maps` no longer has must be deleted
        before any other call. Raises ValueError and changes nothing then.
        """
        self.waker.finish()
        maps = dict(hint_maps)
        label = ev.RULES_CHANGED.label
        self.places.reconfigure(hint_maps=maps, pre_enqueue=pre_enqueue, settings=settings, label=label)
        self.hint_maps = maps
        self.waker.reconfigure(maps)
        self.move_all(ev.RULES_CHANGED)

    # -- the watch's side ----------------------------------------------------------------------------------

    def add(self, pod: PodInfo) -> None:
        """Add `pod`, which waits for a node. A known pod is updated and keeps its place and its history.

        Raises QueueError for a pod of a profile that this queue does not have.
        """
        if self.places.knows(pod.uid):
            self.waker.settle()
            kept = self.nominator.nominated.get(pod.uid, "")
            self._update_known(pod)
            self._wake_behind(pod, kept)
            return
        if pod.scheduler_name not in self.hint_maps:
            asks = f"pod {pod.namespace}/{pod.name} asks for scheduler {pod.scheduler_name!r}"
            raise QueueError(f"{asks}: this queue has {sorted(self.hint_maps)}")
        if pod.nominated_node_name:
            self.nominator.add(pod)
        now, label = self._clock(), ev.UNSCHEDULED_POD_ADD.label
        entry = QueuedPodInfo(uid=pod.uid, pod=pod, timestamp=now)
        if self.places.requeue(entry, IMMEDIATELY, label=label, now=now) is ACTIVE:
            self._on_ready()

    def delete(self, uid: str, *, node_name: str = "") -> None:
        """Remove `uid`, which is deleted or bound to `node_name`. An unknown UID is ignored.

        An attempt in flight continues, but cannot requeue the pod.
        """
        self.waker.settle()
        kept = self.nominator.nominated.get(uid, "")
        nominated = self.nominator.delete(uid) if kept else None
        flying = self.places.in_flight.get(uid)
        if flying is not None:
            flying.deleted = True
        elif self.places.knows(uid):
            self.places.remove(uid)
        if nominated is not None:
            self._wake_behind(nominated, kept, stays=node_name)

    def nominate(self, pod: PodInfo, node_name: str, *, in_gate: bool = False) -> None:
        """Nominate the pod to the node, or to none if empty.

        With `in_gate`, pods that this helps are woken by `go_on`.
        """
        kept = self.nominator.nominated.get(pod.uid, "")
        self.nominator.delete(pod.uid)
        if node_name:
            self.nominator.add(pod, node_name)
        self._wake_behind(pod, kept, later=in_gate)

    def move_all(
        self,
        event: ClusterEvent,
        old: object | None = None,
        new: object | None = None,
        *,
        pre_check: Callable[[PodInfo], bool] | None = None,
    ) -> int:
        """Handle `event`, which changed `old` to `new`: wake refused pods that it may help; log it for pods in flight.

        Pods for which `pre_check` is false are skipped. If many pods are concerned, some are left to `go_on`; see
        `waking`. Return the number of pods that left the pool immediately.
        """
        return self.waker.move_all(event, old, new, pre_check)

    def burst(self) -> AbstractContextManager[None]:
        """Return a context in which events are collected, then applied to the pool together at its end.

        `ready` is called once, and repeated equal changes are evaluated once. The same pods are woken as without it;
        `move_all` returns 0 meanwhile. Bursts may be nested.
        """
        return self.waker

    def go_on(self) -> int:
        """Continue with the backlog of earlier events; `next_deadline` reports whether there is any.

        Return the number of pods that left the pool.
        """
        return self.waker.go_on()

    def assigned_pod_updated(self, old: PodInfo, new: PodInfo) -> int:
        """Handle a change of one or more properties of a pod with a node.

        Return the number of pods that left the pool.
        """
        events = pod_change_events(new, old, assigned=True)
        return sum(self.waker.move_all(event, old, new, None) for event in events)

    # -- the scheduling loop's side ------------------------------------------------------------------------

    def pop(self) -> QueuedPodInfo | None:
        """Return the best pod that may be tried now, which is then in flight; None if there is none or after `close`.

        If nothing is active, a pod may leave its backoff early unless its last attempt ended in an error.
        """
        if self.waker.burst_events:
            self.waker.settle()
        return None if self.closed else self.places.pop()

    @property
    def has_ready(self) -> bool:
        """Whether `pop` would return a pod, apart from pods that an unfinished burst will wake."""
        return bool(self._active) or (self.places.settings.pop_from_backoff and bool(self._refused))

    def take(self, uid: str) -> QueuedPodInfo | None:
        """Pop `uid` whatever its turn; None if it is gated, in flight or unknown."""
        return self.places.take(uid)

    def done(self, uid: str) -> None:
        """End the attempt on `uid`, or its need for further events. A second call is ignored."""
        self.places.in_flight.done(uid)

    def add_unschedulable(
        self,
        entry: QueuedPodInfo,
        *,
        unschedulable_plugins: Iterable[str] = _NONE,
        pending_plugins: Iterable[str] = _NONE,
    ) -> Place | None:
        """Keep the pod of a failed attempt until another one is worthwhile (AddUnschedulablePodIfNotPresent).

        Without any plugin the attempt counts as an error, and the pod returns after its backoff. Otherwise the events
        since it was popped decide; after an early `done`, which discarded them, it also returns after its backoff.
        Return the pod's place, None if it no longer waits for a node. Raises QueueError if the pod waits already, or is
        in flight on another attempt.
        """
        if not self._taken_back(entry):
            return None
        refused, pending = frozenset(unschedulable_plugins), frozenset(pending_plugins)
        entry.failed(unschedulable=refused, pending=pending, now=self._clock())
        self.places.retries_in_vain += entry.attempts > 1
        return self.waker.failed(entry)

    def requeue_urgent(self, entry: QueuedPodInfo) -> bool:
        """Retry `entry`, which lost a race for its nodes, before all others and without backoff.

        Urgent pods are popped before all others whatever their priorities, and among themselves by priority and age. A
        pod that always loses must not starve the rest, so this is granted `max_urgent_retries` times in a row; then the
        pod backs off as after its first error, and the count restarts. The penalty does not grow: if the losers of many
        races waited ever longer, the last free node would stay idle. Attempts are kept. Return whether the pod is
        urgent now. Raises as `add_unschedulable`.
        """
        if not self._taken_back(entry):
            return False
        granted = entry.urgent_retries < self.places.settings.max_urgent_retries
        self._recorder.urgent_retry(granted)
        if not granted:
            entry.consecutive_errors_count = 0
            entry.failed(unschedulable=_NONE, pending=_NONE, now=self._clock())
            self.waker.failed(entry)
            return False
        entry.urgent_retries += 1
        entry.urgent = 1
        entry.diagnose(unschedulable=_NONE, pending=_NONE)
        now = self._clock()
        ready = self.places.requeue(entry, IMMEDIATELY, label=ev.URGENT_RETRY, now=now) is ACTIVE
        # A pod that a gate stopped meanwhile returns without urgency.
        entry.urgent = int(ready)
        self.places.in_flight.done(entry.uid)
        if ready:
            self._on_ready()
        return ready

    def activate(self, uids: Iterable[str]) -> int:
        """Move these pods to activeQ whatever refused them; PreEnqueue may still hold those in the pool.

        A pod in flight receives the request when its attempt fails. Unknown and active pods are skipped. Return the
        number of pods that became active.
        """
        self.waker.settle()
        places, now, label = self.places, self._clock(), ev.FORCE_ACTIVATE.label
        activated = 0
        for uid in uids:
            flying = places.in_flight.get(uid)
            if flying is not None:
                places.in_flight.record_own(uid, ev.FORCE_ACTIVATE, None, flying.newest)
            elif (refused := places.unschedulable.entries.get(uid)) is not None:
                place = places.requeue(refused, IMMEDIATELY, label=label, now=now)
                activated += place is ACTIVE
            elif (waiting := places.backoff.remove(uid)) is not None:
                places.to_active(waiting, label=label, now=now)
                activated += 1
        if activated:
            self._on_ready()
        return activated

    def scheduled(self, entry: QueuedPodInfo) -> None:
        """Report the attempts of the bound `entry`, and the seconds since it could first be tried."""
        first = entry.initial_attempt_timestamp
        waited = 0.0 if first is None else self._clock() - first
        if entry.attempts > 1:
            self.places.retries_in_vain = 0
        self._recorder.scheduled(entry.attempts, waited, entry.was_flushed)

    def close(self) -> None:
        """Make `pop` return None from now on; calls `ready` to wake a waiting caller."""
        self.closed = True
        self._on_ready()

    # -- time ----------------------------------------------------------------------------------------------

    def flush_backoff(self) -> int:
        """Move some of the pods whose backoff has ended to activeQ; return their number."""
        self.waker.settle()
        moved = self.places.flush_backoff(self._clock())
        if moved:
            self._on_ready()
        return moved

    def flush_unschedulable_leftovers(self) -> int:
        """Retry some of the pods that no event woke for `max_in_unschedulable`; return how many left the pool.

        A pod that is still gated stays and is checked again after the same time. Pods in flight are not affected.
        """
        self.waker.settle()
        moved, ready = self.places.flush_unschedulable(self._clock())
        if ready:
            self._on_ready()
        return moved

    def next_deadline(self) -> float | None:
        """Return the instant of the clock at which a flush or `go_on` is due; None if neither will be."""
        deadline = self.places.next_deadline()
        return self._clock() if self.waker.backlog else deadline

    # -- questions -----------------------------------------------------------------------------------------

    def pending(self) -> PendingCounts:
        self.waker.settle()
        return self.places.pending()

    def where(self, uid: str) -> Place | None:
        """Return the place of `uid`; None if it is unknown."""
        self.waker.settle()
        return self.places.where(uid)

    def kept_in_flight(self) -> Mapping[str, int]:
        """Return the number of events that are kept for pods in flight, by label."""
        return self.places.in_flight.counts()

    def check_invariants(self) -> None:
        """Raise AssertionError if the queue contradicts itself; O(n), for tests and a debug switch."""
        self.places.check_invariants()
        self.waker.check_invariants()
        self.nominator.check_invariants()

    # -- decisions -----------------------------------------------------------------------------------------

    def _wake_behind(self, pod: PodInfo, kept: str, *, stays: str = "", later: bool = False) -> None:
        """Wake pods that had to leave room for `pod` if its nomination no longer holds.

        `stays` is the node it runs on.
        """
        if kept and kept != (stays or self.nominator.nominated.get(pod.uid, "")):
            behind = lambda other: other.uid != pod.uid and other.priority <= pod.priority  # noqa: E731
            (self.waker.later if later else self.waker.move_all)(ev.ASSIGNED_POD_DELETE, pod, None, behind)
            self.given_up(pod)

    def _taken_back(self, entry: QueuedPodInfo) -> bool:
        """Give the pod of a failed attempt its newest version.

        Return false, and end the attempt, if it no longer waits.
        """
        self.waker.settle()
        uid = entry.uid
        flying = self.places.in_flight.get(uid)
        name = f"pod {entry.pod.namespace}/{entry.pod.name} ({uid})"
        if flying is None:
            if (place := self.places.where(uid)) is not None:
                raise QueueError(f"{name} waits already: {place}")
        elif flying.entry is not entry:
            raise QueueError(f"{name} is in flight on another attempt")
        else:
            entry.pod = flying.newest
        if (flying is not None and flying.deleted) or not self._is_pending(uid):
            self.nominator.delete(uid)
            self.places.in_flight.done(uid)
            return False
        return True

    def _update_known(self, pod: PodInfo) -> None:
        """Apply the new version of a pod that waits or is in flight."""
        self.waker.catch_up(pod.uid)
        places, uid = self.places, pod.uid
        flying = places.in_flight.get(uid)
        if flying is not None:
            old = flying.newest
            for event in pod_change_events(pod, old):
                places.in_flight.record_own(uid, event, old, pod)
            self.nominator.update(old, pod)
            flying.newest = pod
            flying.deleted = False
            return
        entry = places.entry(uid)
        assert entry is not None, f"{uid} is unknown"
        self.nominator.update(entry.pod, pod)
        if uid in places.unschedulable:
            self.waker.updated(entry, pod)
            return
        moves = pod.priority != entry.pod.priority
        entry.pod = pod
        if moves:
            ready = places.active if uid in places.active else places.backoff
            ready.remove(uid)
            ready.add(entry)
