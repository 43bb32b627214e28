"""backoffQ: pods that may be tried again, but not yet.

Two queues, as in kube-scheduler: pods that plugins refused, which may leave early when nothing else is ready
(KEP-5142), and pods whose attempt failed with an error, which never do, so that a failing API server is not
hammered. The penalty is min(initial * 2^(n-1), maximum) for the n-th refusal, or the n-th error in a row.

Where early leaving is on, penalties end on whole ordering windows and pods of one window leave by priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView
from math import floor
from typing import Generic

from msgspec import Struct

from .entry import PodT, QueuedPodInfo
from .heap import EntryHeap


class QueueSettings(Struct, frozen=True, kw_only=True):
    """Seconds, but for `max_urgent_retries`. Raises ValueError for a setting that makes no sense."""

    initial_backoff: float = 1.0
    #: 0 disables backoff.
    max_backoff: float = 10.0
    #: Granularity of expirations while `pop_from_backoff` is on.
    backoff_window: float = 1.0
    pop_from_backoff: bool = True
    #: After so long a pod is retried though no event woke it.
    max_in_unschedulable: float = 300.0
    #: See `SchedulingQueue.requeue_urgent`.
    max_urgent_retries: int = 5

    def __post_init__(self) -> None:
        for name in ("initial_backoff", "backoff_window", "max_in_unschedulable"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be above 0 seconds")
        if self.max_backoff != 0 and self.max_backoff < self.initial_backoff:
            least = f"at least initial_backoff, {self.initial_backoff}"
            raise ValueError(f"max_backoff is {self.max_backoff}: it must be 0 (no backoff) or {least}")
        if self.max_urgent_retries < 0:
            raise ValueError(f"max_urgent_retries is {self.max_urgent_retries}: it must not be negative")


class BackoffQueue(Generic[PodT]):
    """Owner of every pod that waits only for time to pass.

    Invariant: an entry here has its `backoff_expiration` set and was let in by all PreEnqueue plugins, so it
    may go to activeQ without asking them again.
    """

    __slots__ = ("_errors", "_refused", "settings")

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._refused: EntryHeap[PodT] = EntryHeap()
        self._errors: EntryHeap[PodT] = EntryHeap()

    def __len__(self) -> int:
        return len(self._refused) + len(self._errors)

    def __contains__(self, uid: object) -> bool:
        return uid in self._refused or uid in self._errors

    def __iter__(self) -> Iterator[QueuedPodInfo[PodT]]:
        yield from self._refused
        yield from self._errors

    def uids(self) -> tuple[KeysView[str], KeysView[str]]:
        """The UIDs that are here, refused and after an error, as views that stay current."""
        return self._refused.uids(), self._errors.uids()

    def get(self, uid: str) -> QueuedPodInfo[PodT] | None:
        return self._refused.get(uid) or self._errors.get(uid)

    def duration(self, entry: QueuedPodInfo[PodT]) -> float:
        """The penalty of `entry` in seconds, before alignment to a window; 0 for a pod that never failed."""
        failures = entry.consecutive_errors_count or entry.unschedulable_count
        maximum = self.settings.max_backoff
        if failures == 0 or maximum == 0:
            return 0.0
        # The exponent is bounded so that a pod that failed for days does not overflow a float.
        return min(self.settings.initial_backoff * 2.0 ** min(failures - 1, 64), maximum)

    def is_backing_off(self, entry: QueuedPodInfo[PodT], now: float) -> bool:
        """Whether `entry` has to wait at `now`. Sets its expiration on the first question after a failure."""
        if entry.backoff_expiration == 0.0:
            duration = self.duration(entry)
            if duration == 0.0:
                return False
            entry.backoff_expiration = self._expiration(entry.timestamp + duration)
        return entry.backoff_expiration > now

    def _expiration(self, ends: float) -> float:
        """`ends`, or the end of the window that holds it: in kube-scheduler a pod waits its last window out."""
        if not self.settings.pop_from_backoff:
            return ends
        window = self.settings.backoff_window
        return (floor(ends / window) + 1) * window

    def may_leave_early(self, entry: QueuedPodInfo[PodT]) -> bool:
        """Whether `entry`, which waits here, can be popped before its time."""
        return self.settings.pop_from_backoff and bool(entry.rejectors)

    def push(self, entry: QueuedPodInfo[PodT]) -> None:
        """`entry` waits from now on; nobody having refused it, it waits among the errors."""
        heap = self._refused if entry.rejectors else self._errors
        heap.push(entry, (entry.backoff_expiration, -entry.pod.priority, entry.timestamp))

    def pop_early(self) -> QueuedPodInfo[PodT] | None:
        """The refused pod whose penalty ends first, though it has not ended; None when none may leave early."""
        return self._refused.pop() if self.settings.pop_from_backoff else None

    def pop_expired(self, now: float, limit: int) -> list[QueuedPodInfo[PodT]]:
        """Up to `limit` pods whose penalty has ended, soonest first in each of the two queues."""
        expired: list[QueuedPodInfo[PodT]] = []
        for heap in (self._refused, self._errors):
            while len(expired) < limit and (first := heap.first_key()) is not None and first <= now:
                entry = heap.pop()
                assert entry is not None
                expired.append(entry)
        return expired

    def next_expiration(self) -> float | None:
        """When the next penalty ends, or None when nobody waits."""
        firsts = [first for heap in (self._refused, self._errors) if (first := heap.first_key()) is not None]
        return min(firsts, default=None)

    def remove(self, uid: str) -> QueuedPodInfo[PodT] | None:
        return self._refused.remove(uid) or self._errors.remove(uid)

    def update(self, entry: QueuedPodInfo[PodT], pod: PodT) -> None:
        """`pod` is what `entry`, which waits here, has become. Its expiration stays."""
        moved = pod.priority != entry.pod.priority
        entry.pod = pod
        if moved:
            self.remove(entry.uid)
            self.push(entry)

    def first(self, count: int, select: Callable[[QueuedPodInfo[PodT]], bool]) -> list[QueuedPodInfo[PodT]]:
        """As `EntryHeap.first`: refused pods in their order, then those that wait after an error."""
        refused = self._refused.first(count, select)
        return refused + self._errors.first(count - len(refused), select)
