"""The scheduling queue, after kube-scheduler's `PriorityQueue`: every pod that waits for a node.

Synchronous and without locks: one thread owns it. It never waits; `pop` answers at once, `on_ready` says when asking
again may help, and `next_deadline` when a flush, or the rest of a portion (`go_on`), is due.

What it guarantees:
- a pod is in exactly one of active, backoff, unschedulable (gated included) and in flight, by UID;
- an event that arrives while a pod is in flight is put to that pod if its attempt fails;
- a pod that was deleted does not come back, and a pod never loses its attempts by being seen again;
- no pod goes ahead of its turn without bound: see `requeue_urgent`.

Whoever owns the loop calls `done`, `add_unschedulable` or `requeue_urgent` for every popped pod, and does not
offer (`add`, `update`) a pod that it has assumed on a node: the queue no longer knows it after `done`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Generic

from ..events import events as ev
from ..events.events import ClusterEvent
from ..events.hints import HintMap
from .entry import PodT, QueuedPodInfo, pod_change_events
from .nominator import Nominator
from .places import ACTIVE, PendingCounts, Place, Places, PreEnqueuePlugin
from .record import NullRecorder, QueueRecorder
from .requeue import IMMEDIATELY
from .subqueues import QueueSettings
from .waking import Waker

_NONE: frozenset[str] = frozenset()


class QueueError(ValueError):
    """The queue was asked for something that its callers must not ask for."""


class SchedulingQueue(Generic[PodT]):
    """Owner of all waiting pods and of the nominations."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        hint_maps: Mapping[str, HintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueuePlugin]] | None = None,
        settings: QueueSettings | None = None,
        max_inflight_events: int = 10_000,
        pre_queueing_hints: bool = True,
        on_ready: Callable[[], None] = lambda: None,
        on_deadline: Callable[[], None] = lambda: None,
        recorder: QueueRecorder | None = None,
        is_pending: Callable[[str], bool] = lambda uid: True,
    ) -> None:
        """One queue for the profiles that `hint_maps` names; `pre_enqueue` is by profile, too.

        `clock` gives seconds and never goes back. `max_inflight_events`: see `InFlight`. `pre_queueing_hints`: whether
        plugins' pre-hints are asked; without them every event is put to all that its plugins refused, which costs more
        and wakes the same. `on_ready` is called once at the end of each call that made a pod poppable, and by `close`;
        `on_deadline` when `next_deadline` has become earlier than it last answered. `is_pending` says of a UID whether
        the pod exists without a node, as the watch last said. Raises ValueError for a profile that is not there.
        """
        self._clock = clock
        self.hint_maps = dict(hint_maps)
        self._on_ready = on_ready
        self._recorder: QueueRecorder = NullRecorder() if recorder is None else recorder
        self._is_pending = is_pending
        self.places: Places[PodT] = Places(
            hint_maps=self.hint_maps,
            pre_enqueue=pre_enqueue or {},
            settings=QueueSettings() if settings is None else settings,
            recorder=self._recorder,
            max_inflight_events=max_inflight_events,
            on_deadline=on_deadline,
            pre_hints=pre_queueing_hints,
        )
        # Asked in every turn of the loop, so it goes past the class straight to its dict.
        self._active = self.places.active.uids()
        self._refused, _errors = self.places.backoff.uids()
        self.waker: Waker[PodT] = Waker(
            places=self.places,
            hint_maps=self.hint_maps,
            clock=clock,
            recorder=self._recorder,
            pre_hints=pre_queueing_hints,
            on_ready=on_ready,
            on_backlog=on_deadline,
        )
        self.nominator: Nominator[PodT] = Nominator(is_pending=is_pending)
        #: Called with a pod for which a node's room is kept no longer, beside waking those of this queue.
        self.given_up: Callable[[PodT], object] = lambda pod: None
        self.closed = False

    def reconfigure(
        self,
        *,
        hint_maps: Mapping[str, HintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueuePlugin]],
        settings: QueueSettings,
    ) -> None:
        """Go on by other rules; arguments as for a new queue. Every pod that was refused is tried again, after its
        backoff, and every gate is asked anew. Attempts in flight go on, and are tried again if they fail.

        The pods of profiles that `hint_maps` no longer names have to be deleted before anything else is asked of the
        queue. Raises ValueError, having changed nothing.
        """
        self.waker.finish()
        maps = dict(hint_maps)
        label = ev.RULES_CHANGED.label
        self.places.reconfigure(hint_maps=maps, pre_enqueue=pre_enqueue, settings=settings, label=label)
        self.hint_maps = maps
        self.waker.reconfigure(maps)
        self.move_all(ev.RULES_CHANGED)

    # -- the watch's side ----------------------------------------------------------------------------------

    def add(self, pod: PodT) -> None:
        """`pod` waits for a node. One that is known already is updated and keeps its place and its history.

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
        """`uid` is gone, or on `node_name`. Unknown is fine. An attempt in flight goes on, but cannot requeue it."""
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

    def nominate(self, pod: PodT, node_name: str, *, in_gate: bool = False) -> None:
        """`pod` is to run on that node from now on; empty: on none. `in_gate`: whom that helps `go_on` wakes."""
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
        pre_check: Callable[[PodT], bool] | None = None,
    ) -> int:
        """`event` made `old` into `new`: wake the refused pods that it can help, and remember it for pods in flight.

        `pre_check` leaves out the pods for which it is False. Where many are concerned, some are left to `go_on`; see
        `waking`. Returns how many pods left the pool at once.
        """
        return self.waker.move_all(event, old, new, pre_check)

    def burst(self) -> AbstractContextManager[None]:
        """Until it ends, events are gathered and then put to the pool one after the other, in one go: `on_ready` is
        called once, and the same change twice asks once. The same pods are woken as without; `move_all` answers 0
        meanwhile. Bursts may be nested."""
        return self.waker

    def go_on(self) -> int:
        """Wake the next of those that earlier events have left to be asked; `next_deadline` says whether there are any.
        Returns how many left the pool."""
        return self.waker.go_on()

    def assigned_pod_updated(self, old: PodT, new: PodT) -> int:
        """A pod that has a node changed, in one or more properties. Returns how many pods left the pool."""
        events = pod_change_events(new, old, assigned=True)
        return sum(self.waker.move_all(event, old, new, None) for event in events)

    # -- the scheduling loop's side ------------------------------------------------------------------------

    def pop(self) -> QueuedPodInfo[PodT] | None:
        """The best pod that may be tried now, in flight from here on; None when there is none or after `close`.

        When nothing is active, a pod may leave its backoff early unless its last attempt ended in an error.
        """
        if self.waker.burst_events:
            self.waker.settle()
        return None if self.closed else self.places.pop()

    @property
    def has_ready(self) -> bool:
        """Whether `pop` has a pod to give, but for what a burst that has not ended will wake."""
        return bool(self._active) or (self.places.settings.pop_from_backoff and bool(self._refused))

    def take(self, uid: str) -> QueuedPodInfo[PodT] | None:
        """`uid`, in flight from here on, whosever turn it is; None if it is gated, in flight or unknown."""
        return self.places.take(uid)

    def done(self, uid: str) -> None:
        """The attempt on `uid` is over, or no longer needs the events that arrive. Twice is fine."""
        self.places.in_flight.done(uid)

    def add_unschedulable(
        self,
        entry: QueuedPodInfo[PodT],
        *,
        unschedulable_plugins: Iterable[str] = _NONE,
        pending_plugins: Iterable[str] = _NONE,
    ) -> Place | None:
        """The attempt on `entry` failed: keep the pod until it is worth another one (AddUnschedulablePodIfNotPresent).

        Without any plugin the attempt counts as an error, and the pod comes back after its backoff. Otherwise the
        events since it was popped decide; after an early `done`, which forgot them, it comes back after its backoff,
        too. Returns where the pod went, None when it no longer waits for a node. Raises QueueError when the pod waits
        already, or is in flight on another attempt.
        """
        if not self._taken_back(entry):
            return None
        refused, pending = frozenset(unschedulable_plugins), frozenset(pending_plugins)
        entry.failed(unschedulable=refused, pending=pending, now=self._clock())
        return self.waker.failed(entry)

    def requeue_urgent(self, entry: QueuedPodInfo[PodT]) -> bool:
        """`entry` lost a race for its nodes: try it again before all others, without backoff.

        Urgent pods are popped before all others whatever their priorities, among themselves by priority and age. To
        keep one that always loses from starving the rest, this is granted `max_urgent_retries` times in a row; then the
        pod backs off as after its first error, and has as many again. The penalty does not grow: losers of many races
        that waited ever longer would leave the last free node to stand idle. Attempts are kept. Returns whether the pod
        is urgent now. Raises as `add_unschedulable`.
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
        # A pod that a gate stopped on the way comes back like any other.
        entry.urgent = int(ready)
        self.places.in_flight.done(entry.uid)
        if ready:
            self._on_ready()
        return ready

    def activate(self, uids: Iterable[str]) -> int:
        """Move these pods to activeQ whatever refused them; PreEnqueue may still hold back those in the pool.

        A pod in flight gets the request when its attempt fails. Unknown and active pods are left alone.
        Returns how many became active.
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

    def scheduled(self, entry: QueuedPodInfo[PodT]) -> None:
        """`entry` is bound: report its attempts, and the seconds since it could first be tried."""
        first = entry.initial_attempt_timestamp
        waited = 0.0 if first is None else self._clock() - first
        self._recorder.scheduled(entry.attempts, waited, entry.was_flushed)

    def close(self) -> None:
        """From now on `pop` gives None; `on_ready` is called, so that whoever waits asks."""
        self.closed = True
        self._on_ready()

    # -- time ----------------------------------------------------------------------------------------------

    def flush_backoff(self) -> int:
        """Move some of the pods whose backoff has ended to activeQ; returns how many."""
        self.waker.settle()
        moved = self.places.flush_backoff(self._clock())
        if moved:
            self._on_ready()
        return moved

    def flush_unschedulable_leftovers(self) -> int:
        """Retry some of the pods that no event woke for `max_in_unschedulable`; returns how many left the pool.

        A pod that is still gated stays and is looked at again after as long. It is no event for pods in flight.
        """
        self.waker.settle()
        moved, ready = self.places.flush_unschedulable(self._clock())
        if ready:
            self._on_ready()
        return moved

    def next_deadline(self) -> float | None:
        """The instant of the clock at which a flush or `go_on` has something to do; None when neither will."""
        deadline = self.places.next_deadline()
        return self._clock() if self.waker.backlog else deadline

    # -- questions -----------------------------------------------------------------------------------------

    def pending(self) -> PendingCounts:
        self.waker.settle()
        return self.places.pending()

    def where(self, uid: str) -> Place | None:
        """Where `uid` is; None when it does not wait."""
        self.waker.settle()
        return self.places.where(uid)

    def kept_in_flight(self) -> Mapping[str, int]:
        """How many events are kept for pods in flight, by label."""
        return self.places.in_flight.counts()

    def check_invariants(self) -> None:
        """Raise AssertionError where the queue contradicts itself. For tests and for a debug switch: O(n)."""
        self.places.check_invariants()
        self.waker.check_invariants()
        self.nominator.check_invariants()

    # -- decisions -----------------------------------------------------------------------------------------

    def _wake_behind(self, pod: PodT, kept: str, *, stays: str = "", later: bool = False) -> None:
        """Room that was kept for `pod`, and is no longer, is for those who had to leave it. `stays`: on that node."""
        if kept and kept != (stays or self.nominator.nominated.get(pod.uid, "")):
            behind = lambda other: other.uid != pod.uid and other.priority <= pod.priority  # noqa: E731
            (self.waker.later if later else self.waker.move_all)(ev.ASSIGNED_POD_DELETE, pod, None, behind)
            self.given_up(pod)

    def _taken_back(self, entry: QueuedPodInfo[PodT]) -> bool:
        """The attempt on `entry` did not place it: give it its newest pod. False, and done, when it is gone."""
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

    def _update_known(self, pod: PodT) -> None:
        """Take in the new version of a pod that waits or is in flight."""
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
