"""The policies of a shard: the nodes that they accept, their scores, and the number that they take.

Each works on columns, for any rows at once, and its answer for a row is independent of the other rows.

- `allocation-rate` filters and scores. The rate of each resource that it names has to be in its range. A resource that
  a node does not have is skipped, and a node without all of them is refused. The score is the position in the range,
  from 0 at its lower end to 1 at its upper end, and 1 in a range of one point; for several resources the mean.
- `warmup` scores: 1 with the label, 0 without.
- `node-limit` limits. Of several the strictest applies. Under a budget of capacity, nodes that would exceed it are
  skipped, and later ones may still fit.

All filters must pass. The score of a node is the weighted mean of its scores in millionths; smaller differences are
equal. Volcano uses the sum, which ranks equally, and treats a weight of 0 as 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..state.requests import Amounts
from .node_columns import NO_RATE, Flags, Ints, Mark, NodeColumns, Rows
from .settings import AllocationRateArgs, NodeLimitArgs, Range, ShardSettings, WarmupArgs

Floats = NDArray[np.float64]

#: The highest score.
POINTS: Final = 1_000_000

#: Decimals to which sums of fractions are compared.
_DECIMALS: Final = 9


class Nodes:
    """The data that policies read: some rows of `columns`, each column selected once."""

    def __init__(self, columns: NodeColumns, rows: Rows) -> None:
        self._columns = columns
        self._rows = rows
        self.count = rows.shape[0]
        self._rates: dict[str, NDArray[np.int16]] = {}
        self._marked: dict[Mark, Flags] = {}

    def rate(self, resource: str) -> NDArray[np.int16]:
        """Return for each node the requested hundredths of allocatable, 0 to 100, or `NO_RATE`."""
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
    """The answers for each rate; the last entry is for `NO_RATE`."""

    inside: Flags
    near: Flags
    position: Floats

    @staticmethod
    def of(bounds: Range, margin: float) -> _Scale:
        """Return the scale of a range.

        Rates are compared as fractions of 1, where a rate of 0.57 and a bound of 0.57 are the same number; in
        hundredths 0.57 * 100 would be less than 57.
        """
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
    """The policy of one shard, whose own nodes may be outside of the ranges by `margin`."""

    def __init__(self, args: AllocationRateArgs, margin: float) -> None:
        self._scales = {resource: _Scale.of(bounds, margin) for resource, bounds in args.ranges.items()}

    def passes(self, nodes: Nodes, own: Flags) -> Flags:
        """Return whether each node passes; `own` is whether it is in the shard."""
        passed, judged = np.ones(nodes.count, dtype=bool), np.zeros(nodes.count, dtype=bool)
        for resource, scale in self._scales.items():
            rates = nodes.rate(resource)
            passed &= scale.inside[rates] | (own & scale.near[rates])
            judged |= rates != NO_RATE
        return passed & judged

    def scores(self, nodes: Nodes) -> Floats:
        """Return scores from 0 to 1."""
        total, judged = np.zeros((2, nodes.count))
        for resource, scale in self._scales.items():
            rates = nodes.rate(resource)
            total += scale.position[rates]
            judged += rates != NO_RATE
        mean: Floats = total / np.maximum(judged, 1.0)
        return mean


def _warmup(mark: Mark) -> Scores:
    """Return scores of 0 or 1."""
    return lambda nodes: nodes.marked(mark).astype(np.float64)


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """The limits of the nodes that a shard takes."""

    least: int = 0
    #: None: any number.
    most: int | None = None
    #: The percentage of the assignable nodes; None: all.
    percent: float | None = None
    #: The limits of their allocatable sums, by resource.
    budget: Mapping[str, int] | None = None

    def most_of(self, nodes: int) -> int | None:
        """Return the most nodes if `nodes` can be assigned."""
        if self.percent is None:
            return self.most
        # A fraction that is only due to rounding does not count.
        share = math.ceil(round(nodes * self.percent / 100, _DECIMALS))
        return share if self.most is None else min(share, self.most)

    def and_also(self, args: NodeLimitArgs) -> NodeLimits:
        """Return the strictest of both limits."""
        budget: Amounts = dict(self.budget or {})
        for resource, amount in args.budget.items():
            budget[resource] = min(amount, budget.get(resource, amount))
        return NodeLimits(
            least=max(self.least, args.min_nodes),
            most=min((each for each in (self.most, args.max_nodes or None) if each is not None), default=None),
            percent=min((each for each in (self.percent, args.max_percent) if each is not None), default=None),
            budget=budget or None,
        )


Scores = Callable[[Nodes], Floats]
Passes = Callable[[Nodes, Flags], Flags]


class ShardRules:
    """All policies of one shard."""

    def __init__(self, shard: ShardSettings, *, margin: float) -> None:
        self._filters: list[Passes] = []
        self._scorers: list[tuple[float, Scores]] = []
        self.limits = NodeLimits()
        #: The resources and labels that the policies and the budget read.
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
        """Return whether all filters accept each node; `own` is whether it is in the shard."""
        passed = np.ones(nodes.count, dtype=bool)
        for each in self._filters:
            passed &= each(nodes, own)
        return passed

    def points(self, nodes: Nodes) -> Ints:
        """Return the score of each node, 0 to `POINTS`."""
        weights = sum(weight for weight, _ in self._scorers)
        if not weights:
            return np.zeros(nodes.count, dtype=np.int64)
        total = np.zeros(nodes.count)
        for weight, scores in self._scorers:
            total += weight * scores(nodes)
        return np.rint(total * (POINTS / weights)).astype(np.int64)
