"""Adapts the number of concurrent requests to the server, by its response times and its 429s.

Follows TCP Vegas (Brakmo and Peterson, 1995), which Netflix' concurrency-limits applies to requests. The shortest
response time is that of a server without a queue. The mean of the others above it shows how many concurrent requests
merely wait in the server. The limit is raised while few wait and lowered when many do, because waiting there gains
nothing and delays the next request. A server that is always busy never shows its shortest time, and may become
slower, so the limit is lowered briefly at intervals to measure it (as in BBR, Cardwell et al. 2016).
"""

from __future__ import annotations

from typing import Final

#: The limit is raised below the first number of waiting requests, and lowered above the second.
_FEW: Final = 8.0
_MANY: Final = 16.0
#: The factor of the limit after a 429.
_AFTER_REFUSAL: Final = 0.7
#: Rounds until the shortest time is measured again.
_BELIEVED: Final = 100
#: The minimum of responses in a round.
_ROUND: Final = 16


class AdaptiveConcurrency:
    """A concurrency limit `now`, between `least` and `most`. Times are in seconds.

    Raises ValueError for invalid bounds.
    """

    def __init__(self, most: int, *, least: int = 8) -> None:
        if least < 1 or most < 1:
            raise ValueError(f"at least {least} and at most {most} requests: both must be 1 or more")
        self._most = most
        self._least = min(least, most)
        self._limit = float(min(most, 4 * self._least))
        #: The response time without queueing; 0 until the first round has ended.
        self._shortest = 0.0
        # The current round. A limit is judged by responses to requests that were sent under it.
        self._answers = 0
        self._total = 0.0
        self._best = 0.0
        self._full = False
        self._refused = False
        #: Rounds since the shortest time was measured, and whether the current round measures it.
        self._age = 0
        self._probing = False
        self.now = int(self._limit)

    def answered(self, seconds: float, *, under_way: int) -> None:
        """Record a response time, with the number of concurrent requests. Changes `now` once per round."""
        self._answers += 1
        self._total += seconds
        if seconds < self._best or not self._best:
            self._best = seconds
        if under_way >= self.now:
            self._full = True
        if self._answers >= _ROUND and self._answers >= self.now:
            self._end_round()

    def refused(self) -> None:
        """Record that the server rejected a request as too many (429, or 503 with Retry-After)."""
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
        # Two rounds, because the first still has responses to earlier requests.
        self._probing = self._age > _BELIEVED
        self.now = self._least if self._age >= _BELIEVED else int(self._limit)

    def _judge(self, waiting: float) -> None:
        if self._refused or self._age > _BELIEVED:
            return
        if waiting > _MANY:
            self._set(self._limit - max(1.0, self._limit / 16))
        elif waiting < _FEW and self._full:
            # A limit that was not reached shows nothing about a higher one.
            self._set(self._limit + max(1.0, self._limit / 16))

    def _set(self, limit: float) -> None:
        self._limit = min(float(self._most), max(float(self._least), limit))
        self.now = int(self._limit)
