"""Counters, gauges and histograms that cost a fraction of a microsecond, read by prometheus-client at a scrape.

prometheus-client's own metrics take a lock and check their shape on every call; with the dozen facts that are
recorded for a pod, that was a tenth of the time a pod may take. Here a fact is one addition on a plain object.
prometheus-client still does what it is good at: the registry, which refuses a name twice, and the exposition.

One thread owns all series. An increment from another thread may be lost, never corrupt anything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Counter:
    """Only goes up, from 0."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class Gauge:
    """Goes up and down, from 0."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """Counts values by bucket. A value equal to a bound belongs to that bound's bucket, as in Prometheus.

    Invariant: `counts` has one entry more than `bounds`, for what is above all of them, and is not cumulative.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        """As `observe`, `times` over."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)


SeriesT = TypeVar("SeriesT", Counter, Gauge, Histogram)


class _Family(Collector, Generic[SeriesT]):
    """One name and all its series, by label values. Owner of the series; a series is never dropped.

    Label values come from closed sets (plugins, results, kinds, configured profiles), never from the cluster's
    objects, so the number of series is bounded by the configuration.
    """

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help_text
        self.label_names = tuple(labels)
        self.series: dict[tuple[str, ...], SeriesT] = {}
        if not self.label_names:
            self.labels()

    def labels(self, *values: str) -> SeriesT:
        """The series with these label values, in the order of the names; made when first asked for.

        Keep the answer where it is needed often: looking it up costs as much as incrementing it.
        """
        try:
            return self.series[values]
        except KeyError:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}") from None
            series = self.series[values] = self._new()
            return series

    def _new(self) -> SeriesT:
        raise NotImplementedError

    def _samples(self) -> Iterator[tuple[tuple[str, ...], SeriesT]]:
        return iter(list(self.series.items()))


class CounterFamily(_Family[Counter]):
    """`name` must end in `_total`, which the exposition would add anyway."""

    def _new(self) -> Counter:
        return Counter()

    def inc(self, amount: float = 1.0) -> None:
        """For a family without labels."""
        self.labels().inc(amount)

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self.name, self.help, labels=self.label_names)
        for values, series in self._samples():
            family.add_metric(values, series.value)
        yield family


class GaugeFamily(_Family[Gauge]):
    """Set where something happens, or read from its owner at a scrape (`read_from`), never both."""

    _source: Callable[[], Mapping[str, float]] | None = None

    def _new(self) -> Gauge:
        return Gauge()

    def set(self, value: float) -> None:
        """For a family without labels."""
        self.labels().set(value)

    def read_from(self, source: Callable[[], Mapping[str, float]]) -> None:
        """At each scrape, `source` gives the value by the value of the only label, or of "" without labels.

        What it does not name is not exposed, so the gauge is the truth at every scrape and costs nothing between.
        """
        if len(self.label_names) > 1:
            raise ValueError(
                f"{self.name} has {len(self.label_names)} labels: only one can be read from a source"
            )
        self._source = source

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self.name, self.help, labels=self.label_names)
        if self._source is None:
            for values, series in self._samples():
                family.add_metric(values, series.value)
        else:
            for value, number in self._source().items():
                family.add_metric((value,) if self.label_names else (), number)
        yield family


class HistogramFamily(_Family[Histogram]):
    """`bounds` rise and leave out the infinite one."""

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), *, bounds: tuple[float, ...]
    ) -> None:
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"{name}: bounds must rise, not {bounds}")
        self.bounds = bounds
        self._bound_labels = [*(_show(bound) for bound in bounds), "+Inf"]
        super().__init__(name, help_text, labels)

    def _new(self) -> Histogram:
        return Histogram(self.bounds)

    def observe(self, value: float) -> None:
        """For a family without labels."""
        self.labels().observe(value)

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self.name, self.help, labels=self.label_names)
        for values, series in self._samples():
            buckets = list(zip(self._bound_labels, accumulate(series.counts), strict=True))
            family.add_metric(values, buckets, series.total)
        yield family


class Families:
    """Makes families and registers them. A name used twice is a ValueError of the registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.made: dict[str, CounterFamily | GaugeFamily | HistogramFamily] = {}

    def counter(self, name: str, help_text: str, *labels: str) -> CounterFamily:
        if not name.endswith("_total"):
            raise ValueError(f"the counter {name} must end in _total")
        return self._register(name, CounterFamily(name, help_text, labels))

    def gauge(self, name: str, help_text: str, *labels: str) -> GaugeFamily:
        return self._register(name, GaugeFamily(name, help_text, labels))

    def histogram(
        self, name: str, help_text: str, *labels: str, bounds: tuple[float, ...]
    ) -> HistogramFamily:
        return self._register(name, HistogramFamily(name, help_text, labels, bounds=bounds))

    def _register(self, name: str, family: FamilyT) -> FamilyT:
        self.registry.register(family)
        self.made[name] = family
        return family


def _show(bound: float) -> str:
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text


FamilyT = TypeVar("FamilyT", CounterFamily, GaugeFamily, HistogramFamily)


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """`count` bounds from `start`, each `factor` times the one before.

    Multiplied step by step, as client_golang's ExponentialBuckets does, so that bounds print alike to the last digit.
    """
    return tuple(accumulate([start] + [factor] * (count - 1), mul))
