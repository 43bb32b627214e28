"""The dry run: the nodes that would be feasible without pods of lower priority, and the best of them.

Most pods request only amounts. If a pod's filters read amounts alone, a step of the dry run ("can the next victim
stay") is one expression over many nodes at once: each row restores its own next pod, and removes it again if the
incoming pod no longer fits. Other nodes are tried one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ..decide.classview import ClassView
from ..decide.compiled import CompiledFilter, count_reasons, first_refusing
from ..decide.trial import WhatIf
from ..framework.plugin import Depends
from ..ledger import Ledger
from ..state.columns import NOBODY, Bools, Columns, Ints, Rows
from ..state.podinfo import PodInfo
from .nominated import NominatedPods, Nominations
from .pdbs import PDBs
from .victims import NodeVictims, VictimsBelow, importance, started

#: Makes priorities positive, so that one more victim always adds to their sum.
LIFT: Final = 2**31


class Rank(NamedTuple):
    """The rank of a candidate; lower is better, field by field."""

    #: Victims whose eviction would violate a PDB (kube-scheduler: `NumPDBViolations`).
    pdb_violations: int
    #: The priority of the most important victim.
    highest: int
    #: The sum of the victims' priorities, each raised by `LIFT`.
    total: int
    victims: int


class Candidate(NamedTuple):
    """A node, and the pods to evict from it: at least one, the most important first."""

    node_name: str
    row: int
    victims: tuple[PodInfo, ...]
    #: The number of victims that a PDB protects.
    pdb_violations: int

    @property
    def rank(self) -> Rank:
        priorities = [victim.priority for victim in self.victims]
        return Rank(self.pdb_violations, priorities[0], sum(priorities) + LIFT * len(priorities), len(priorities))

    @property
    def earliest_start(self) -> str:
        """The start of the longest running of the most important victims. Among equal ranks the latest is better."""
        return started(self.victims[0])


def select_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """Return the best candidate as kube-scheduler's `SelectCandidate`; the first of those that tie in every rule."""
    ranks = [each.rank for each in candidates]
    least = min(ranks)
    ties = [each for each, rank in zip(candidates, ranks, strict=True) if rank == least]
    return max(ties, key=lambda each: each.earliest_start)


NO_VICTIMS: Final = "No preemption victims found for incoming pod"


class DryRunState(NamedTuple):
    """The state that dry runs read. Columns are changed, and restored afterwards."""

    ledger: Ledger
    columns: Columns
    pdbs: PDBs
    nominations: Nominations


