"""What the queue tells people and metrics: counts, where a pod is, and pages of what waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from ..events.events import ClusterEvent
from ..events.hints import HintMap
from .entry import PodT
from .nominator import Nominator
from .places import Places
from .views import PendingCounts, Place, PodView, WaitingPod, waiting_pod
from .waking import Waker


class QueueInspection(Generic[PodT]):
    """The part of `SchedulingQueue` that only reads."""

    _places: Places[PodT]
    _hint_maps: Mapping[str, HintMap]
    _waker: Waker[PodT]
    nominator: Nominator[PodT]

    def pending(self) -> PendingCounts:
        self._waker.settle()
        return self._places.pending()

    def where(self, uid: str) -> Place | None:
        """Where `uid` is; None when it does not wait."""
        self._waker.settle()
        return self._places.where(uid)

    def find(self, uid: str) -> WaitingPod | None:
        """One pod that waits or is in flight; None when it does neither."""
        self._waker.settle()
        entry = self._places.entry(uid)
        return None if entry is None else waiting_pod(entry, self._hint_maps[entry.pod.scheduler_name])

    def dump(self, limit: int = 100) -> dict[Place, list[PodView]]:
        """The first `limit` pods of each place, active and backoff in their order; `pending` counts them all."""
        return {place: self.page(place, limit) for place in Place}

    def page(self, place: Place, limit: int, *, namespace: str | None = None) -> list[PodView]:
        """The first `limit` pods of one place, of one namespace if that is named. Costs a look at each pod there."""
        self._waker.settle()
        return self._places.page(place, limit, namespace)

    def kept_in_flight(self) -> Mapping[str, int]:
        """How many events are kept for pods in flight, by label."""
        return self._places.in_flight.counts()

    def in_flight_timeline(self) -> list[str | ClusterEvent]:
        """The UIDs in flight and the events kept for them, interleaved as they came."""
        return self._places.in_flight.timeline()

    def check_invariants(self) -> None:
        """Raise AssertionError where the queue contradicts itself. For tests and for a debug switch: O(n)."""
        self._places.check_invariants()
        self._waker.check_invariants()
        self.nominator.check_invariants()
