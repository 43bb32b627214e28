"""What the last attempts on each pod did, for people who ask why it waits or where it went.

Only pods that failed at least once are in here, so a pod that is bound at its first attempt costs a look into a dict.
Of each the last few attempts are kept, until a while after the pod has left the queue, or until it is deleted.

Invariant: every pod in here waits, or is among those that leave at a known time.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

#: Attempts kept of a pod.
KEPT = 5
#: Messages of which the attempts share one copy; with one more they begin anew.
_SHARED = 1024
#: Seconds for which the attempts on a pod that has a node can still be read.
LINGERS = 60.0


class PastAttempt(Struct, frozen=True, gc=False):
    """One attempt. `result` is `scheduled`, `unschedulable`, `error` or `conflict` (others took the nodes first)."""

    #: The clock when it began, and what it took.
    began: float
    seconds: float
    result: str
    #: The node of a pod that was scheduled, and otherwise why it was not.
    message: str
    #: What the pod has waited for since, one of `verdicts.LABELS`; empty after an error.
    waits_for: str = ""


class History:
    """Owner of past attempts, by UID."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: dict[str, tuple[PastAttempt, ...]] = {}
        #: UID -> when it goes; in the order of these times.
        self._leaving: dict[str, float] = {}
        #: Each message as it was first said. Not `sys.intern`: what that has seen stays for good.
        self._said: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def failed(self, uid: str, result: str, message: str, *, started: float, waits_for: str = "") -> None:
        """An attempt came to nothing, and the pod waits for the next."""
        self._leaving.pop(uid, None)
        self._add(uid, result, message, started, waits_for)

    def outraced(self, uid: str, *, started: float) -> None:
        """Other pods took the nodes that it was decided for, and it is decided anew."""
        self.failed(uid, "conflict", "other pods took its candidate nodes", started=started)

    def scheduled(self, uid: str, node_name: str, *, started: float) -> None:
        """The pod was bound; of no interest if that was its first attempt."""
        if uid in self._attempts:
            self._add(uid, "scheduled", node_name, started)

    def _add(self, uid: str, result: str, message: str, started: float, waits_for: str = "") -> None:
        # Pods of one workload are refused with the same words, attempt after attempt.
        if len(self._said) >= _SHARED:
            self._said.clear()
        message = self._said.setdefault(message, message)
        attempt = PastAttempt(started, self._clock() - started, result, message, waits_for)
        self._attempts[uid] = (*self._attempts.get(uid, ())[1 - KEPT :], attempt)

    def leaves(self, uid: str, *, gone: bool) -> None:
        """The pod no longer waits: it has a node or another scheduler, or is `gone`."""
        if uid not in self._attempts:
            return
        if gone:
            self._forget(uid)
        else:
            self._leaving.pop(uid, None)
            self._leaving[uid] = self._clock() + LINGERS

    def expire(self) -> None:
        """Forget whoever left long ago."""
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
        """Oldest first; none where the pod never failed, or left long ago."""
        self.expire()
        return self._attempts.get(uid, ())
