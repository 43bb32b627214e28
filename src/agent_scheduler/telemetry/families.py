"""Families of series by name and labels, and their text format for Prometheus.

The format is Prometheus' text exposition format 0.0.4, which kube-scheduler uses, too. prometheus-client creates an
object per sample for it, which blocked the loop for tens of milliseconds at every scrape; here a sample is one
precomputed string and one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, Generic, TypeVar

from agent_scheduler.telemetry.series import Counter, Gauge, Histogram, Tally

SeriesT = TypeVar("SeriesT", Counter, Gauge, Histogram)
NumberT = TypeVar("NumberT", Counter, Gauge)
#: Reads values at a scrape from an owner: a number, or numbers by the value of the only label or by all label values.
Read = Callable[[Any], float | Mapping[str, float] | Mapping[tuple[str, ...], float]]


#: Counters with other names, given by Volcano.
_NAMED_OTHERWISE: Final = ("volcano_total_preemption_attempts",)


class _Family(Generic[SeriesT]):
    """A name with all its series by label values. Owns the series; a series is never dropped.

    Label values come from closed sets (plugins, results, kinds, configured profiles), never from objects of the
    cluster, so the configuration limits the number of series. Series of objects are read from their owner at each
    scrape and not stored.
    """

    #: The type in `# TYPE`.
    type = ""

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help_text
        self.label_names = tuple(labels)
        self.series: dict[tuple[str, ...], SeriesT] = {}
        if not self.label_names:
            self.labels()

    def labels(self, *values: str) -> SeriesT:
        """Return the series with these label values in the order of the names; created on first use.

        Frequent users should keep the result: the lookup costs as much as an increment.
        """
        try:
            return self.series[values]
        except KeyError:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}") from None
            series = self.series[values] = self._new(values)
            return series

    def lines(self) -> Iterator[str]:
        """Yield the family in the text exposition format."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.type}"
        yield from self._samples()

    def _new(self, values: tuple[str, ...]) -> SeriesT:
        raise NotImplementedError

    def _samples(self) -> Iterator[str]:
        raise NotImplementedError

    def _sample(self, suffix: str, values: Sequence[str], *more: tuple[str, str]) -> str:
        """Return the part of a sample before its number."""
        pairs = [*zip(self.label_names, values, strict=True), *more]
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
        return f"{self.name}{suffix}{{{labels}}}" if labels else self.name + suffix


class _NumberFamily(_Family[NumberT]):
    """A counted or set family, or one that is read from its owner at each scrape.

    With `read`, only what that returns is exposed, so the values are correct at every scrape and cost nothing in
    between.
    """

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = (), *, read: Read | None) -> None:
        super().__init__(name, help_text, labels)
        self._read = read
        self.owner: object = None

    def _samples(self) -> Iterator[str]:
        if self._read is None or self.owner is None:
            for series in self.series.values():
                yield f"{series.text} {series.value}"
            return
        found = self._read(self.owner)
        if not isinstance(found, Mapping):
            yield f"{self._sample('', ())} {found}"
            return
        for values, number in found.items():
            yield f"{self._sample('', (values,) if isinstance(values, str) else values)} {number}"


class CounterFamily(_NumberFamily[Counter]):
    type = "counter"

    def _new(self, values: tuple[str, ...]) -> Counter:
        return Counter(self._sample("", values))

    def inc(self, amount: float = 1.0) -> None:
        """Increment the only series of a family without labels."""
        self.labels().inc(amount)


class GaugeFamily(_NumberFamily[Gauge]):
    type = "gauge"

    def _new(self, values: tuple[str, ...]) -> Gauge:
        return Gauge(self._sample("", values))

    def set(self, value: float) -> None:
        """Set the only series of a family without labels."""
        self.labels().set(value)


class HistogramFamily(_Family[Histogram]):
    """A histogram. `bounds` increase and do not contain infinity."""

    type = "histogram"

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = (), *, bounds: tuple[float, ...]) -> None:
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"{name}: bounds must rise, not {bounds}")
        self.bounds = bounds
        super().__init__(name, help_text, labels)

    def _new(self, values: tuple[str, ...]) -> Histogram:
        bounds = (*map(_bound, self.bounds), "+Inf")
        buckets = tuple(self._sample("_bucket", values, ("le", bound)) for bound in bounds)
        return Histogram(self.bounds, (*buckets, self._sample("_count", values), self._sample("_sum", values)))

    def observe(self, value: float) -> None:
        """Observe a value in a family without labels."""
        self.labels().observe(value)

    def _samples(self) -> Iterator[str]:
        for series in self.series.values():
            numbers = list(accumulate(series.counts))
            for text, number in zip(series.texts, (*numbers, numbers[-1], series.total), strict=True):
                yield f"{text} {number}"


class Families:
    """Creates families and keeps them in order. Raises ValueError for a duplicate name or one of another type."""

    def __init__(self) -> None:
        self.made: dict[str, CounterFamily | GaugeFamily | HistogramFamily] = {}
        self._tallies: list[Tally] = []

    def counter(self, name: str, help_text: str, *labels: str, read: Read | None = None) -> CounterFamily:
        if not name.endswith("_total") and name not in _NAMED_OTHERWISE:
            raise ValueError(f"the counter {name} must end in _total")
        return self._keep(CounterFamily(name, help_text, labels, read=read))

    def gauge(self, name: str, help_text: str, *labels: str, read: Read | None = None) -> GaugeFamily:
        return self._keep(GaugeFamily(name, help_text, labels, read=read))

    def read_from(self, owner: object) -> None:
        """Read all families with a `read` from `owner` from now on."""
        for family in self.made.values():
            if isinstance(family, _NumberFamily):
                family.owner = owner

    def histogram(self, name: str, help_text: str, *labels: str, bounds: tuple[float, ...]) -> HistogramFamily:
        return self._keep(HistogramFamily(name, help_text, labels, bounds=bounds))

    def tally(
        self, *, counters: Iterable[Counter] = (), histograms: Iterable[Histogram] = (), sums: Iterable[Counter] = ()
    ) -> Tally:
        """Return a tally for series of these families, which is counted at each exposition. It is never dropped."""
        made = Tally(counters, histograms, sums)
        self._tallies.append(made)
        return made

    def settle(self) -> None:
        """Add the values gathered by tallies to their series."""
        for tally in self._tallies:
            tally.settle()

    def text(self) -> str:
        """Return all families in the text exposition format."""
        self.settle()
        return "".join(f"{line}\n" for family in self.made.values() for line in family.lines())

    def _keep(self, family: FamilyT) -> FamilyT:
        if family.name in self.made:
            raise ValueError(f"the metric {family.name} exists already")
        self.made[family.name] = family
        return family


FamilyT = TypeVar("FamilyT", CounterFamily, GaugeFamily, HistogramFamily)


def _bound(value: float) -> str:
    """Format as Go does, without a fraction of zero: recorded queries name buckets by this text."""
    return repr(value).removesuffix(".0")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
