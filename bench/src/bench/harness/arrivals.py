"""When pods come, and how long they stay: pure functions of their arguments, so that a run can be repeated.

An open loop sends each pod when its time has come, whether or not earlier ones were answered: a scheduler or a
server that falls behind shows as latency, instead of slowing the load down. A closed loop has so many creators, of
which each sends its next pod once its last was answered: the load adapts to the server, and the rate is what is
measured.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """As fast as the server answers `creators`."""

    creators: int = 16


@dataclass(frozen=True, slots=True)
class Backlog:
    """All pods are there before the scheduler starts, or may bind them; what is measured begins with its first bind."""

    creators: int = 16


@dataclass(frozen=True, slots=True)
class Even:
    """One pod every 1/`rate` seconds."""

    rate: float

    def due(self, count: int) -> list[float]:
        return [number / self.rate for number in range(count)]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals, `rate` a second in the mean."""

    rate: float
    seed: int = 1

    def due(self, count: int) -> list[float]:
        chance = random.Random(self.seed)
        return list(accumulate(chance.expovariate(self.rate) for _ in range(count)))


@dataclass(frozen=True, slots=True)
class Waves:
    """`size` pods at one instant, and again every `gap` seconds."""

    size: int
    gap: float

    def due(self, count: int) -> list[float]:
        return [number // self.size * self.gap for number in range(count)]


@dataclass(frozen=True, slots=True)
class Given:
    """The times of a trace, rising."""

    times: tuple[float, ...]

    def due(self, count: int) -> list[float]:
        return list(self.times[:count])


Schedule = Even | Poisson | Waves | Given
Arrival = ClosedLoop | Backlog | Schedule


@dataclass(frozen=True, slots=True)
class Lives:
    """Seconds from a pod's bind to its deletion: as many between 1 and 2 as between 30 and 60."""

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
