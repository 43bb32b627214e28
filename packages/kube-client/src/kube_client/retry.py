"""The delay before the next attempt, and the end of the attempts.

Delays double up to a cap and are random below it, so that clients that failed together do not return together. The
caller provides clock, sleep and random numbers, so a simulation or a test runs the same code in its own time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from apimachinery.times import time_text

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
Random = Callable[[], float]
Now = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Timing:
    """The source of time and randomness. `clock` is monotonic, in seconds; `rng` returns numbers in [0, 1).

    `now` is the time of day with its offset. It is for display only, since it may jump.
    """

    clock: Clock = time.monotonic
    sleep: Sleep = asyncio.sleep
    rng: Random = random.random
    now: Now = _now

    def text(self, instant: float) -> str:
        """Return an instant of the clock as a time of day."""
        return time_text(self.now() - timedelta(seconds=self.clock() - instant))


REAL = Timing()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays from `initial`, doubling up to `cap` seconds; the share `jitter` of each is random. Raises ValueError."""

    initial: float = 0.1
    cap: float = 10.0
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.initial <= self.cap:
            raise ValueError(f"backoff needs 0 < initial <= cap, not {self.initial} and {self.cap}")
        if self.factor < 1:
            raise ValueError(f"backoff factor must be at least 1, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff jitter must be between 0 and 1, not {self.jitter}")

    def delay(self, attempt: int, rng: Random, *, at_least: float | None = None) -> float:
        """Return the seconds before attempt number `attempt` (1 is the first repetition).

        `at_least` is a server's Retry-After: the delay is at least that, with jitter on top.
        """
        # The exponent is bounded because 2.0 ** 1024 overflows, and an outage can last that many attempts.
        full = min(self.cap, self.initial * self.factor ** min(attempt - 1, 64))
        delay = full * (1 - self.jitter * rng())
        if at_least is None or delay >= at_least:
            return delay
        return at_least * (1 + 0.1 * rng())


@dataclass(slots=True)
class Attempts:
    """Counts attempts and waits between them, until `deadline` seconds after creation or `most` attempts.

    Owned by the coroutine that makes the attempts. Invariant: `wait` never sleeps past the deadline.
    """

    backoff: Backoff
    timing: Timing = REAL
    deadline: float | None = None
    made: int = 0
    most: int | None = None
    _ends: float | None = field(init=False)

    def __post_init__(self) -> None:
        self._ends = None if self.deadline is None else self.timing.clock() + self.deadline

    @property
    def left(self) -> float:
        """The seconds until the deadline, never negative; infinite without one."""
        return float("inf") if self._ends is None else max(0.0, self._ends - self.timing.clock())

    async def wait(self, retry_after: float | None = None) -> bool:
        """Sleep before the next attempt. Return false immediately if it would exceed the deadline or `most`."""
        self.made += 1
        if self.most is not None and self.made >= self.most:
            return False
        delay = self.backoff.delay(self.made, self.timing.rng, at_least=retry_after)
        if delay >= self.left:
            return False
        await self.timing.sleep(delay)
        return True
