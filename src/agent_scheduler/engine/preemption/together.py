"""The dry run on many nodes at once, for pods of which filters read amounts alone.

Most pods ask for nothing but room. Then a step of the dry run, "does the next pod stay", is one expression over all
nodes: each row puts back its own next pod, and takes it away again where the pod that comes no longer fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..decide.compiled import CompiledFilter
from ..state.columns import Bools, Columns, Ints, Rows
from .candidates import LIFT, Candidate, Rank
from .lesser import Roster, started


class Together:
    """The outcome for each of some rows."""

    def __init__(
        self,
        columns: Columns,
        filters: Sequence[CompiledFilter],
        rows: Rows,
        rosters: Sequence[Roster],
        broken: Sequence[frozenset[str]],
    ) -> None:
        """`columns` are without the pods in `rosters`, and the pod passes there. They are changed in `usage`.

        `broken`: for each row the UIDs of the pods whose eviction would break a budget; empty for none at all.
        """
        self._columns = columns
        self._rows = rows
        self._rosters = rosters
        lengths = np.array([len(roster.pods) for roster in rosters])
        #: [node, place]: whether there is a pod in this place.
        there: Bools = np.arange(lengths.max(initial=0)) < lengths[:, None]
        priorities: Ints = np.zeros(there.shape, dtype=np.int64)
        priorities[there] = np.concatenate([roster.priorities for roster in rosters])
        amounts: Ints = np.zeros((*there.shape, *columns.usage.shape[:2]), dtype=np.int64)
        amounts[there] = np.concatenate([roster.amounts for roster in rosters])
        breaks: Bools = np.zeros(there.shape, dtype=np.bool_)
        for index, uids in enumerate(broken):
            if uids:
                breaks[index, : lengths[index]] = [pod.uid in uids for pod in rosters[index].pods]
        #: [node, place]: places in the order in which the pods are put back, if it is not that of importance.
        order: Rows = (
            np.argsort(~breaks, axis=1, kind="stable") if breaks.any() else np.zeros(0, dtype=np.intp)
        )
        self._gone = self._put_back(filters, there, amounts, order)
        gone = self._gone
        #: The most important victim is the first: places are by importance.
        first = gone.argmax(axis=1)
        self._first: list[int] = first.tolist()
        ranks = (
            (gone & breaks).sum(axis=1),
            priorities[np.arange(rows.shape[0]), first],
            np.where(gone, priorities + LIFT, 0).sum(axis=1),
            gone.sum(axis=1),
        )
        self._ranks = [Rank._make(each) for each in np.stack(ranks, axis=1).tolist()]

    def _put_back(self, filters: Sequence[CompiledFilter], there: Bools, amounts: Ints, order: Rows) -> Bools:
        """[node, place]: whether the pod has to go."""
        gone: Bools = np.zeros(there.shape, dtype=np.bool_)
        usage, rows = self._columns.usage, self._rows
        nodes = np.arange(rows.shape[0])
        for step in range(there.shape[1]):
            places = order[:, step] if order.size else np.full(rows.shape[0], step)
            now = nodes[there[nodes, places]]
            if not now.size:
                continue
            at, places = rows[now], places[now]
            back = amounts[now, places].transpose(1, 2, 0)
            usage[:, :, at] += back
            fits: Bools = np.ones(now.shape[0], dtype=np.bool_)
            for entry in filters:
                fits &= entry.feasible(self._columns, at)
            if not fits.all():
                short = ~fits
                usage[:, :, at[short]] -= back[:, :, short]
                gone[now[short], places[short]] = True
        return gone

    def prospects(self) -> list[One | None]:
        """In the order of the rows; None where nobody would have to go."""
        return [One(self, index, rank) if rank.victims else None for index, rank in enumerate(self._ranks)]

    def longest(self, index: int) -> str:
        return started(self._rosters[index].pods[self._first[index]])

    def candidate(self, index: int) -> Candidate:
        row = int(self._rows[index])
        node = self._columns.nodes[row]
        assert node is not None, "only nodes that are there are tried"
        pods = self._rosters[index].pods
        victims = tuple(pods[place] for place in np.flatnonzero(self._gone[index]).tolist())
        return Candidate(node.name, row, victims, self._ranks[index].violations)


class One(NamedTuple):
    """One of the rows; see `candidates.Prospect`."""

    of: Together
    index_: int
    rank: Rank

    @property
    def longest(self) -> str:
        return self.of.longest(self.index_)

    def candidate(self) -> Candidate:
        return self.of.candidate(self.index_)
