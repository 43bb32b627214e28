"""What the policies of a shard make of nodes: which may be in it, how they rank, and how many it takes.

Each works on columns, for any rows at once, and says of a row the same whatever others it is asked about with.

- `allocation-rate` filters and scores. Of each resource that it names the rate is to be in its range. A resource that a
  node has none of is not judged, and a node that has none of them all is refused. The score is the position in the
  range, from 0 at its lower end to 1 at its upper end and everywhere in a range that is one point; of several
  resources it is their mean.
- `warmup` scores: 1 with the label, 0 without.
- `node-limit` limits. Of several the closest holds. Under a budget of capacity, nodes that would exceed it are passed
  over, and later ones may still fit.

Filters must all pass. The score of a node is the mean of its scores by their weights, in millionths: what differs by
less is equal. Volcano takes their sum, which ranks the same, and reads a weight of 0 as 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..state.requests import Amounts
from .settings import AllocationRateArgs, NodeLimitArgs, Range, ShardSettings, WarmupArgs

if TYPE_CHECKING:
    from .node_columns import NodeColumns

Rows = NDArray[np.intp]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

#: A label and the value that it should have.
Mark = tuple[str, str]

#: In the place of a rate, of a node that has none of the resource. As an index it is the last.
NO_RATE: Final = -1
#: The highest score.
POINTS: Final = 1_000_000

#: Sums of parts of 1 are compared to so many decimals.
_DECIMALS: Final = 9


class Nodes:
    """What policies read: some rows of `columns`, each column picked out once."""

    def __init__(self, columns: NodeColumns, rows: Rows) -> None:
        self._columns = columns
        self._rows = rows
        self.count = rows.shape[0]
        self._rates: dict[str, NDArray[np.int16]] = {}
        self._marked: dict[Mark, Flags] = {}

    def rate(self, resource: str) -> NDArray[np.int16]:
        """Of each, hundredths of what is allocatable that are requested, 0 to 100, or `NO_RATE`."""
        found = self._rates.get(resource)
        if found is None:
            found = self._rates[resource] = self._columns.rate(resource)[self._rows]
        return found

    def marked(self, mark: Mark) -> Flags:
        found = self._marked.get(mark)
        if found is None:
            found = self._marked[mark] = self._columns.marked(mark)[self._rows]
        return found


@dataclass(frozen=True, slots=True)
class _Scale:
    """What is to be said of each rate; the last entry is for `NO_RATE`."""

    inside: Flags
    near: Flags
    position: Floats

    @staticmethod
    def of(bounds: Range, margin: float) -> _Scale:
        """Rates are compared as parts of 1, where a rate of 0.57 and a bound of 0.57 are the same number; in hundredths
        0.57 * 100 would be less than 57."""
        rates = np.arange(101) / 100
        low, high = bounds.min, bounds.max
        near_low, near_high = round(low - margin, _DECIMALS), round(high + margin, _DECIMALS)
        position = np.ones(101) if low == high else np.clip((rates - low) / (high - low), 0.0, 1.0)
        return _Scale(
            inside=np.append((rates >= low) & (rates <= high), True),
            near=np.append((rates >= near_low) & (rates <= near_high), True),
            position=np.append(position, 0.0),
        )


class AllocationRate:
    """Of one shard, whose own nodes may be outside of the ranges by `margin`."""

    def __init__(self, args: AllocationRateArgs, margin: float) -> None:
        self._scales = {resource: _Scale.of(bounds, margin) for resource, bounds in args.ranges.items()}

    def passes(self, nodes: Nodes, own: Flags) -> Flags:
        """Of each node; `own`: whether it is in the shard."""
        passed, judged = np.ones(nodes.count, dtype=bool), np.zeros(nodes.count, dtype=bool)
        for resource, scale in self._scales.items():
            rates = nodes.rate(resource)
            passed &= scale.inside[rates] | (own & scale.near[rates])
            judged |= rates != NO_RATE
        return passed & judged

    def scores(self, nodes: Nodes) -> Floats:
        """0 to 1."""
        total, judged = np.zeros((2, nodes.count))
        for resource, scale in self._scales.items():
            rates = nodes.rate(resource)
            total += scale.position[rates]
            judged += rates != NO_RATE
        mean: Floats = total / np.maximum(judged, 1.0)
        return mean


def _warmup(mark: Mark) -> Scores:
    """0 or 1."""
    return lambda nodes: nodes.marked(mark).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many nodes a shard takes."""

    least: int = 0
    #: None: any number.
    most: int | None = None
    #: Of the nodes that there are to be given; None: all.
    percent: float | None = None
    #: What their allocatable may sum up to, by resource.
    budget: Mapping[str, int] | None = None

    def most_of(self, nodes: int) -> int | None:
        """Where there are so many nodes to be given."""
        if self.percent is None:
            return self.most
        # A part of a node that is there by rounding alone is none.
        share = math.ceil(round(nodes * self.percent / 100, _DECIMALS))
        return share if self.most is None else min(share, self.most)

    def and_also(self, args: NodeLimitArgs) -> Limits:
        """The closest of both."""
        budget: Amounts = dict(self.budget or {})
        for resource, amount in args.budget.items():
            budget[resource] = min(amount, budget.get(resource, amount))
        return Limits(
            least=max(self.least, args.min_nodes),
            most=min(
                (each for each in (self.most, args.max_nodes or None) if each is not None), default=None
            ),
            percent=min(
                (each for each in (self.percent, args.max_percent) if each is not None), default=None
            ),
            budget=budget or None,
        )


Scores = Callable[[Nodes], Floats]
Passes = Callable[[Nodes, Flags], Flags]


class Rules:
    """All policies of one shard."""

    def __init__(self, shard: ShardSettings, *, margin: float) -> None:
        self._filters: list[Passes] = []
        self._scorers: list[tuple[float, Scores]] = []
        self.limits = Limits()
        #: Whose rates and labels are looked at, and what the budget counts.
        self.resources: set[str] = set()
        self.marks: set[Mark] = set()
        for policy in shard.policies:
            match policy.arguments:
                case AllocationRateArgs() as args:
                    rate = AllocationRate(args, margin)
                    self._filters.append(rate.passes)
                    self._scorers.append((policy.weight, rate.scores))
                    self.resources.update(args.ranges)
                case WarmupArgs() as args:
                    mark = (args.warmup_label, args.warmup_label_value)
                    self._scorers.append((policy.weight, _warmup(mark)))
                    self.marks.add(mark)
                case NodeLimitArgs() as args:
                    self.limits = self.limits.and_also(args)
        self.resources.update(self.limits.budget or ())

    def passes(self, nodes: Nodes, own: Flags) -> Flags:
        """Of each node whether all filters accept it; `own`: whether it is in the shard."""
        passed = np.ones(nodes.count, dtype=bool)
        for each in self._filters:
            passed &= each(nodes, own)
        return passed

    def points(self, nodes: Nodes) -> Ints:
        """Of each node, 0 to `POINTS`."""
        weights = sum(weight for weight, _ in self._scorers)
        if not weights:
            return np.zeros(nodes.count, dtype=np.int64)
        total = np.zeros(nodes.count)
        for weight, scores in self._scorers:
            total += weight * scores(nodes)
        return np.rint(total * (POINTS / weights)).astype(np.int64)
