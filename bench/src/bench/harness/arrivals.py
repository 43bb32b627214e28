"""The arrivals and lives of pods: pure functions of their arguments, so that a run can be repeated.

An open loop sends each pod at its time, whether or not earlier ones were answered: a slow scheduler or server shows as
latency, instead of slowing the load down. A closed loop has a number of creators that each send their next pod once
their last was answered: the load adapts to the server, and the rate is the result.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Arrivals as fast as the server answers `creators`."""

    creators: int = 16


@dataclass(frozen=True, slots=True)
class Backlog:
    """All pods exist before the scheduler starts, or may bind them; the measurement begins with its first bind."""

    creators: int = 16


@dataclass(frozen=True, slots=True)
class Even:
    """One pod every 1/`rate` seconds."""

    rate: float

    def due(self, count: int) -> list[float]:
        return [number / self.rate for number in range(count)]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals, on average `rate` per second."""

    rate: float
    seed: int = 1

    def due(self, count: int) -> list[float]:
        chance = random.Random(self.seed)
        return list(accumulate(chance.expovariate(self.rate) for _ in range(count)))


@dataclass(frozen=True, slots=True)
class Waves:
    """Arrivals of `size` pods at one moment, repeated every `gap` seconds."""

    size: int
    gap: float

    def due(self, count: int) -> list[float]:
        return [number // self.size * self.gap for number in range(count)]


@dataclass(frozen=True, slots=True)
class Given:
    """The times of a trace, ascending."""

    times: tuple[float, ...]

    def due(self, count: int) -> list[float]:
        return list(self.times[:count])


Schedule = Even | Poisson | Waves | Given
Arrival = ClosedLoop | Backlog | Schedule


@dataclass(frozen=True, slots=True)
class Lives:
    """Seconds from a pod's bind to its deletion, log-uniform: as many between 1 and 2 as between 30 and 60."""

    least: float
    most: float
    seed: int = 1

    def seconds(self, count: int) -> list[float]:
        chance = random.Random(self.seed)
        low, high = math.log(self.least), math.log(self.most)
        return [math.exp(chance.uniform(low, high)) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class GivenLives:
    """The lives of a trace; None for a pod that stays."""

    each: tuple[float | None, ...]

    def seconds(self, count: int) -> list[float | None]:
        return list(self.each[:count])
