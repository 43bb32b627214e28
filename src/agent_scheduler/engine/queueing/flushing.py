"""What time does to waiting pods: backoff ends, and who no event woke for long is tried again.

Of many whose time has come at once, each call moves some; `next_deadline` then says that there are more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from ..events import events as ev
from .entry import PodT
from .places import Places
from .requeue import AFTER_BACKOFF
from .views import ACTIVE, BACKOFF
from .waking import Waker

#: So many pods are moved at a time: some four milliseconds.
_AT_A_TIME = 500


class QueueFlushing(Generic[PodT]):
    """The part of `SchedulingQueue` that follows the clock."""

    _clock: Callable[[], float]
    _on_ready: Callable[[], None]
    _places: Places[PodT]
    _waker: Waker[PodT]

    def flush_backoff(self) -> int:
        """Move pods whose backoff has ended to activeQ; returns how many."""
        self._waker.settle()
        now = self._clock()
        expired = self._places.backoff.pop_expired(now, _AT_A_TIME)
        for entry in expired:
            self._places.to_active(entry, label=ev.BACKOFF_COMPLETE, now=now)
        if expired:
            self._on_ready()
        return len(expired)

    def flush_unschedulable_leftovers(self) -> int:
        """Retry pods that no event woke for `max_in_unschedulable`; returns how many left the pool.

        A pod that is still gated stays and is looked at again after as long. Pods in flight are not told of others.
        """
        self._waker.settle()
        places = self._places
        now = self._clock()
        label = ev.UNSCHEDULABLE_TIMEOUT.label
        moved = 0
        ready = False
        for entry in places.pool.stale(now, _AT_A_TIME):
            entry.flush_timestamp = now
            place = places.requeue(entry, AFTER_BACKOFF, label=label, now=now)
            ready = ready or places.poppable(entry, place)
            # The flag finds events that hints missed; the one that lifts a gate later will not have been missed.
            entry.was_flushed = place in (ACTIVE, BACKOFF)
            moved += entry.was_flushed
        if ready:
            self._on_ready()
        return moved

    def next_deadline(self) -> float | None:
        """The instant of the clock at which a flush or `go_on` has something to do; None when neither will."""
        deadline = self._places.next_deadline()
        return self._clock() if self._waker.backlog else deadline
