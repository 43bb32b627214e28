"""Filters and scores with their compiled states for one class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ..framework.handle import Handle
from ..framework.plugin import Filter, PodRejected, PodUnrankable, Profile, Score, WeightedScore
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.podclass import PodClass
from .ranking import REFUSED


@dataclass(slots=True, eq=False)
class CompiledFilter:
    """A filter and its state for one class."""

    plugin: Filter
    state: Any

    def feasible(self, nodes: Columns, rows: Rows) -> Bools:
        return self.plugin.feasible(self.state, nodes, rows)

    def feasible_row(self, nodes: Columns, row: int) -> bool:
        return self.plugin.feasible_row(self.state, nodes, row)


class CompiledScore:
    """A score, its weight and its state for one class. Raw scores that have to be normalized are kept by row."""

    __slots__ = ("plugin", "raw", "state", "varies", "weight")

    def __init__(self, weighted: WeightedScore, state: Any) -> None:
        self.plugin: Score = weighted.plugin
        self.weight = weighted.weight
        self.state = state
        self.raw: Ints = np.zeros(0, dtype=np.int64)
        #: False while every raw score is 0, so that every node has the same normalized score.
        self.varies = False

    def forget(self, capacity: int) -> None:
        """Discard the raw scores and make room for `capacity` rows."""
        if self.plugin.normalize is not None:
            self.raw = np.zeros(capacity, dtype=np.int64)
            self.varies = False

    def add(self, total: Ints, columns: Columns, rows: Rows) -> None:
        """Add the weighted score of each of `rows` to `total`, or keep the raw scores if they have to be normalized."""
        raw = self.plugin.score(self.state, columns, rows)
        if self.plugin.normalize is None:
            total += self.weight * raw
        else:
            self.raw[rows] = raw
            self.varies = self.varies or bool(raw.any())

    def of_row(self, columns: Columns, row: int) -> int:
        """Return the number to add for one row, and keep its raw score as `add` does."""
        raw = self.plugin.score_row(self.state, columns, row)
        if self.plugin.normalize is None:
            return self.weight * raw
        self.raw[row] = raw
        self.varies = self.varies or bool(raw)
        return 0


#: A plugin that is compiled, or not yet.
FilterPart = Filter | CompiledFilter
ScorePart = WeightedScore | CompiledScore


#: Up to this number rows are scored one by one, where plain numbers are faster than arrays.
_FEW: Final = 4


@dataclass(slots=True, eq=False)
class RowQuery:
    """Filters and scores that are asked about the same rows."""

    filters: Sequence[CompiledFilter]
    scores: Sequence[CompiledScore]

    def __bool__(self) -> bool:
        return bool(self.filters or self.scores)

    def about(self, columns: Columns, rows: Rows) -> Ints:
        """Return the weighted sum of the scores that need no normalizing; `REFUSED` if a filter refuses."""
        if not self.filters:
            return self._total(columns, rows)
        places, totals = self.passing(columns, rows)
        found = np.full(rows.shape[0], REFUSED, dtype=np.int64)
        found[places] = totals
        return found

    def passing(self, columns: Columns, rows: Rows) -> tuple[Rows, Ints]:
        """Return the indices of those of `rows` that no filter refuses, with their totals as `about` computes them."""
        passing: Bools | None = None
        for entry in self.filters:
            passed = entry.feasible(columns, rows)
            passing = passed if passing is None else passing & passed
        places: Rows = np.arange(rows.shape[0]) if passing is None else passing.nonzero()[0]
        return places, self._total(columns, rows[places])

    def _total(self, columns: Columns, rows: Rows) -> Ints:
        if rows.shape[0] <= _FEW:
            return np.array(
                [sum([score.of_row(columns, row) for score in self.scores]) for row in rows.tolist()], dtype=np.int64
            )
        total: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        for score in self.scores:
            score.add(total, columns, rows)
        return total


def both(some: Ints, others: Ints) -> Ints:
    """Return the sums of two answers; `REFUSED` if either is."""
    found: Ints = np.where((some != REFUSED) & (others != REFUSED), some + others, REFUSED)
    return found


class Rejection(NamedTuple):
    """The filter that rejects a class on every node, and its message."""

    plugin: str
    message: str


def every_filter(profile: Profile) -> tuple[Filter, ...]:
    """Return the profile's filters in the order in which they are asked."""
    narrowing = (plugin.narrowing for plugin in profile.filters if plugin.narrowing is not None)
    return (*narrowing, *profile.filters)


def compile_filters(
    profile: Profile, pod: PodClass, handle: Handle
) -> tuple[tuple[CompiledFilter, ...], Rejection | None]:
    """Return the filters that apply to `pod`, in the profile's order, or the rejection on every node."""
    return filters_of(every_filter(profile), pod, handle)


def filters_of(
    parts: Iterable[FilterPart], pod: PodClass, handle: Handle
) -> tuple[tuple[CompiledFilter, ...], Rejection | None]:
    """Compile those of `parts` that are not yet compiled, and leave out those that do not apply to `pod`."""
    compiled = []
    for part in parts:
        if isinstance(part, CompiledFilter):
            compiled.append(part)
            continue
        try:
            state = part.prepare(pod, handle)
        except PodRejected as rejected:
            return (), Rejection(part.name, str(rejected))
        if state is not None:
            compiled.append(CompiledFilter(part, state))
    return tuple(compiled), None


def scores_of(parts: Iterable[ScorePart], pod: PodClass, handle: Handle) -> tuple[CompiledScore, ...]:
    """Compile the scores that may tell nodes apart for `pod`. Raises PodUnrankable, which names the plugin."""
    compiled = []
    for part in parts:
        if isinstance(part, CompiledScore):
            compiled.append(part)
            continue
        try:
            state = part.plugin.prepare(pod, handle)
        except PodUnrankable as why:
            raise PodUnrankable(f'running PreScore plugin "{part.plugin.name}": {why}') from None
        if state is not None:
            compiled.append(CompiledScore(part, state))
    return tuple(compiled)


def count_reasons(counts: dict[str, int], entry: CompiledFilter, columns: Columns, refused: Rows) -> None:
    for reason, count in entry.plugin.reasons(entry.state, columns, refused).items():
        counts[reason] = counts.get(reason, 0) + count


def first_refusing(filters: Sequence[CompiledFilter], columns: Columns, row: int) -> CompiledFilter | None:
    """Return the first filter that refuses the row, or None if all pass."""
    for entry in filters:
        if not entry.feasible_row(columns, row):
            return entry
    return None
