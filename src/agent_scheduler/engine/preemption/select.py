"""Which pods of which node have to go for a pod that was refused, or why nobody's going would help.

Rules, order and words are kube-scheduler's (`framework/preemption`, `plugins/defaultpreemption`):

1. Whether the pod may have others evicted at all, or waits for some already.
2. Nodes that were refused for good are passed over, and those that have nobody of lower priority.
3. The others are tried in turn from an offset: with everybody of lower priority gone, does the pod fit? Then those who
   need not go stay: first the ones whose eviction would break a budget, then the rest, always the most important first
   (priority, then the longer running). It is enough to find some candidates, one of them without a broken budget.
4. Of the candidates the best is the one with the fewest broken budgets, then the least highest priority, the least sum
   of priorities, the fewest victims, the latest start among its most important; then the first.

What tells most nodes apart is asked of all rows at once; pods are walked over only where the answer is yes. So it costs
little to find out that nothing helps, however many pods run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ..columns import NOBODY, Columns, Rows
from ..decide import ClassView, CompiledFilter, Refused, count_reasons, first_refusing, fit_error
from ..framework import Depends
from ..ledger import Ledger
from ..podcounts import Countable
from ..podinfo import PodInfo
from .budgets import Budgets
from .lesser import Lesser, LesserPods
from .nominated import NO_RIVALS, Nominations, Rivals
from .whatif import WhatIf

NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"

#: Later than any start: who has not started is taken to start now.
_NOT_YET: Final = "~"
#: Makes priorities positive, so that one victim more always adds to their sum.
_LIFT: Final = 2**31


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, and who would have to leave it: at least one, the most important first."""

    node_name: str
    row: int
    victims: tuple[Countable, ...]
    #: How many of them a budget would not let go.
    violations: int

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Less is better. What ties is told apart by `longest`, more of which is better."""
        priorities = [victim.priority for victim in self.victims]
        return (
            self.violations,
            priorities[0],
            sum(priorities) + _LIFT * len(priorities),
            len(priorities),
        )

    @property
    def longest(self) -> str:
        """When the longest running of the most important victims started."""
        highest = self.victims[0].priority
        return min(_started(victim) for victim in self.victims if victim.priority == highest)


class Preemption(NamedTuple):
    """What came of it: somebody to evict, or a message why not."""

    candidate: Candidate | None
    message: str = ""
    #: Whether the pod's nomination is of no use any more.
    clear: bool = False


def _started(pod: Countable) -> str:
    return pod.started or _NOT_YET


def _importance(pod: Countable) -> tuple[int, str]:
    return -pod.priority, _started(pod)


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """The one to choose; the first of those that tie in every rule."""
    least = min(candidate.rank for candidate in candidates)
    return max((each for each in candidates if each.rank == least), key=lambda each: each.longest)


class Selection:
    """Finds victims on a snapshot that is up to date with the ledger. Holds only what it counts (`LesserPods`)."""

    def __init__(self, ledger: Ledger, columns: Columns, budgets: Budgets, nominations: Nominations) -> None:
        self._ledger = ledger
        self._columns = columns
        self._budgets = budgets
        self._nominations = nominations
        self._lesser = LesserPods(ledger)

    def preempt(
        self,
        pod: PodInfo,
        view: ClassView,
        refused: Refused,
        *,
        wanted: Callable[[int], int],
        offset: Callable[[int], int],
        nominated: str = "",
        against: Mapping[int, Rivals] = NO_RIVALS,
        leaving: Collection[str] = NOBODY,
    ) -> Preemption:
        """For a pod that every node refused, decided in `view`. Of n nodes `wanted(n)` candidates are enough, and
        `offset(n)`, below n, is where to begin.

        `nominated`: the node that the pod waits for, if any. `against`: see `Nominations.against`. `leaving`: UIDs of
        pods that were evicted, whether or not the API server was seen to know it.
        """
        if not pod.preempts:
            return Preemption(None, NEVER)
        if nominated and self._waits_for(nominated, pod, refused, leaving):
            return Preemption(None, TERMINATING)
        columns = self._columns
        nodes = int(np.count_nonzero(columns.present[: columns.size]))
        search = _Search(self._ledger, columns, self._budgets, self._nominations, pod, view, against)
        rows = refused.curable
        if rows.size:
            lesser = self._lesser.than(pod.priority)
            rows = np.roll(rows, -offset(rows.shape[0]))
            candidates = search.candidates(rows, lesser, wanted(rows.shape[0]))
            if candidates:
                return Preemption(best_of(candidates))
        counts = search.counts
        if others := nodes - rows.shape[0]:
            counts[NOT_HELPFUL] = counts.get(NOT_HELPFUL, 0) + others
        return Preemption(None, fit_error(nodes, counts), clear=True)

    def _waits_for(self, nominated: str, pod: PodInfo, refused: Refused, leaving: Collection[str]) -> bool:
        """Whether somebody is leaving the nominated node for the pod, and may still make it fit there."""
        row = self._ledger.rows.get(nominated)
        if row is None or row not in refused.curable:
            return False
        return any(
            placement.pod.priority < pod.priority
            and (placement.uid in leaving or (placement.pod.deleting and placement.pod.preempted))
            for placement in self._ledger.pods_on(nominated)
        )


class _Search:
    """One pod's search for candidates."""

    def __init__(
        self,
        ledger: Ledger,
        columns: Columns,
        budgets: Budgets,
        nominations: Nominations,
        pod: PodInfo,
        view: ClassView,
        against: Mapping[int, Rivals],
    ) -> None:
        self._ledger = ledger
        self._columns = columns
        self._budgets = budgets
        self._nominations = nominations
        self._pod = pod
        self._view = view
        self._against = against
        #: Why nodes would be refused with everybody of lower priority gone.
        self.counts: dict[str, int] = {}

    def candidates(self, rows: Rows, lesser: Lesser, wanted: int) -> list[Candidate]:
        """Up to `wanted`, in the order of `rows`; if there is none, `counts` has a reason for every row."""
        there = lesser.pods[rows] > 0
        if nobody := rows.shape[0] - int(np.count_nonzero(there)):
            self.counts[NO_VICTIMS] = nobody
        found: list[Candidate] = []
        without_violations = False
        for row in self._fitting(rows[there], lesser):
            candidate = self._dry_run(row)
            if candidate is not None:
                found.append(candidate)
                without_violations = without_violations or not candidate.violations
                if without_violations and len(found) >= wanted:
                    break
        return found

    def _fitting(self, rows: Rows, lesser: Lesser) -> Iterator[int]:
        """Rows that no filter refuses for what it reads of the node and of amounts, if everybody in `lesser` goes.

        The filters are asked in their order up to the first that reads more than that: a reason of a later one would
        not be the first.
        """
        if not rows.size:
            return
        apart = (
            np.isin(rows, list(self._against)) if self._against else np.zeros(rows.shape[0], dtype=np.bool_)
        )
        fits = ~apart
        columns, usage = self._columns, self._columns.usage
        asked = rows[fits]
        passed = np.ones(asked.shape[0], dtype=np.bool_)
        if asked.size:
            emptied = usage.copy()
            emptied[:, :, asked] -= lesser.usage[:, :, asked]
            columns.set_usage(emptied)
            try:
                for entry in self._view.filters:
                    if entry.plugin.depends is not Depends.NODE and not entry.plugin.reads_amounts_only:
                        break
                    left = asked[passed]
                    answer = entry.feasible(columns, left)
                    if not answer.all():
                        count_reasons(self.counts, entry, columns, left[~answer])
                        passed[passed] = answer
            finally:
                columns.set_usage(usage)
        fits[fits] = passed
        fits |= apart
        yield from rows[fits].tolist()

    def _dry_run(self, row: int) -> Candidate | None:
        """Who would have to leave one node. None, and a reason in `counts`, where the pod would not fit even so."""
        pod, columns = self._pod, self._columns
        node = columns.nodes[row]
        assert node is not None, "only nodes that are there are refused"
        victims = [
            placement.pod
            for placement in self._ledger.pods_on(node.name)
            if placement.pod.priority < pod.priority
        ]
        rivals = self._against.get(row, ())
        filters = self._nominations.facing(pod, self._view.pod, self._view.filters, rivals)
        with WhatIf(self._ledger, columns, row) as there:
            for victim in victims:
                there.take(victim)
            entry = self._refusing(there, filters, rivals)
            if entry is not None:
                return None
            # What depends on the node alone has been asked.
            filters = [each for each in filters if each.plugin.depends is not Depends.NODE]
            victims.sort(key=_importance)
            broken = self._budgets.broken_by(victims)
            go: list[Countable] = []
            for victim in sorted(victims, key=lambda each: each.uid not in broken) if broken else victims:
                there.put(victim)
                if self._refusing(there, filters, rivals, count=False) is not None:
                    there.take(victim)
                    go.append(victim)
        if not go:
            # A filter thinks otherwise of the same row than it did a moment ago.
            return None
        if broken:
            go.sort(key=_importance)
        return Candidate(node.name, row, tuple(go), sum(victim.uid in broken for victim in go))

    def _refusing(
        self, there: WhatIf, filters: Sequence[CompiledFilter], rivals: Rivals, *, count: bool = True
    ) -> CompiledFilter | None:
        """The filter that refuses the row as it is thought to be, with `rivals` in place or without."""
        for other in rivals:
            there.put(other)
        entry = first_refusing(filters, self._columns, there.row)
        if entry is not None and count:
            rows = np.array((there.row,), dtype=np.intp)
            count_reasons(self.counts, entry, self._columns, rows)
        for other in rivals:
            there.take(other)
        if entry is None and rivals:
            return self._refusing(there, filters, (), count=count)
        return entry
