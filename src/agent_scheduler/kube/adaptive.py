"""How many requests are worth having under way, told by the server itself: by how long it takes, and by its 429s.

After TCP Vegas (Brakmo and Peterson, 1995), which Netflix' concurrency-limits has shown to work for requests, too. The
shortest answers say how long the server needs when nobody waits; by how much more the others take, it is told how many
of those under way merely wait in it. More of them are sent while hardly any wait, fewer when many do: what waits in the
server gains nothing, and keeps everybody's next request waiting. Since a server that is always kept busy never shows
its shortest time, and may become slower, few are sent for a moment now and then to see it (as BBR does, Cardwell et
al. 2016).
"""

from __future__ import annotations

from typing import Final

#: So many may wait in the server before fewer are sent; with less than the first, more are.
_FEW: Final = 8.0
_MANY: Final = 16.0
#: What is left of the limit after a refusal.
_AFTER_REFUSAL: Final = 0.7
#: Rounds after which the shortest time is found out anew.
_BELIEVED: Final = 100
#: Answers that a round has at least.
_ROUND: Final = 16


class AdaptiveConcurrency:
    """`now` may be under way, between `least` and `most`. Times are in seconds. Raises ValueError for bad bounds."""

    def __init__(self, most: int, *, least: int = 8) -> None:
        if least < 1 or most < 1:
            raise ValueError(f"at least {least} and at most {most} requests: both must be 1 or more")
        self._most = most
        self._least = min(least, most)
        self._limit = float(min(most, 4 * self._least))
        #: How long an answer takes that nobody keeps waiting; 0 while none is known.
        self._shortest = 0.0
        # Of the round under way: a limit is judged by answers to requests that were sent under it.
        self._answers = 0
        self._total = 0.0
        self._best = 0.0
        self._full = False
        self._refused = False
        #: Rounds since the shortest time was found out, and whether that is done in this one.
        self._age = 0
        self._probing = False
        self.now = int(self._limit)

    def answered(self, seconds: float, *, under_way: int) -> None:
        """A request took so long, with so many under way. Changes `now` once a round."""
        self._answers += 1
        self._total += seconds
        if seconds < self._best or not self._best:
            self._best = seconds
        if under_way >= self.now:
            self._full = True
        if self._answers >= _ROUND and self._answers >= self.now:
            self._end_round()

    def refused(self) -> None:
        """The server has said that these are too many (429, or 503 with a time to wait)."""
        if not self._refused:
            self._refused = True
            self._set(self._limit * _AFTER_REFUSAL)

    def _end_round(self) -> None:
        mean = self._total / self._answers
        if self._probing or not self._shortest:
            self._shortest, self._age = self._best, 0
        else:
            self._shortest = min(self._shortest, self._best)
            self._age += 1
            self._judge(self._limit * (1 - self._shortest / mean) if mean > 0 else 0.0)
        self._answers, self._total, self._best = 0, 0.0, 0.0
        self._full = self._refused = False
        # Two rounds: the first still has answers to what was sent before.
        self._probing = self._age > _BELIEVED
        self.now = self._least if self._age >= _BELIEVED else int(self._limit)

    def _judge(self, waiting: float) -> None:
        if self._refused or self._age > _BELIEVED:
            return
        if waiting > _MANY:
            self._set(self._limit - max(1.0, self._limit / 16))
        elif waiting < _FEW and self._full:
            # What was never used up says nothing about more.
            self._set(self._limit + max(1.0, self._limit / 16))

    def _set(self, limit: float) -> None:
        self._limit = min(float(self._most), max(float(self._least), limit))
        self.now = int(self._limit)
