"""Families of series, by their names and labels, and their text for Prometheus.

The format is Prometheus' text exposition format 0.0.4, which kube-scheduler serves, too. prometheus-client builds an
object a sample for it, which stopped the loop for tens of milliseconds at every scrape; here a sample is one string
that was made beforehand and one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, Generic, TypeVar

from agent_scheduler.telemetry.series import Counter, Gauge, Histogram, Tally

SeriesT = TypeVar("SeriesT", Counter, Gauge, Histogram)
NumberT = TypeVar("NumberT", Counter, Gauge)
#: What is read at a scrape: of an owner, a number, or numbers by the value of the only label, or by those of all.
Read = Callable[[Any], float | Mapping[str, float] | Mapping[tuple[str, ...], float]]


#: Counters to which Volcano gave such a name.
_NAMED_OTHERWISE: Final = ("volcano_total_preemption_attempts",)


class _Family(Generic[SeriesT]):
    """One name and all its series, by label values. Owner of the series; a series is never dropped.

    Label values come from closed sets (plugins, results, kinds, configured profiles), never from the cluster's
    objects, so the number of series is bounded by the configuration. Those of objects are read from their owner at a
    scrape, and kept nowhere.
    """

    #: As `# TYPE` calls it.
    type = ""

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
            series = self.series[values] = self._new(values)
            return series

    def lines(self) -> Iterator[str]:
        """The family in the text exposition format."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.type}"
        yield from self._samples()

    def _new(self, values: tuple[str, ...]) -> SeriesT:
        raise NotImplementedError

    def _samples(self) -> Iterator[str]:
        raise NotImplementedError

    def _sample(self, suffix: str, values: Sequence[str], *more: tuple[str, str]) -> str:
        """What stands before a sample's number."""
        pairs = [*zip(self.label_names, values, strict=True), *more]
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
        return f"{self.name}{suffix}{{{labels}}}" if labels else self.name + suffix


class _NumberFamily(_Family[NumberT]):
    """Counted or set where something happens, or read from its owner at a scrape, never both: what `read` does not name
    is not exposed, so the gauge is the truth at every scrape and costs nothing between."""

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), *, read: Read | None = None
    ) -> None:
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
        """For a family without labels."""
        self.labels().inc(amount)


class GaugeFamily(_NumberFamily[Gauge]):
    type = "gauge"

    def _new(self, values: tuple[str, ...]) -> Gauge:
        return Gauge(self._sample("", values))

    def set(self, value: float) -> None:
        """For a family without labels."""
        self.labels().set(value)


class HistogramFamily(_Family[Histogram]):
    """`bounds` rise and leave out the infinite one."""

    type = "histogram"

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), *, bounds: tuple[float, ...]
    ) -> None:
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"{name}: bounds must rise, not {bounds}")
        self.bounds = bounds
        super().__init__(name, help_text, labels)

    def _new(self, values: tuple[str, ...]) -> Histogram:
        bounds = (*map(_bound, self.bounds), "+Inf")
        buckets = tuple(self._sample("_bucket", values, ("le", bound)) for bound in bounds)
        return Histogram(
            self.bounds, (*buckets, self._sample("_count", values), self._sample("_sum", values))
        )

    def observe(self, value: float) -> None:
        """For a family without labels."""
        self.labels().observe(value)

    def _samples(self) -> Iterator[str]:
        for series in self.series.values():
            numbers = list(accumulate(series.counts))
            for text, number in zip(series.texts, (*numbers, numbers[-1], series.total), strict=True):
                yield f"{text} {number}"


class Families:
    """Makes families and keeps them in their order. Raises ValueError for a name that is taken or says another type."""

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
        """From now on each family with a `read` has what that says of `owner` at each scrape."""
        for family in self.made.values():
            if isinstance(family, _NumberFamily):
                family.owner = owner

    def histogram(
        self, name: str, help_text: str, *labels: str, bounds: tuple[float, ...]
    ) -> HistogramFamily:
        return self._keep(HistogramFamily(name, help_text, labels, bounds=bounds))

    def tally(
        self,
        *,
        counters: Iterable[Counter] = (),
        histograms: Iterable[Histogram] = (),
        sums: Iterable[Counter] = (),
    ) -> Tally:
        """For series of these families, which count what it gathered whenever they are read. It is never dropped."""
        made = Tally(counters, histograms, sums)
        self._tallies.append(made)
        return made

    def settle(self) -> None:
        """What tallies gathered is in their series from now on."""
        for tally in self._tallies:
            tally.settle()

    def text(self) -> str:
        """All families in the text exposition format."""
        self.settle()
        return "".join(f"{line}\n" for family in self.made.values() for line in family.lines())

    def _keep(self, family: FamilyT) -> FamilyT:
        if family.name in self.made:
            raise ValueError(f"the metric {family.name} exists already")
        self.made[family.name] = family
        return family


FamilyT = TypeVar("FamilyT", CounterFamily, GaugeFamily, HistogramFamily)


def _bound(value: float) -> str:
    """As Go prints it, without a fraction of zero: recorded queries name buckets by this text."""
    return repr(value).removesuffix(".0")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
