"""The last attempts on each pod, for users who ask why it waits or where it was bound.

Only pods that failed at least once are recorded, so a pod that is bound at its first attempt costs one lookup in a
dict. The last few attempts of a pod are kept until a while after the pod has left the queue, or until it is deleted.

Invariant: every recorded pod either waits or is in the list of those that are removed at a known time.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

#: The number of attempts that are kept per pod.
KEPT = 5
#: The number of messages that attempts share; one more clears the cache.
_SHARED = 1024
#: Seconds for which the attempts on a pod that has a node remain readable.
LINGERS = 60.0


class PastAttempt(Struct, frozen=True, gc=False):
    """One attempt. `result` is `scheduled`, `unschedulable`, `error` or `conflict` (others took the nodes first)."""

    #: When it began, on the clock, and its duration.
    began: float
    seconds: float
    result: str
    #: The node of a scheduled pod, otherwise the reason.
    message: str
    #: What the pod waits for since then, one of `verdicts.LABELS`; empty after an error.
    waits_for: str = ""


class History:
    """Owner of past attempts, by UID."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: dict[str, tuple[PastAttempt, ...]] = {}
        #: UID -> when its attempts are removed; in the order of these times.
        self._leaving: dict[str, float] = {}
        #: The first copy of each message. Not `sys.intern`, which keeps strings for good.
        self._said: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def failed(self, uid: str, result: str, message: str, *, started: float, waits_for: str = "") -> None:
        """Record a failed attempt; the pod waits for the next."""
        self._leaving.pop(uid, None)
        self._add(uid, result, message, started, waits_for)

    def outraced(self, uid: str, *, started: float) -> None:
        """Record that other pods took the candidate nodes, so that the pod is decided again."""
        self.failed(uid, "conflict", "other pods took its candidate nodes", started=started)

    def scheduled(self, uid: str, node_name: str, *, started: float) -> None:
        """Record that the pod was bound; no-op if that was its first attempt."""
        if uid in self._attempts:
            self._add(uid, "scheduled", node_name, started)

    def _add(self, uid: str, result: str, message: str, started: float, waits_for: str = "") -> None:
        # Pods of one workload are refused with the same message, attempt after attempt.
        if len(self._said) >= _SHARED:
            self._said.clear()
        message = self._said.setdefault(message, message)
        attempt = PastAttempt(started, self._clock() - started, result, message, waits_for)
        self._attempts[uid] = (*self._attempts.get(uid, ())[1 - KEPT :], attempt)

    def leaves(self, uid: str, *, gone: bool) -> None:
        """Record that the pod no longer waits: it has a node or another scheduler, or is `gone`."""
        if uid not in self._attempts:
            return
        if gone:
            self._forget(uid)
        else:
            self._leaving.pop(uid, None)
            self._leaving[uid] = self._clock() + LINGERS

    def expire(self) -> None:
        """Remove the attempts on pods that left long ago."""
        now = self._clock()
        while self._leaving:
            uid = next(iter(self._leaving))
            if self._leaving[uid] > now:
                break
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._leaving.pop(uid, None)
        del self._attempts[uid]

    def of(self, uid: str) -> tuple[PastAttempt, ...]:
        """Return the attempts, oldest first; empty if the pod never failed, or left long ago."""
        self.expire()
        return self._attempts.get(uid, ())
