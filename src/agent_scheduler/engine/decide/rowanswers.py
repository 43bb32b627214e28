"""The answers of a class's plugins for each row by itself, kept from pod to pod.

Only changed rows are asked about again. The answers that depend on nodes alone (`NodeAnswers`) are shared by classes
with equal compiled states of those plugins, because answers are pure in state, columns and rows (`framework.plugin`).
Answers that depend on capacity alone are computed once for each class of equal rows (`capacity_classes`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from ..framework.plugin import Depends
from ..state.columns import Columns, Ints, Rows
from .compiled import CompiledFilter, CompiledScore, RowQuery, ScorePart, both
from .ranking import REFUSED, Ranking, ScoredRow
from .snapshot import Snapshot

Part = TypeVar("Part", bound=ScorePart)


#: Dependencies on nodes alone, and those on a row and its pods.
OF_NODES: Final = (Depends.NODE, Depends.NODES)
OF_A_ROW: Final = (Depends.ROOM, Depends.USAGE)


class NodeAnswers:
    """The answers of filters and scores that read nodes alone, for each row of one snapshot.

    Invariant: after `refresh`, they equal the plugins' answers for the current nodes.
    """

    def __init__(
        self, filters: Iterable[CompiledFilter], scores: Iterable[CompiledScore], *, rejected: bool = False
    ) -> None:
        """Store the plugins that read nodes alone; `rejected` is true if a filter rejects the class on every node."""
        self.scores = tuple(each for each in scores if each.plugin.depends in OF_NODES)
        self._asked = RowQuery([each for each in filters if each.plugin.depends is Depends.NODE], self.scores)
        self._rejected = rejected
        self._specs_matter = any(each.plugin.depends is Depends.NODES for each in self.scores)
        self._shape = (-1, -1)
        #: The position up to which the changes of nodes have been read.
        self.position = -1
        #: Increases whenever all rows were asked about again.
        self.generation = 0
        #: [row] weighted sum of the scores that need no normalizing; `REFUSED` if a filter refuses or the row has no
        #: node. `base_view` is the same memory, for reading single items.
        self.base: Ints = np.zeros(0, dtype=np.int64)
        self.base_view = self.base.data
        #: Whether a normalized score tells nodes apart.
        self.varies = False
        #: Whether any row in use is refused or has a sum other than 0.
        self.matters = True

    def key(self) -> Hashable | None:
        """Return a key that is equal for classes that can share these answers; None for a class that cannot share."""
        states: tuple[CompiledFilter | CompiledScore, ...] = (*self._asked.filters, *self.scores)
        key = (self._rejected, *((id(each.plugin), each.state) for each in states))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def with_own(self, scores: Iterable[Part]) -> tuple[Part | CompiledScore, ...]:
        """Return `scores`, with each whose raw scores are kept here replaced by that object."""
        own = {id(each.plugin): each for each in self.scores}
        return tuple(own.get(id(each.plugin), each) for each in scores)

    def refresh(self, snapshot: Snapshot) -> None:
        if snapshot.respecified.end == self.position and snapshot.shape == self._shape:
            return
        columns = snapshot.columns
        rows = snapshot.respecified.since(self.position)
        self.position = snapshot.respecified.end
        if rows is None or self._specs_matter or snapshot.shape != self._shape:
            self._shape = snapshot.shape
            self.generation += 1
            self.base = np.full(columns.capacity, REFUSED, dtype=np.int64)
            self.base_view = self.base.data
            for score in self.scores:
                score.forget(columns.capacity)
            self._ask(columns, columns.all_rows())
        else:
            self._ask(columns, np.asarray(rows, dtype=np.intp))
        self.varies = any(score.varies for score in self.scores)
        self.matters = bool(self.base[: columns.size].any())

    def _ask(self, columns: Columns, rows: Rows) -> None:
        total = self._asked.about(columns, rows)
        there = columns.present[rows]
        self.base[rows] = REFUSED if self._rejected else np.where(there, total, REFUSED)


#: Up to this number of changed rows are asked about one by one. More are asked about by one call of each plugin.
_ONE_BY_ONE: Final = 16

#: The most changes per row that an outdated view examines individually.
_CHANGES_A_ROW: Final = 1

#: The ranking before any row has been asked about. Never written to.
_NO_RANKING: Final = Ranking(0)

Entry = TypeVar("Entry", CompiledFilter, CompiledScore)


#: Filters or scores that read capacity alone and are not normalized, those that read a row and its pods, and those that
#: read other rows.
ByReading = tuple[list[Entry], list[Entry], list[Entry]]


def by_reading(entries: Iterable[Entry]) -> ByReading[Entry]:
    """Group the entries by what they read. Those that read nodes alone are left out."""
    of_capacity: list[Entry] = []
    of_row: list[Entry] = []
    elsewhere: list[Entry] = []
    for entry in entries:
        plugin = entry.plugin
        depends = plugin.depends
        if depends is Depends.CLUSTER:
            elsewhere.append(entry)
        elif depends is Depends.ROOM and getattr(plugin, "normalize", None) is None:
            of_capacity.append(entry)
        elif depends in OF_A_ROW:
            of_row.append(entry)
    return of_capacity, of_row, elsewhere


class RowAnswers:
    """The answers for each row.

    Invariant: after `refresh`, `ranking` equals the plugins' answers, or `deferred` is set.
    """

    def __init__(
        self, nodes: NodeAnswers, filters: ByReading[CompiledFilter], scores: ByReading[CompiledScore]
    ) -> None:
        self.nodes = nodes
        capacity_filters, row_filters, filters_elsewhere = filters
        capacity_scores, row_scores, scores_elsewhere = scores
        self._looks_elsewhere = bool(filters_elsewhere or scores_elsewhere)
        self._of_capacity = RowQuery(capacity_filters, capacity_scores)
        self._of_row = RowQuery(row_filters, row_scores)
        #: Scores whose raw values are kept by row, and which read more than nodes.
        self.normalized = tuple([each for each in row_scores if each.plugin.normalize is not None])
        #: The same plugins as they are called for a single row; empty while `deferred`.
        self._row_filters: tuple[tuple[Callable[[Any, Columns, int], bool], Any], ...] = ()
        self._row_scores: tuple[tuple[int, Callable[[Any, Columns, int], int], Any], ...] = ()
        self._generation = -1
        #: Position in `Snapshot.touched` up to which the answers hold.
        self.position = -1
        #: Set while no row has been asked about, because the next choice may be the class's last and can be made from
        #: `capacity_classes` alone; see `first_choice`.
        self.deferred: Snapshot | None = None
        self.is_chosen_from = False
        #: [row] weighted sum of the scores that need no normalizing; `REFUSED` if a filter refuses or the row has no
        #: node.
        self.ranking = _NO_RANKING

    def refresh(self, snapshot: Snapshot) -> Sequence[int] | None:
        """Ask again about the rows that changed and return these; None if all were asked about, or none yet."""
        columns, nodes, log = snapshot.columns, self.nodes, snapshot.touched
        nodes.refresh(snapshot)
        # With more changes, finding out which rows they concern costs more than asking about all rows.
        many = log.end - self.position > _CHANGES_A_ROW * columns.size
        touched = None if many else log.since(self.position)
        self.position = log.end
        if not self.is_chosen_from and self._is_of_capacity_alone():
            self.deferred = snapshot
            return None
        if touched is None or self.deferred is not None or nodes.generation != self._generation:
            self._ask_about_all(snapshot)
            return None
        if columns.size != self.ranking.size:
            self.ranking.resize(columns.size)
        if len(touched) <= _ONE_BY_ONE:
            for row in touched:
                self._ask_about_row(columns, row)
        else:
            self._ask_about_rows(columns, np.asarray(touched, dtype=np.intp))
        return touched

    def first_choice(self, columns: Columns, count: int, offset: int) -> Sequence[ScoredRow]:
        """Return the best `count` rows while `deferred`. Asks about each class of equal rows; keeps nothing."""
        assert self.deferred is not None, "asked while rows are deferred"
        self.is_chosen_from = True
        of_capacity = self._of_capacity
        return self.deferred.capacity_classes.best(
            lambda rows: of_capacity.passing(columns, rows), count, offset, columns.size
        )

    def all_asked(self) -> Ranking:
        """Return `ranking` after all rows have been asked about."""
        if self.deferred is not None:
            self._ask_about_all(self.deferred)
        return self.ranking

    def varies(self) -> bool:
        """Return whether a normalized score that does not depend on the cluster tells nodes apart."""
        if self.nodes.varies:
            return True
        # Usually there is no such score.
        return bool(self.normalized) and any(score.varies for score in self.normalized)

    def _is_of_capacity_alone(self) -> bool:
        """Return whether rows of one capacity class have the same final score, up to a constant."""
        return not (self._looks_elsewhere or self._of_row or self.nodes.matters or self.varies())

    def _ask_about_all(self, snapshot: Snapshot) -> None:
        columns = snapshot.columns
        self.deferred = None
        self._generation = self.nodes.generation
        filters = (*self._of_capacity.filters, *self._of_row.filters)
        scores = (*self._of_capacity.scores, *self._of_row.scores)
        self._row_filters = tuple((each.plugin.feasible_row, each.state) for each in filters)
        self._row_scores = tuple(
            (each.weight, each.plugin.score_row, each.state) for each in scores if each.plugin.normalize is None
        )
        self.ranking = Ranking(columns.capacity, columns.size)
        for score in self.normalized:
            score.forget(columns.capacity)
        classes = snapshot.capacity_classes
        values = classes.ask(lambda rows: self._of_capacity.about(columns, rows))[classes.of[: columns.size]]
        if self._of_row:
            values = both(values, self._of_row.about(columns, columns.all_rows()))
        if self.nodes.matters:
            values = both(self.nodes.base[: columns.size], values)
        self.ranking.fill(values)

    def _ask_about_rows(self, columns: Columns, rows: Rows) -> None:
        values = self._of_capacity.about(columns, rows)
        if self._of_row:
            values = both(values, self._of_row.about(columns, rows))
        if self.nodes.matters:
            values = both(self.nodes.base[rows], values)
        self.ranking.set_rows(rows, values)

    def _ask_about_row(self, columns: Columns, row: int) -> None:
        """Ask about one row, as `_ask_about_rows` does for several."""
        total = self.nodes.base_view[row]
        if total != REFUSED:
            for feasible, state in self._row_filters:
                if not feasible(state, columns, row):
                    total = REFUSED
                    break
            else:
                for weight, score_row, state in self._row_scores:
                    total += weight * score_row(state, columns, row)
                for score in self.normalized:
                    score.of_row(columns, row)
        self.ranking.set(row, total)
