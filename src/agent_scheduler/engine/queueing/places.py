"""The places in which a pod can be, and the moves between them.

Every move is made here, so the rules for all moves are in one file: PreEnqueue is asked before a pod becomes ready,
each transition is reported once, the unschedulable_pods gauge follows the pod, and `on_deadline` is called when the
next flush becomes due earlier.

A gated pod is checked again after the events that its gating plugin registered. A plugin whose admission follows no
event declares `activates = True` and calls `SchedulingQueue.activate` for the pods that it admits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from ..events.events import BACKOFF_COMPLETE, POP_FROM_BACKOFF, UNSCHEDULABLE_TIMEOUT
from ..events.hints import HintMap
from ..events.signals import Signal
from ..framework.plugin import PreEnqueue
from .entry import QueuedPodInfo
from .record import PRE_HINT, QueueRecorder
from .requeue import AFTER_BACKOFF, SKIP, Strategy
from .subqueues import ActiveQueue, BackoffQueue, InFlight, QueueSettings
from .unschedulable import UnschedulablePods


class Place(StrEnum):
    """The place in which a pod waits; the label of pending_pods."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


#: The members as globals, for frequent lookups (see `requeue`).
ACTIVE: Final = Place.ACTIVE
BACKOFF: Final = Place.BACKOFF
UNSCHEDULABLE: Final = Place.UNSCHEDULABLE
GATED: Final = Place.GATED


class PendingCounts(NamedTuple):
    """Pods by place. `unschedulable` excludes gated pods."""

    active: int
    backoff: int
    unschedulable: int
    gated: int
    in_flight: int


#: Pods that a flush moves at a time: about four milliseconds.
_AT_A_TIME = 500
#: Retries in vain after which pods that have not been tried yet take turns with retries.
_RETRIES = 8
#: More urgent than any pod.
_FIRST: Final = 1 << 30


class PreEnqueuePlugins:
    """The PreEnqueue plugins of each profile. Immutable."""

    def __init__(
        self,
        *,
        hint_maps: Mapping[str, HintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueue]],
        recorder: QueueRecorder,
    ) -> None:
        unknown = sorted(pre_enqueue.keys() - hint_maps.keys())
        if unknown:
            raise ValueError(f"pre_enqueue names profiles {unknown}: known profiles are {sorted(hint_maps)}")
        # profile -> for each plugin its name, the UIDs that it gates, the test whether it concerns a pod (None:
        # always), its `pre_enqueue`, and the events after which to ask it again.
        gates = {
            profile: tuple(
                (
                    plugin.name,
                    getattr(plugin, "gated", None),
                    getattr(plugin, "concerns", None),
                    plugin.pre_enqueue,
                    () if getattr(plugin, "activates", False) else hint_maps[profile].events_of(plugin.name),
                )
                for plugin in plugins
            )
            for profile, plugins in pre_enqueue.items()
            if plugins
        }
        #: (profile, plugin) -> these, with this plugin first; an empty name stands for none.
        self._gates = {
            (profile, first): tuple(sorted(of_profile, key=lambda gate: gate[0] != first))
            for profile, of_profile in gates.items()
            for first in ("", *(gate[0] for gate in of_profile))
        }
        self._recorder = recorder

    def run(self, entry: QueuedPodInfo) -> bool:
        """Ask every plugin until one refuses; `entry` then names it as its gate, or is no longer gated.

        The plugin that gated the pod before is asked first because it most likely still does.
        """
        pod = entry.pod
        profile = pod.scheduler_name
        previous = entry.gating_plugin
        gates = self._gates.get((profile, previous))
        if gates is None:
            # The settings no longer have the plugin.
            gates = self._gates.get((profile, ""), ())
        for name, gated, concerns, pre_enqueue, events in gates:
            if gated is not None and pod.uid not in gated:
                continue
            try:
                if concerns is not None and not concerns(pod):
                    continue
                message = pre_enqueue(pod)
            except Exception as error:
                # A pod whose gate raises waits behind it: events and the leftover flush ask again.
                message = f"{type(error).__name__}: {error}"
                self._recorder.plugin_raised(name, "PreEnqueue", error)
            if message is not None:
                entry.gate(name, events=events, message=message)
                return False
        if previous:
            entry.ungate()
        return True