class DryRun:
    """The dry run for one pod, on columns that are restored afterwards."""

    def __init__(
        self,
        state: DryRunState,
        *,
        pod: PodInfo,
        view: ClassView,
        against: Mapping[int, NominatedPods],
        victims: VictimsBelow,
    ) -> None:
        self._ledger, self._columns, self._pdbs, nominations = state
        self._nominations = nominations
        self._pod = pod
        self._view = view
        #: Pods nominated to rows: those where they only take room, and those where they have other effects.
        self._room, self._apart = nominations.split(view.filters, against)
        self._victims = victims
        #: The filters to ask again when a pod is added or removed.
        self._filters = [each for each in view.filters if each.plugin.depends is not Depends.NODE]
        #: The reasons of nodes that would be refused without all pods of lower priority.
        self.counts: dict[str, int] = {}

    def candidates(self, rows: Rows, wanted: int) -> list[Candidate]:
        """Return candidates in the order of `rows`: `wanted`, or more until one violates no PDB.

        If there is none, `counts` has a reason for every row.
        """
        found: list[Candidate] = []
        if self._victims.is_empty():
            if rows.size:
                self.counts[NO_VICTIMS] = rows.shape[0]
            return found
        left = rows
        fitting: list[int] = []
        # Filled only in the rows that were asked about.
        emptied = np.empty_like(self._columns.usage)
        asking = max(1, wanted)
        violates_none = False
        while not (violates_none and len(found) >= wanted):
            # At least `few` are needed, and possibly many more if these violate PDBs.
            few = max(1, wanted - len(found))
            while len(fitting) < few and left.size:
                fitting += self._fitting(self._occupied(left[:asking]), emptied).tolist()
                left = left[asking:]
                asking *= 2
            if not fitting:
                break
            for candidate in self._dry_run(fitting[:few], emptied):
                if candidate is not None:
                    found.append(candidate)
                    violates_none = violates_none or not candidate.pdb_violations
                    if violates_none and len(found) >= wanted:
                        break
            fitting = fitting[few:]
        return found

    def _occupied(self, rows: Rows) -> Rows:
        """Return those of `rows` that have pods of lower priority."""
        self._victims.count(rows)
        there = self._victims.pods[rows] > 0
        if without := rows.shape[0] - int(np.count_nonzero(there)):
            self.counts[NO_VICTIMS] = self.counts.get(NO_VICTIMS, 0) + without
        return rows[there]

    def _fitting(self, rows: Rows, emptied: Ints) -> Rows:
        """Return those of `rows` that pass, without the potential victims, filters which read the node and amounts.

        `emptied` receives the usage of these rows without the potential victims and with nominated pods. The filters
        are asked in their order up to the first that reads more than that: a later reason would not be the first. Rows
        with nominated pods that have other effects than taking room are checked later.
        """
        apart = np.isin(rows, list(self._apart))
        fits = ~apart
        columns, usage = self._columns, self._columns.usage
        emptied[:, :, rows] = usage[:, :, rows] - self._victims.usage[:, :, rows]
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

    def _dry_run(self, rows: Sequence[int], emptied: Ints) -> list[Candidate | None]:
        """Run the dry run for each of `rows`, which `_fitting` returned."""
        found: dict[int, Candidate | None] = {}
        if all(each.plugin.reads_amounts_only for each in self._filters):
            together = [row for row in rows if row not in self._apart]
            found.update(zip(together, self._dry_run_batch(together, emptied), strict=True))
        return [found[row] if row in found else self._dry_run_one(row) for row in rows]

    def _dry_run_batch(self, rows: Sequence[int], emptied: Ints) -> Sequence[Candidate | None]:
        if not rows:
            return []
        victims, columns, usage = self._victims, self._columns, self._columns.usage
        there = victims.on_rows(rows)
        pdbs, none = self._pdbs, [NOBODY] * len(rows)
        violating = [victims.violating(row, pdbs) for row in rows] if pdbs else none
        columns.set_usage(emptied)
        try:
            gone = _put_back(columns, self._filters, np.array(rows, dtype=np.intp), there, violating)
        finally:
            columns.set_usage(usage)
        return [
            self._candidate(row, [pod for pod, goes in zip(each.pods, places, strict=False) if goes], uids)
            for row, each, places, uids in zip(rows, there, gone.tolist(), violating, strict=True)
        ]

    def _candidate(self, row: int, victims: list[PodInfo], violating: frozenset[str]) -> Candidate | None:
        """Return the candidate with these victims, the most important first. None if there are none."""
        if not victims:
            return None
        node = self._columns.nodes[row]
        assert node is not None, "only nodes that are there are refused"
        violations = sum(victim.uid in violating for victim in victims) if violating else 0
        return Candidate(node.name, row, tuple(victims), violations)

    def _dry_run_one(self, row: int) -> Candidate | None:
        """Try one row; return None, with a reason in `counts`, if the pod does not fit without all victims."""
        pod, columns = self._pod, self._columns
        nominated = self._apart.get(row, ())
        filters = self._nominations.filters_with(pod, self._view.pod, self._view.filters, nominated)
        victims = self._victims.on_row(row).pods
        violating = self._victims.violating(row, self._pdbs)
        go: list[PodInfo] = []
        with WhatIf(self._ledger, columns) as there:
            for victim in victims:
                there.remove(victim, row)
            entry = self._refusing(there, row, filters, nominated)
            if entry is not None:
                return None
            # Filters that depend on the node alone have been asked.
            filters = [each for each in filters if each.plugin.depends is not Depends.NODE]
            reprieved = sorted(victims, key=lambda each: each.uid not in violating) if violating else victims
            for victim in reprieved:
                there.place(victim, row)
                if self._refusing(there, row, filters, nominated, count=False) is not None:
                    there.remove(victim, row)
                    go.append(victim)
        # No pod is evicted if a filter contradicts its answer of a moment ago.
        return self._candidate(row, sorted(go, key=importance), violating)

    def _refusing(
        self,
        there: WhatIf,
        row: int,
        filters: Sequence[CompiledFilter],
        nominated: NominatedPods,
        *,
        count: bool = True,
    ) -> CompiledFilter | None:
        """Return the filter that refuses the hypothetical row, with `nominated` in place or without."""
        mark = there.mark()
        for other in nominated:
            there.place(other, row)
        entry = first_refusing(filters, self._columns, row)
        if entry is not None and count:
            count_reasons(self.counts, entry, self._columns, np.array((row,), dtype=np.intp))
        there.rollback(mark)
        if entry is None and nominated:
            return self._refusing(there, row, filters, (), count=count)
        return entry


def _put_back(
    columns: Columns,
    filters: Sequence[CompiledFilter],
    rows: Rows,
    victims: Sequence[NodeVictims],
    violating: Sequence[frozenset[str]],
) -> Bools:
    """Return [row, index in `victims`]: whether the pod has to be evicted.

    `columns` are without the pods in `victims`, and the pod passes there; their `usage` is changed. `violating` has the
    UIDs of pods whose eviction would violate a PDB.
    """
    lengths = np.array([len(each.pods) for each in victims])
    #: [row, index]: whether there is a pod at this index.
    there: Bools = np.arange(lengths.max(initial=0)) < lengths[:, None]
    amounts: Ints = np.zeros((*there.shape, *columns.usage.shape[:2]), dtype=np.int64)
    amounts[there] = np.concatenate([each.amounts for each in victims])
    violates: Bools = np.zeros(there.shape, dtype=np.bool_)
    for index, uids in enumerate(violating):
        if uids:
            violates[index, : lengths[index]] = [pod.uid in uids for pod in victims[index].pods]
    #: [row, step]: the index of the pod to restore next; without violations in the order of importance.
    order: Rows = np.argsort(~violates, axis=1, kind="stable")
    gone: Bools = np.zeros(there.shape, dtype=np.bool_)
    usage, nodes = columns.usage, np.arange(rows.shape[0])
    for step in range(there.shape[1]):
        places = order[:, step]
        now = nodes[there[nodes, places]]
        if not now.size:
            continue
        at, places = rows[now], places[now]
        back = amounts[now, places].transpose(1, 2, 0)
        usage[:, :, at] += back
        fits: Bools = np.ones(now.shape[0], dtype=np.bool_)
        for entry in filters:
            fits &= entry.feasible(columns, at)
        if not fits.all():
            short = ~fits
            usage[:, :, at[short]] -= back[:, :, short]
            gone[now[short], places[short]] = True
    return gone
