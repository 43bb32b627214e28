"""The search for nodes that would do if somebody left: rows in, candidates or reasons out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ..decide.classview import ClassView
from ..decide.compiled import CompiledFilter, count_reasons, first_refusing
from ..framework.plugin import Depends
from ..state.columns import Columns, Ints, Rows
from ..state.ledger import Ledger
from ..state.podcounts import Countable
from ..state.podinfo import PodInfo
from .budgets import Budgets
from .candidates import Candidate, Prospect
from .lesser import Lesser, importance
from .nominated import NominatedPods, Nominations
from .together import Together
from .whatif import WhatIf

NO_VICTIMS: Final = "No preemption victims found for incoming pod"


class Search:
    """One pod's, on columns that are put back as they were."""

    def __init__(
        self,
        ledger: Ledger,
        columns: Columns,
        budgets: Budgets,
        nominations: Nominations,
        *,
        pod: PodInfo,
        view: ClassView,
        against: Mapping[int, NominatedPods],
        lesser: Lesser,
    ) -> None:
        self._ledger = ledger
        self._columns = columns
        self._budgets = budgets
        self._nominations = nominations
        self._pod = pod
        self._view = view
        #: Pods nominated to rows: where they only take room, and where they are more than that.
        self._room, self._apart = nominations.split(view.filters, against)
        self._lesser = lesser
        #: What has to be asked again when somebody comes or goes.
        self._filters = [each for each in view.filters if each.plugin.depends is not Depends.NODE]
        #: Why nodes would be refused with everybody of lower priority gone.
        self.counts: dict[str, int] = {}

    def prospects(self, rows: Rows, wanted: int) -> list[Prospect]:
        """In the order of `rows`, up to `wanted`, or more until there is one that breaks no budget. Where there is
        none, `counts` has a reason for every row."""
        found: list[Prospect] = []
        if self._lesser.is_nobody():
            if rows.size:
                self.counts[NO_VICTIMS] = rows.shape[0]
            return found
        left = rows
        fitting: list[int] = []
        # Only the rows that were asked about have anything in it.
        emptied = np.empty_like(self._columns.usage)
        asking = max(1, wanted)
        breaks_none = False
        while not (breaks_none and len(found) >= wanted):
            # So many at least are needed, and when these break budgets, perhaps many more.
            few = max(1, wanted - len(found))
            while len(fitting) < few and left.size:
                fitting += self._fitting(self._occupied(left[:asking]), emptied).tolist()
                left = left[asking:]
                asking *= 2
            if not fitting:
                break
            for prospect in self._try(fitting[:few], emptied):
                if prospect is not None:
                    found.append(prospect)
                    breaks_none = breaks_none or not prospect.rank.violations
                    if breaks_none and len(found) >= wanted:
                        break
            fitting = fitting[few:]
        return found

    def _occupied(self, rows: Rows) -> Rows:
        """Those of `rows` that anybody of lower priority is on."""
        self._lesser.count(rows)
        there = self._lesser.pods[rows] > 0
        if nobody := rows.shape[0] - int(np.count_nonzero(there)):
            self.counts[NO_VICTIMS] = self.counts.get(NO_VICTIMS, 0) + nobody
        return rows[there]

    def _fitting(self, rows: Rows, emptied: Ints) -> Rows:
        """Those of `rows` that no filter refuses for what it reads of the node and of amounts, if all lesser pods go.

        `emptied` gets the usage of these rows without the lesser pods, with nominated pods in place. The filters are
        asked in their order up to the first that reads more than that: a reason of a later one would not be the first.
        Rows with nominated pods that do more than take room are asked about later.
        """
        apart = np.isin(rows, list(self._apart))
        fits = ~apart
        columns, usage = self._columns, self._columns.usage
        emptied[:, :, rows] = usage[:, :, rows] - self._lesser.usage[:, :, rows]
        if self._room:
            nominated = {row: self._room[row] for row in rows.tolist() if row in self._room}
            self._nominations.add_to(emptied, nominated)
        asked = rows[fits]
        passed = np.ones(asked.shape[0], dtype=np.bool_)
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
        return rows[fits]

    def _try(self, rows: Sequence[int], emptied: Ints) -> list[Prospect | None]:
        """The dry run for each of some rows that `_fitting` let pass."""
        found: dict[int, Prospect | None] = {}
        if all(each.plugin.reads_amounts_only for each in self._filters):
            together = [row for row in rows if row not in self._apart]
            found.update(zip(together, self._try_together(together, emptied), strict=True))
        return [found[row] if row in found else self._try_alone(row) for row in rows]

    def _try_together(self, rows: Sequence[int], emptied: Ints) -> Sequence[Prospect | None]:
        if not rows:
            return []
        lesser, columns, usage = self._lesser, self._columns, self._columns.usage
        broken = [lesser.broken(row, self._budgets) for row in rows] if self._budgets else []
        columns.set_usage(emptied)
        try:
            return Together(
                columns,
                self._filters,
                np.array(rows, dtype=np.intp),
                lesser.rosters(rows),
                broken,
            ).prospects()
        finally:
            columns.set_usage(usage)

    def _try_alone(self, row: int) -> Candidate | None:
        """None, and a reason in `counts`, where the pod would not fit with everybody gone."""
        pod, columns = self._pod, self._columns
        node = columns.nodes[row]
        assert node is not None, "only nodes that are there are refused"
        nominated = self._apart.get(row, ())
        filters = self._nominations.filters_with(pod, self._view.pod, self._view.filters, nominated)
        victims = self._lesser.roster(row).pods
        broken = self._lesser.broken(row, self._budgets)
        go: list[Countable] = []
        with WhatIf(self._ledger, columns, row) as there:
            for victim in victims:
                there.take(victim)
            entry = self._refusing(there, filters, nominated)
            if entry is not None:
                return None
            # What depends on the node alone has been asked.
            filters = [each for each in filters if each.plugin.depends is not Depends.NODE]
            for victim in sorted(victims, key=lambda each: each.uid not in broken) if broken else victims:
                there.put(victim)
                if self._refusing(there, filters, nominated, count=False) is not None:
                    there.take(victim)
                    go.append(victim)
        if not go:
            # A filter thinks otherwise of the same row than it did a moment ago.
            return None
        go.sort(key=importance)
        return Candidate(node.name, row, tuple(go), sum(victim.uid in broken for victim in go))

    def _refusing(
        self,
        there: WhatIf,
        filters: Sequence[CompiledFilter],
        nominated: NominatedPods,
        *,
        count: bool = True,
    ) -> CompiledFilter | None:
        """The filter that refuses the row as it is thought to be, with `nominated` in place or without."""
        for other in nominated:
            there.put(other)
        entry = first_refusing(filters, self._columns, there.row)
        if entry is not None and count:
            count_reasons(self.counts, entry, self._columns, np.array((there.row,), dtype=np.intp))
        for other in nominated:
            there.take(other)
        if entry is None and nominated:
            return self._refusing(there, filters, (), count=count)
        return entry
