"""Counters, gauges and histograms that cost a fraction of a microsecond.

prometheus-client's own metrics take a lock and check their arguments on every call: with a dozen records per pod,
that was a tenth of the time budget of a pod. Here a record is one addition on a plain object, or for records of every
pod one entry in an array that is counted as a whole.

One thread owns all series. An increment from another thread may be lost, but corrupts nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from operator import mul

import numpy as np

#: The number of values that a tally gathers before it counts them.
_AT_ONCE = 512


class Counter:
    """A number that only increases, from 0. `text` precedes its value in the exposition."""

    __slots__ = ("text", "value")

    def __init__(self, text: str) -> None:
        self.text = text
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class Gauge(Counter):
    """A number that may increase and decrease."""

    __slots__ = ()

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """Counts values by bucket. As in Prometheus, a value equal to a bound belongs to that bound's bucket.

    Invariant: `counts` has one entry more than `bounds`, for values above all of them, and is not cumulative.
    """

    __slots__ = ("bounds", "counts", "texts", "total")

    def __init__(self, bounds: tuple[float, ...], texts: tuple[str, ...]) -> None:
        """`texts` precede the numbers of the buckets, the count and the sum."""
        self.bounds = bounds
        self.texts = texts
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        """Observe the same value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def observe_all(self, values: array[float]) -> None:
        """Observe several values, at a tenth of the cost of single observations if there are many."""
        buckets = np.array(self.bounds).searchsorted(np.frombuffer(values))
        found = np.bincount(buckets, minlength=len(self.counts)).tolist()
        self.counts = [before + times for before, times in zip(self.counts, found, strict=True)]
        self.total = sum(values, self.total)

    @property
    def count(self) -> int:
        return sum(self.counts)


class Tally:
    """Values that each increment some counters and are observed in some histograms.

    For records of every pod: values are gathered here and counted many at a time, the rest before an exposition. It
    owns the gathered values, at most `_AT_ONCE`; `settle` counts them. `sums` increase by the values themselves.
    """

    __slots__ = ("_counters", "_histograms", "_sums", "_values")

    def __init__(self, counters: Iterable[Counter], histograms: Iterable[Histogram], sums: Iterable[Counter]) -> None:
        self._counters = tuple(counters)
        self._histograms = tuple(histograms)
        self._sums = tuple(sums)
        self._values = array("d")

    def add(self, value: float) -> None:
        values = self._values
        values.append(value)
        if len(values) >= _AT_ONCE:
            self.settle()

    def settle(self) -> None:
        values = self._values
        if values:
            self._values = array("d")
            for counter in self._counters:
                counter.inc(len(values))
            for histogram in self._histograms:
                histogram.observe_all(values)
            for counter in self._sums:
                counter.value = sum(values, counter.value)


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return `count` bounds from `start`, each `factor` times the previous one.

    They are multiplied step by step, as in client_golang's ExponentialBuckets, so that they print identically.
    """
    return tuple(accumulate([float(start)] + [factor] * (count - 1), mul))
