"""What the plugins say of every node for one class, kept from pod to pod.

A view asks again only for rows that changed, and what depends on nodes alone it shares with other classes
(`nodeanswers`). Invariant: after `refresh`, every kept answer equals what the plugin would say about the snapshot as
it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any, Final, TypeVar, cast

import numpy as np

from ..framework.plugin import Depends, Facetted, FacettedScore, PodUnrankable, Profile
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass
from .cells import Cells, Facets, distinct
from .compiled import (
    Asked,
    CompiledFilter,
    CompiledScore,
    Rejection,
    both,
    filters_of,
    scores_of,
)
from .heads import REFUSED, best_of
from .outline import Outlines
from .ranking import Ranking
from .refusals import NO_PLUGINS, Refusal, Refused, fit_error, refused_by
from .snapshot import Snapshot

Entry = TypeVar("Entry", CompiledFilter, CompiledScore)

#: What is asked again about a row whenever something has changed there.
_OF_THE_ROW: Final = (Depends.ROOM, Depends.USAGE)

#: So many changed rows are asked about one by one; more of them together.
_ONE_BY_ONE = 16

#: Rows of the order that are tried before all, and pods for which that is left alone where it was of no use.
_FIRST: Final = 48
_PAUSE: Final = 64

#: Looks at all rows, after which it pays to put them into cells.
_LOOKS: Final = 3

#: Of a view that has not been asked about rows. Nobody writes to it.
_NO_RANKING: Final = Ranking(0)


class ClassView:
    """A class on one snapshot. Owner: whoever owns the snapshot."""

    __slots__ = (
        "_elsewhere",
        "_epoch",
        "_facetted",
        "_filters",
        "_generation",
        "_is_decided",
        "_kinds",
        "_looks",
        "_looks_elsewhere",
        "_nodes",
        "_normalized",
        "_of_room",
        "_of_row",
        "_outline",
        "_pause",
        "_position",
        "_ranking",
        "_ranks_elsewhere",
        "_reads",
        "_refused",
        "_rejection",
        "_row_filters",
        "_row_scores",
        "_scores",
        "pod",
        "reserves",
        "seen",
        "unrankable",
    )

    def __init__(
        self, profile: Profile, pod: PodClass, snapshot: Snapshot, outlines: Outlines | None = None
    ) -> None:
        """`outlines`: what the profile's classes have in common."""
        self.pod = pod
        handle = snapshot.handle
        #: What the states below were compiled from, beside the class.
        self._reads = handle.reads()
        outlines = outlines or Outlines(profile)
        self._outline = outline = outlines.of(pod, handle, self._reads)
        self._filters, self._rejection = filters_of(outline.filters, pod, handle)
        #: Whether some plugin may take more of a node for such a pod than capacity.
        reserving = {id(plugin) for plugin in profile.reserves}
        self.reserves = pod.reserves or any(id(each.plugin) in reserving for each in self._filters)
        self._scores: tuple[CompiledScore, ...] = ()
        #: Why nodes cannot be ranked for the class, where a score says so.
        self.unrankable = ""
        try:
            self._scores = scores_of(outline.scores, pod, handle)
        except PodUnrankable as why:
            self.unrankable = str(why)
        snapshot.take_new_counts()
        if outline.answers is not None and self._rejection is None:
            self._nodes = outline.answers
        else:
            self._nodes = outlines.answers(
                self._filters, self._scores, rejected=self._rejection is not None, reads=self._reads
            )
            self._scores = self._nodes.with_own(self._scores)
        room_filters, row_filters, elsewhere = _by_what_they_read(self._filters)
        room_scores, row_scores, ranking = _by_what_they_read(self._scores)
        #: Of what is asked again about a row whenever something has changed there: what rows that are alike have in
        #: common, and what they have not.
        self._of_room = Asked(room_filters, room_scores)
        self._of_row = Asked(row_filters, row_scores)
        self._normalized = tuple([each for each in row_scores if each.plugin.normalize is not None])
        #: What of them is asked about one row; empty until there are answers of rows.
        self._row_filters: tuple[tuple[Callable[[Any, Columns, int], bool], Any], ...] = ()
        self._row_scores: tuple[tuple[int, Callable[[Any, Columns, int], int], Any], ...] = ()
        self._elsewhere = tuple(elsewhere)
        self._ranks_elsewhere = bool(ranking)
        #: For how many more pods the first rows are not tried. The first pod of a class may be its last.
        self._pause = 1
        self._looks_elsewhere = bool(elsewhere or ranking)
        #: Plugins that look at other rows, with their states; None where one cannot say of which rows it says the same.
        self._facetted = _facetted(elsewhere, ranking) if self._looks_elsewhere else ()
        #: How often all rows have been looked at since there were cells.
        self._looks = 0
        #: When the facets of the cells were last looked at; None where they are new.
        self._epoch: tuple[object, ...] | None = None
        #: The ledger's sequence that the answers are true for.
        self.seen = -1
        #: What was last said of all nodes, and what `seen` was then.
        self._refused: tuple[int, Refused] | None = None
        self._position = -1
        self._generation = -1
        #: What the first pod of the class is decided by, which may be its last: no row is told its answer before it is
        #: asked for. None where all rows know theirs.
        self._kinds: Snapshot | None = None
        self._is_decided = False
        #: [row] weighted sum of the scores that do not depend on the cluster and need no normalising; refused where a
        #: filter that does not depend on the cluster refuses, or where there is no node.
        self._ranking = _NO_RANKING

    def refresh(self, snapshot: Snapshot) -> None:
        """Ask the plugins about the rows that changed since the last time."""
        self.seen = snapshot.sequence
        log = snapshot.touched
        if log.end == self._position:
            return
        columns, nodes = snapshot.columns, self._nodes
        nodes.refresh(snapshot)
        touched = log.since(self._position)
        self._position = log.end
        if not self._is_decided and self._is_of_room_alone():
            self._kinds = snapshot
            return
        if touched is None or self._kinds is not None or nodes.generation != self._generation:
            self._ask_about_all(snapshot)
        else:
            self._ranking.resize(columns.size)
            if len(touched) <= _ONE_BY_ONE:
                for row in touched:
                    self._ask_about_row(columns, row)
            else:
                self._ask_about_rows(columns, np.asarray(touched, dtype=np.intp))
        cells = self._ranking.cells
        if cells is not None and touched is not None:
            self._follow(cells, snapshot, touched)

    def _follow(self, cells: Cells, snapshot: Snapshot, touched: Sequence[int]) -> None:
        """Bring `cells` up to date with the rows that were touched, or drop them."""
        # While this is the same, the facets are the same arrays.
        epoch = (
            snapshot.respecified.end,
            snapshot.counts_version,
            *(each.varies for each in self._normalized),
        )
        if epoch != self._epoch:
            self._epoch = epoch
            facets = self._facets(snapshot.columns)
            # By identity: `==` would compare the numbers.
            if len(facets) != len(cells.facets) or not all(map(is_, facets, cells.facets)):
                self._ranking.cells = None
                return
        if not cells.sort_in(touched):
            self._ranking.cells = None

    @property
    def filters(self) -> tuple[CompiledFilter, ...]:
        """What the binder asks again on the live ledger; their states hold nothing of the snapshot."""
        return self._filters

    @property
    def rejection(self) -> Rejection | None:
        """The filter that has no node at all for the class, where there is one."""
        return self._rejection

    @property
    def is_outdated(self) -> bool:
        """Whether an object has changed since that a plugin read when it compiled the class."""
        # Mostly there is none, and this is asked once a pod.
        return bool(self._reads) and any(source.version != version for source, version in self._reads.items())

    def _is_of_room_alone(self) -> bool:
        """Whether rows that offer the same and have the same taken have the same final score, up to a constant."""
        return not (self._looks_elsewhere or self._of_row or self._nodes.matters or self._varies())

    def _ask_about_kinds(self, snapshot: Snapshot) -> Ints:
        return snapshot.alike.ask(lambda rows: self._of_room.about(snapshot.columns, rows))

    def _ask_about_all(self, snapshot: Snapshot) -> None:
        """What depends on room alone is asked about one row of each kind."""
        columns = snapshot.columns
        self._kinds = None
        self._generation = self._nodes.generation
        filters, scores = (
            (*self._of_room.filters, *self._of_row.filters),
            (*self._of_room.scores, *self._of_row.scores),
        )
        self._row_filters = tuple((each.plugin.feasible_row, each.state) for each in filters)
        self._row_scores = tuple(
            (each.weight, each.plugin.score_row, each.state)
            for each in scores
            if each.plugin.normalize is None
        )
        self._ranking = Ranking(columns.capacity, columns.size)
        for score in self._normalized:
            score.forget(columns.capacity)
        values = self._ask_about_kinds(snapshot)[snapshot.alike.of[: columns.size]]
        if self._of_row:
            values = both(values, self._of_row.about(columns, columns.all_rows()))
        if self._nodes.matters:
            values = both(self._nodes.base[: columns.size], values)
        self._ranking.fill(values)

    def _ask_about_rows(self, columns: Columns, rows: Rows) -> None:
        values = both(self._of_room.about(columns, rows), self._of_row.about(columns, rows))
        self._ranking.set_rows(rows, both(self._nodes.base[rows], values))

    def _ask_about_row(self, columns: Columns, row: int) -> None:
        """`_ask_about_rows` for one."""
        total = self._nodes.cells[row]
        if total != REFUSED:
            for feasible, state in self._row_filters:
                if not feasible(state, columns, row):
                    total = REFUSED
                    break
            else:
                for weight, score_row, state in self._row_scores:
                    total += weight * score_row(state, columns, row)
                for score in self._normalized:
                    score.of_row(columns, row)
        self._ranking.set(row, total)

    def best(self, columns: Columns, count: int, offset: int) -> Sequence[int]:
        """Up to `count` rows that pass every filter, by falling final score; among equals the first at or after row
        `offset`, wrapping around. Call after `refresh`."""
        if self._kinds is not None and not self._is_decided:
            self._is_decided = True
            of_room = self._of_room
            return self._kinds.alike.best(
                lambda rows: of_room.passing(columns, rows), count, offset, columns.size
            )
        if not self._looks_elsewhere and not self._varies():
            ranking = self._ranking if self._kinds is None else self._rows_ranked()
            return ranking.best(count, offset)
        chosen = self._among_cells(columns, count, offset)
        if chosen is None and not self._ranks_elsewhere and not self._varies():
            chosen = self._among_first(columns, count, offset)
        if chosen is not None:
            return chosen
        rows = self.feasible_rows(columns)
        # Of rows in their order those at or after the offset begin at this place.
        place = int(rows.searchsorted(offset)) if 0 <= offset < columns.size else 0
        found: list[int] = rows[best_of(self.totals(columns, rows), count, place)].tolist()
        return found

    def _rows_ranked(self) -> Ranking:
        if self._kinds is not None:
            self._ask_about_all(self._kinds)
        return self._ranking

    def _among_cells(self, columns: Columns, count: int, offset: int) -> Sequence[int] | None:
        """`best`, where rows have been put into cells; None where that is not, or not yet, worth while."""
        if self._facetted is None:
            return None
        cells = self._ranking.cells
        if cells is None:
            self._looks += 1
            if self._looks <= _LOOKS:
                return None
            self._looks = 0
            cells = Cells(self._facets(columns), self._ranking.scores[: columns.size])
            self._ranking.cells, self._epoch = cells, None
        if cells.are_many:
            return None
        rows = self._passing_elsewhere(columns, cells.examples())
        return cells.best(count, offset, rows, self._weighed(columns, rows, cells)) if rows.size else ()

    def _facets(self, columns: Columns) -> Facets:
        """All that a final score is made of, beside the kept sums and what all rows share."""
        found = [score.raw for score in self._scores if score.varies]
        for plugin, state in self._facetted or ():
            found += plugin.facets(state, columns)
        return distinct(found)

    def _among_first(self, columns: Columns, count: int, offset: int) -> Sequence[int] | None:
        """`best`, where enough of the rows with the best kept scores pass the filters that look at other rows; None
        where they have to be sought among all."""
        if self._pause:
            self._pause -= 1
            return None
        rows = np.array(self._ranking.best(_FIRST, offset), dtype=np.intp)
        passing = self._passing_elsewhere(columns, rows)
        if passing.shape[0] < count and rows.shape[0] == _FIRST:
            self._pause = _PAUSE
            return None
        found: list[int] = passing[:count].tolist()
        return found

    def _varies(self) -> bool:
        """Whether a score that is normalised, and does not depend on the cluster, tells nodes apart."""
        if self._nodes.varies:
            return True
        # Mostly there is none.
        return bool(self._normalized) and any(score.varies for score in self._normalized)

    def ranked(self, columns: Columns, taken: Sequence[int] = ()) -> Ints:
        """[row] final score up to a constant that all share, `REFUSED` where a filter refuses; after `refresh`.

        Rows in `taken` count as refused. Belongs to the view: whoever writes into it puts back what was there.
        """
        kept = self._rows_ranked().scores[: columns.size]
        if not self._looks_elsewhere and not self._varies():
            if not taken:
                return kept
            ranked = kept.copy()
            ranked[taken] = REFUSED
            return ranked
        ranked = np.full(columns.size, REFUSED, dtype=np.int64)
        rows = self.feasible_rows(columns)
        if taken:
            rows = rows[~np.isin(rows, taken)]
        ranked[rows] = self.totals(columns, rows)
        return ranked

    def feasible_rows(self, columns: Columns) -> Rows:
        """Rows that pass every filter; call after `refresh`."""
        return self._passing_elsewhere(columns, self._rows_ranked().admitted())

    def _passing_elsewhere(self, columns: Columns, rows: Rows) -> Rows:
        for entry in self._elsewhere:
            passed = entry.feasible(columns, rows)
            if np.count_nonzero(passed) < rows.shape[0]:
                rows = rows[passed]
        return rows

    def totals(self, columns: Columns, rows: Rows) -> Ints:
        """Final score of each of the feasible `rows`, up to a constant that all share."""
        return self._rows_ranked().scores[rows] + self._weighed(columns, rows)

    def _weighed(self, columns: Columns, rows: Rows, cells: Cells | None = None) -> Ints:
        """What is added to the kept sum of each of the feasible `rows`, or, if given, of all rows of their cells."""
        total = np.zeros(rows.shape[0], dtype=np.int64)
        for score in self._scores:
            plugin: Any = score.plugin
            if plugin.depends is Depends.CLUSTER:
                if cells is None:
                    raw = plugin.score(score.state, columns, rows)
                else:
                    raw = plugin.score_cells(score.state, columns, rows, cells.sizes)
            elif plugin.normalize is None or not score.varies:
                continue
            else:
                raw = score.raw[rows]
            total += score.weight * (plugin.normalize(raw) if plugin.normalize else raw)
        return total

    def plugin_scores(self, columns: Columns, rows: Rows) -> dict[str, Ints]:
        """Weighted, normalised score of each plugin for the feasible `rows`; for explanations."""
        found = {}
        for score in self._scores:
            raw = score.plugin.score(score.state, columns, rows)
            normalize = score.plugin.normalize
            found[score.plugin.name] = score.weight * (normalize(raw) if normalize else raw)
        return found

    def refused(self, columns: Columns, rows: Rows | None = None) -> Refused:
        """What the filters say of `rows`, which are present; by default of all nodes, kept until the next change."""
        if rows is not None:
            return self._ask_why(columns, rows)
        if self._refused is None or self._refused[0] != self.seen:
            present = np.flatnonzero(columns.present[: columns.size])
            self._refused = (self.seen, self._ask_why(columns, present))
        return self._refused[1]

    def _ask_why(self, columns: Columns, rows: Rows) -> Refused:
        if self._rejection is not None:
            return Refused({}, frozenset((self._rejection.plugin,)) if rows.size else NO_PLUGINS, rows[:0])
        return refused_by(self._filters, columns, rows)

    def refusal(self, columns: Columns, refused: Refused | None = None) -> Refusal:
        """`refused`, by default what the filters say of all nodes, as people are told it."""
        refused = self.refused(columns) if refused is None else refused
        nodes = int(np.count_nonzero(columns.present[: columns.size]))
        if self._rejection is not None and nodes:
            return Refusal(f"0/{nodes} nodes are available: {self._rejection.message}.", refused.plugins)
        return Refusal(fit_error(nodes, refused.counts), refused.plugins)


def _by_what_they_read(entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """Those that say the same of rows that are alike, the others that read a row and what is on it, and those that look
    at other rows. What is normalised is kept by row."""
    of_room, of_row, elsewhere = [], [], []
    for entry in entries:
        plugin = entry.plugin
        depends = plugin.depends
        if depends is Depends.CLUSTER:
            elsewhere.append(entry)
        elif depends is Depends.ROOM and getattr(plugin, "normalize", None) is None:
            of_room.append(entry)
        elif depends in _OF_THE_ROW:
            of_row.append(entry)
    return of_room, of_row, elsewhere


def _facetted(
    filters: Sequence[CompiledFilter], scores: Sequence[CompiledScore]
) -> tuple[tuple[Facetted, Any], ...] | None:
    if not all(isinstance(each.plugin, Facetted) for each in filters):
        return None
    if not all(isinstance(each.plugin, FacettedScore) for each in scores):
        return None
    entries: tuple[CompiledFilter | CompiledScore, ...] = (*filters, *scores)
    return tuple((cast(Facetted, each.plugin), each.state) for each in entries)