class Places:
    """Owns all pods that wait or are in flight. Invariant: a UID is in exactly one of the four places."""

    def __init__(
        self,
        *,
        hint_maps: Mapping[str, HintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueue]],
        settings: QueueSettings,
        recorder: QueueRecorder,
        on_deadline: Callable[[], None],
    ) -> None:
        """Create empty places; arguments as for `SchedulingQueue`. Raises ValueError."""
        self._pre_enqueue = PreEnqueuePlugins(hint_maps=hint_maps, pre_enqueue=pre_enqueue, recorder=recorder)
        self._recorder = recorder
        self._pre_hints = settings.pre_queueing_hints
        self.settings = settings
        self._on_deadline = on_deadline
        self.active = ActiveQueue()
        #: The number of refused retries since a retried pod was bound.
        self.retries_in_vain = 0
        #: Whether the last popped pod had been tried before.
        self._after_retry = False
        self.backoff = BackoffQueue(settings)
        self.unschedulable = UnschedulablePods(
            hint_maps=hint_maps if self._pre_hints else {},
            raised=lambda plugin, error: recorder.plugin_raised(plugin, PRE_HINT, error),
        )
        self.in_flight = InFlight(max_events=settings.max_inflight_events, forgotten=recorder.events_forgotten)
        # Checked for every pod event of the watch, so the dicts are read without the classes around them.
        self._uids = (
            self.in_flight.uids(),
            self.active.uids(),
            *self.backoff.uids(),
            self.unschedulable.entries.keys(),
        )
        self._refused = self.unschedulable.entries.keys()
        #: A pod, as UID, is about to enter the pool.
        self.before_unschedulable: Signal[[str]] = Signal()
        #: The deadline that the caller knows from `next_deadline` or `on_deadline`.
        self._known_deadline = inf

    def reconfigure(
        self,
        *,
        hint_maps: Mapping[str, HintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueue]],
        settings: QueueSettings,
        label: str,
    ) -> None:
        """Replace the rules.

        Ready pods are checked by the new gates; the caller moves those in the pool. Raises ValueError and changes
        nothing then.
        """
        plugins = PreEnqueuePlugins(hint_maps=hint_maps, pre_enqueue=pre_enqueue, recorder=self._recorder)
        self._pre_enqueue = plugins
        self.settings = settings
        self.backoff.settings = settings
        self.unschedulable.reconfigure(hint_maps if self._pre_hints else {})
        for ready in (self.active, self.backoff):
            for entry in list(ready):
                if not plugins.run(entry):
                    ready.remove(entry.uid)
                    self._to_unschedulable(entry, label=label)

    # -- moves ---------------------------------------------------------------------------------------------

    def pop(self) -> QueuedPodInfo | None:
        """Return the best active pod, or else one that may leave its backoff early. It is then in flight.

        Many pods can be woken at once, again and again. So after some retries in vain, pods of the same priority that
        have not been tried yet take turns with them.
        """
        entry = None
        if self._after_retry and self.retries_in_vain >= _RETRIES:
            entry = self.active.pop_untried()
        if entry is None:
            entry = self.active.pop()
        if entry is None:
            entry = self.backoff.pop_early()
            if entry is None:
                return None
            self._recorder.incoming(ACTIVE, POP_FROM_BACKOFF, entry)
        self._after_retry = entry.attempts > 0
        entry.attempts += 1
        entry.backoff_expiration = 0.0
        if entry.counted:
            self._count(entry, ())
        self.in_flight.start(entry)
        return entry

    def take(self, uid: str) -> QueuedPodInfo | None:
        """Pop a certain pod as `SchedulingQueue.take`."""
        entry = self.active.remove(uid) or self.backoff.remove(uid)
        if entry is None:
            entry = self.unschedulable.entries.get(uid)
            if entry is None:
                return None
            if entry.gated and not self._pre_enqueue.run(entry):
                # A gate other than the recorded one may hold it now.
                self._to_unschedulable(entry, label=POP_FROM_BACKOFF)
                return None
            self.unschedulable.remove(uid)
        if entry.initial_attempt_timestamp is None:
            entry.initial_attempt_timestamp = entry.timestamp
        # Ensures that `pop` returns it.
        entry.urgent += _FIRST
        self.active.add(entry)
        entry.urgent -= _FIRST
        return self.pop()

    def remove(self, uid: str) -> None:
        """Remove `uid` from the place where it waits; a pod in flight stays. An unknown UID is ignored."""
        entry = self.active.remove(uid) or self.backoff.remove(uid) or self.unschedulable.remove(uid)
        if entry is not None:
            self._count(entry, ())

    def requeue(self, entry: QueuedPodInfo, strategy: Strategy, *, label: str, now: float) -> Place:
        """Move `entry`, which is in the pool or in no place, as `strategy` requires. Return its new place.

        A pod that PreEnqueue refuses stays in the pool or goes there, whatever the strategy.
        """
        if strategy is SKIP or not self._pre_enqueue.run(entry):
            self._to_unschedulable(entry, label=label)
            return GATED if entry.gating_plugin else UNSCHEDULABLE
        if entry.uid in self._refused:
            self.unschedulable.remove(entry.uid)
        if strategy is AFTER_BACKOFF and self.backoff.is_backing_off(entry, now):
            self._to_backoff(entry, label=label)
            return BACKOFF
        self.to_active(entry, label=label, now=now)
        return ACTIVE

    def poppable(self, entry: QueuedPodInfo, place: Place) -> bool:
        """Return whether `entry`, which is in `place`, could be popped now."""
        return place is ACTIVE or (place is BACKOFF and self.backoff.may_leave_early(entry))

    def to_active(self, entry: QueuedPodInfo, *, label: str, now: float) -> None:
        """Make `entry` active; it is in no place, and PreEnqueue has admitted it."""
        if entry.initial_attempt_timestamp is None:
            entry.initial_attempt_timestamp = now
        self.active.add(entry)
        if entry.counted != entry.rejectors:
            self._count(entry, entry.rejectors)
        self._recorder.incoming(ACTIVE, label, entry)

    def _to_unschedulable(self, entry: QueuedPodInfo, *, label: str) -> None:
        if entry.uid not in self._refused:
            self.before_unschedulable(entry.uid)
            self._recorder.incoming(UNSCHEDULABLE, label, entry)
        stale_at = max(entry.timestamp, entry.flush_timestamp) + self.settings.max_in_unschedulable
        self.unschedulable.put(entry, stale_at=stale_at)
        self._count(entry, entry.rejectors)
        self._tell_deadline(stale_at)

    def _to_backoff(self, entry: QueuedPodInfo, *, label: str) -> None:
        self.backoff.add(entry)
        self._count(entry, entry.rejectors)
        self._recorder.incoming(BACKOFF, label, entry)
        self._tell_deadline(entry.backoff_expiration)

    def _count(self, entry: QueuedPodInfo, plugins: tuple[str, ...]) -> None:
        """Make the unschedulable_pods gauge count `entry` under `plugins` only."""
        counted = entry.counted
        if counted == plugins:
            return
        profile = entry.pod.scheduler_name
        for plugin in counted:
            if plugin not in plugins:
                self._recorder.unschedulable(plugin, profile, -1)
        for plugin in plugins:
            if plugin not in counted:
                self._recorder.unschedulable(plugin, profile, 1)
        entry.counted = plugins

    # -- time ----------------------------------------------------------------------------------------------

    def flush_backoff(self, now: float) -> int:
        """Move expired pods as `SchedulingQueue.flush_backoff`."""
        expired = self.backoff.pop_expired(now, _AT_A_TIME)
        for entry in expired:
            self.to_active(entry, label=BACKOFF_COMPLETE, now=now)
        return len(expired)

    def flush_unschedulable(self, now: float) -> tuple[int, bool]:
        """Flush as `SchedulingQueue.flush_unschedulable_leftovers`.

        Return also whether more pods can be popped now.
        """
        moved, ready = 0, False
        for entry in self.unschedulable.stale(now, _AT_A_TIME):
            entry.flush_timestamp = now
            place = self.requeue(entry, AFTER_BACKOFF, label=UNSCHEDULABLE_TIMEOUT.label, now=now)
            ready = ready or self.poppable(entry, place)
            # The flag marks pods whose event the hints missed. A pod that stays gated is admitted later by an event.
            entry.was_flushed = place in (ACTIVE, BACKOFF)
            moved += entry.was_flushed
        return moved, ready

    def next_deadline(self) -> float | None:
        """Return the instant at which a pod's backoff ends or its time in the pool expires, or None."""
        deadlines = (self.backoff.next_expiration(), self.unschedulable.next_stale())
        soonest = min((deadline for deadline in deadlines if deadline is not None), default=None)
        self._known_deadline = inf if soonest is None else soonest
        return soonest

    def _tell_deadline(self, deadline: float) -> None:
        if deadline < self._known_deadline:
            self._known_deadline = deadline
            self._on_deadline()

    # -- views ---------------------------------------------------------------------------------------------

    def pending(self) -> PendingCounts:
        gated = self.unschedulable.gated
        return PendingCounts(
            active=len(self.active),
            backoff=len(self.backoff),
            unschedulable=len(self.unschedulable) - gated,
            gated=gated,
            in_flight=len(self.in_flight),
        )

    def knows(self, uid: str) -> bool:
        """Return whether `uid` waits or is in flight."""
        in_flight, active, refused, errors, pool = self._uids
        return uid in in_flight or uid in active or uid in refused or uid in errors or uid in pool

    def where(self, uid: str) -> Place | None:
        """Return the place of `uid`; None if it is unknown."""
        if uid in self.in_flight:
            return Place.IN_FLIGHT
        if uid in self.active:
            return Place.ACTIVE
        if uid in self.backoff:
            return Place.BACKOFF
        entry = self.unschedulable.entries.get(uid)
        if entry is None:
            return None
        return Place.GATED if entry.gated else Place.UNSCHEDULABLE

    def entry(self, uid: str) -> QueuedPodInfo | None:
        """Return the entry of `uid`, waiting or in flight."""
        flying = self.in_flight.get(uid)
        if flying is not None:
            return flying.entry
        return self.active.get(uid) or self.backoff.get(uid) or self.unschedulable.entries.get(uid)

    def check_invariants(self) -> None:
        """Raise AssertionError if the places contradict one another or themselves; O(n)."""
        seen: dict[str, str] = {}
        waiting = (("active", self.active), ("backoff", self.backoff), ("pool", self.unschedulable))
        for name, entries in waiting:
            for entry in entries:
                assert seen.setdefault(entry.uid, name) == name, f"{entry.uid} is in {seen[entry.uid]} and {name}"
                assert entry.uid == entry.pod.uid, f"{entry.uid} carries the pod {entry.pod.uid}"
                assert entry.counted == entry.rejectors, f"{entry.uid} is miscounted in unschedulable_pods"
                assert name == "pool" or not entry.gated, f"{entry.uid} is gated in {name}"
        for flying in self.in_flight:
            assert flying.entry.uid not in seen, f"{flying.entry.uid} is in {seen[flying.entry.uid]} and in flight"
            assert not flying.entry.counted, f"{flying.entry.uid} is in flight and still counted as refused"
        for entry in self.backoff:
            assert entry.backoff_expiration > 0.0, f"{entry.uid} is in backoff without an expiration"
        self.unschedulable.check_invariants()
        self.in_flight.check_invariants()
