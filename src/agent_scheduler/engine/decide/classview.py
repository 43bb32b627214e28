"""A pod class compiled for a profile on one snapshot, and what is kept of it from pod to pod.

Invariant: after `refresh`, every kept answer equals what the plugins would say about the snapshot as it stands. How
the best rows are found is one of three strategies, which a view has from when it is made:

- `ByKeptScores`: no plugin looks at other rows. Heads of the kept ranking; where a normalised score tells nodes apart,
  as `ByFacets`.
- `ByFacets`: every plugin that looks at other rows can say of which rows it says the same (`framework.Faceted`). Each
  class of such rows is asked about once; where there are too many classes, as `Scan`.
- `Scan`: all rows are asked about for each pod. Right for every class, and what the others are measured by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Any, Final, cast

import numpy as np

from ..framework.plugin import Depends, Faceted, FacetedScore, PodUnrankable, Profile
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass
from .compiled import CompiledFilter, CompiledScore, filters_of, scores_of
from .facet_classes import FacetClasses, Facets, distinct
from .ranking import REFUSED, best_of
from .refusals import NO_PLUGINS, Diagnosis, Refusal, diagnose, fit_error
from .rowanswers import NodeAnswers, RowAnswers, by_reading
from .shared_prefilter import SharedPreFilters
from .snapshot import Snapshot

#: Scans after which it pays to make classes; and after which to try again where there were too many classes.
_SCANS: Final = 3
_SCANS_AFTER_MANY: Final = 1000


class Scan:
    """Asks the plugins that look at other rows about all rows that the others let pass."""

    def __init__(
        self, rows: RowAnswers, filters: Sequence[CompiledFilter], scores: Sequence[CompiledScore]
    ) -> None:
        """`filters` depend on the cluster. `scores` are what is added to the kept ranking."""
        self.rows = rows
        self._filters = filters
        self._scores = scores

    def follow(self, snapshot: Snapshot, touched: Sequence[int]) -> None:
        """Rows were asked about again, while the ranking has facet classes."""

    def best(self, columns: Columns, count: int, offset: int) -> Sequence[int]:
        """As `ClassView.best`."""
        rows = self.feasible_rows(columns)
        # Of rows in their order those at or after the offset begin at this place.
        place = int(rows.searchsorted(offset)) if 0 <= offset < columns.size else 0
        found: list[int] = rows[best_of(self.totals(columns, rows), count, place)].tolist()
        return found

    def ranked(self, columns: Columns, taken: Sequence[int]) -> Ints:
        """As `ClassView.ranked`."""
        ranked = np.full(columns.size, REFUSED, dtype=np.int64)
        rows = self.feasible_rows(columns)
        if taken:
            rows = rows[~np.isin(rows, taken)]
        ranked[rows] = self.totals(columns, rows)
        return ranked

    def is_relative(self) -> bool:
        """As `ClassView.is_relative`."""
        return bool(self._scores)

    def feasible_rows(self, columns: Columns) -> Rows:
        """Rows that pass every filter."""
        return self._passing(columns, self.rows.all_asked().admitted())

    def totals(self, columns: Columns, rows: Rows) -> Ints:
        """Final score of each of the feasible `rows`, up to a constant that all share."""
        return self.rows.all_asked().scores[rows] + self._added(columns, rows)

    def _passing(self, columns: Columns, rows: Rows) -> Rows:
        for entry in self._filters:
            passed = entry.feasible(columns, rows)
            if np.count_nonzero(passed) < rows.shape[0]:
                rows = rows[passed]
        return rows

    def _added(self, columns: Columns, rows: Rows, classes: FacetClasses | None = None) -> Ints:
        """[row] of feasible `rows`: what is added to the kept score, of the row or, if given, of all of its class."""
        total = np.zeros(rows.shape[0], dtype=np.int64)
        for score in self._scores:
            plugin: Any = score.plugin
            if plugin.depends is not Depends.CLUSTER:
                if not score.varies:
                    continue
                raw = score.raw[rows]
            elif classes is None:
                raw = plugin.score(score.state, columns, rows)
            else:
                raw = plugin.score_classes(score.state, columns, rows, classes.sizes)
            total += score.weight * (plugin.normalize(raw) if plugin.normalize else raw)
        return total


class ByFacets(Scan):
    """Asks about one row of each facet class."""

    def __init__(
        self, rows: RowAnswers, filters: Sequence[CompiledFilter], scores: Sequence[CompiledScore]
    ) -> None:
        """Plugins that depend on the cluster are `Faceted`."""
        Scan.__init__(self, rows, filters, scores)
        #: How often all rows were asked about since there were classes.
        self._scans = 0
        #: True while the ranking has them as its follower.
        self._facet_classes: FacetClasses | None = None
        #: While this is the same, facets are the same arrays; None where they were not looked at.
        self._epoch: tuple[object, ...] | None = None

    def best(self, columns: Columns, count: int, offset: int) -> Sequence[int]:
        classes = self._classes(columns)
        if classes is None:
            return Scan.best(self, columns, count, offset)
        rows = self._passing(columns, classes.examples())
        return classes.best(count, offset, rows, self._added(columns, rows, classes)) if rows.size else ()

    def _classes(self, columns: Columns) -> FacetClasses | None:
        ranking = self.rows.all_asked()
        if ranking.follower is None:
            self._scans += 1
            if self._scans <= _SCANS:
                return None
            self._scans, self._epoch = 0, None
            classes = FacetClasses(self._facets(columns), ranking.scores[: columns.size])
            if classes.are_many:
                self._scans = -_SCANS_AFTER_MANY
                return None
            ranking.follower = self._facet_classes = classes
        return self._facet_classes

    def _facets(self, columns: Columns) -> Facets:
        """All that a final score is made of, beside the kept ranking and what all rows share."""
        found: list[Ints] = []
        asked: list[CompiledFilter | CompiledScore] = [*self._filters]
        for score in self._scores:
            if score.plugin.depends is Depends.CLUSTER:
                asked.append(score)
            elif score.varies:
                found.append(score.raw)
        for each in asked:
            found += cast(Faceted, each.plugin).facets(each.state, columns)
        return distinct(found)

    def follow(self, snapshot: Snapshot, touched: Sequence[int]) -> None:
        ranking = self.rows.ranking
        classes = self._facet_classes
        assert classes is not None, "asked only while there are classes"
        epoch = (
            snapshot.respecified.end,
            snapshot.counts_version,
            *(each.varies for each in self.rows.normalized),
        )
        if epoch != self._epoch:
            self._epoch = epoch
            facets = self._facets(snapshot.columns)
            # By identity: `==` would compare the numbers.
            if len(facets) != len(classes.facets) or not all(map(is_, facets, classes.facets)):
                ranking.follower = self._facet_classes = None
                return
        if not classes.sort_in(touched):
            ranking.follower = self._facet_classes = None


class ByKeptScores(ByFacets):
    """Takes the first rows of the kept ranking."""

    def best(self, columns: Columns, count: int, offset: int) -> Sequence[int]:
        rows = self.rows
        if rows.deferred is not None:
            if not rows.is_chosen_from:
                return rows.first_choice(columns, count, offset)
            rows.all_asked()
        # As `RowAnswers.varies`, which this asks once a pod.
        if rows.nodes.varies or (rows.normalized and rows.varies()):
            return ByFacets.best(self, columns, count, offset)
        return rows.ranking.best(count, offset)

    def ranked(self, columns: Columns, taken: Sequence[int]) -> Ints:
        if self.rows.varies():
            return Scan.ranked(self, columns, taken)
        kept = self.rows.all_asked().scores[: columns.size]
        if not taken:
            return kept
        ranked = kept.copy()
        ranked[taken] = REFUSED
        return ranked

    def is_relative(self) -> bool:
        return self.rows.varies()


def strategy_for(
    nodes: NodeAnswers, filters: Iterable[CompiledFilter], scores: Sequence[CompiledScore]
) -> Scan:
    """The strategy for a class with these filters and scores, of which `nodes` answers for those of nodes."""
    by_filters, by_scores = by_reading(filters), by_reading(scores)
    rows = RowAnswers(nodes, by_filters, by_scores)
    elsewhere, scores_elsewhere = by_filters[2], by_scores[2]
    if not (elsewhere or scores_elsewhere):
        return ByKeptScores(rows, (), tuple([each for each in scores if each.plugin.normalize is not None]))
    added = [each for each in scores if each.plugin.normalize is not None or each in scores_elsewhere]
    if all(isinstance(each.plugin, Faceted) for each in elsewhere) and all(
        isinstance(each.plugin, FacetedScore) for each in scores_elsewhere
    ):
        return ByFacets(rows, elsewhere, added)
    return Scan(rows, elsewhere, added)


class ClassView:
    """A class on one snapshot. Owner: that of the snapshot."""

    def __init__(
        self, profile: Profile, pod: PodClass, snapshot: Snapshot, shared: SharedPreFilters | None = None
    ) -> None:
        """`shared`: what the profile's classes have in common."""
        self.pod = pod
        handle = snapshot.handle
        #: The versions of the objects that the class was compiled from; mostly there are none.
        self.reads = handle.reads()
        shared = shared or SharedPreFilters(profile)
        # Held: `shared` keeps it for as long as a class does.
        self._prefilter = prefilter = shared.of(pod, handle, self.reads)
        #: What the binder asks again on the live ledger, as their states hold nothing of the snapshot; and the filter
        #: that has no node at all for the class, where there is one.
        self.filters, self.rejection = filters_of(prefilter.filters, pod, handle)
        #: Whether some plugin may take more of a node for such a pod than capacity, or decides when it may be bound.
        taking = pod.reserves or not shared.reserving.isdisjoint([id(each.plugin) for each in self.filters])
        self.reserves = taking or bool(profile.permits)
        self._scores: tuple[CompiledScore, ...] = ()
        #: Why nodes cannot be ranked for the class, where a score says so.
        self.unrankable = ""
        try:
            self._scores = scores_of(prefilter.scores, pod, handle)
        except PodUnrankable as why:
            self.unrankable = str(why)
        snapshot.take_new_counts()
        nodes = prefilter.answers
        if nodes is None or self.rejection is not None:
            nodes = shared.answers(
                self.filters, self._scores, rejected=self.rejection is not None, reads=self.reads
            )
            self._scores = nodes.with_own(self._scores)
        self._strategy = strategy_for(nodes, self.filters, self._scores)
        self._rows = self._strategy.rows
        #: (columns, count, offset) -> up to `count` rows that pass every filter, by falling final score; among equals
        #: the first at or after row `offset`, wrapping around. To be called after `refresh`.
        self.best = self._strategy.best
        #: The ledger's sequence that the answers are true for.
        self.seen = -1
        #: What was last said of all nodes, and up to which of the snapshot's changes that was true.
        self._refused: tuple[int, Diagnosis] | None = None

    def refresh(self, snapshot: Snapshot) -> None:
        """Ask the plugins about the rows that changed since the last time."""
        self.seen = snapshot.sequence
        rows = self._rows
        if snapshot.touched.end != rows.position:
            touched = rows.refresh(snapshot)
            if touched is not None and rows.ranking.follower is not None:
                self._strategy.follow(snapshot, touched)

    @property
    def is_outdated(self) -> bool:
        """Whether an object has changed since that a plugin read when it compiled the class."""
        return any(source.version != version for source, version in self.reads.items())

    def ranked(self, columns: Columns, taken: Sequence[int] = ()) -> Ints:
        """[row] final score up to a constant that all share, `REFUSED` where a filter refuses; after `refresh`.

        Rows in `taken` count as refused. Belongs to the view: a caller that writes into it puts back what was there.
        """
        return self._strategy.ranked(columns, taken)

    def is_relative(self) -> bool:
        """Whether it may depend on which other rows are feasible how two compare; after `refresh`."""
        return self._strategy.is_relative()

    def feasible_rows(self, columns: Columns) -> Rows:
        """Rows that pass every filter; call after `refresh`."""
        return self._strategy.feasible_rows(columns)

    def totals(self, columns: Columns, rows: Rows) -> Ints:
        """Final score of each of the feasible `rows`, up to a constant that all share."""
        return self._strategy.totals(columns, rows)

    def plugin_scores(self, columns: Columns, rows: Rows) -> dict[str, Ints]:
        """Weighted, normalised score of each plugin for the feasible `rows`; for explanations."""
        found = {}
        for score in self._scores:
            raw = score.plugin.score(score.state, columns, rows)
            normalize = score.plugin.normalize
            found[score.plugin.name] = score.weight * (normalize(raw) if normalize else raw)
        return found

    def refused(self, columns: Columns, rows: Rows | None = None) -> Diagnosis:
        """What the filters say of `rows`, which are present; by default of all nodes, kept until the next change."""
        if rows is not None:
            return self._ask_why(columns, rows)
        position = self._rows.position
        if self._refused is None or self._refused[0] != position:
            present = np.flatnonzero(columns.present[: columns.size])
            self._refused = (position, self._ask_why(columns, present))
        return self._refused[1]

    def _ask_why(self, columns: Columns, rows: Rows) -> Diagnosis:
        if self.rejection is not None:
            return Diagnosis({}, frozenset((self.rejection.plugin,)) if rows.size else NO_PLUGINS, rows[:0])
        return diagnose(self.filters, columns, rows)

    def refusal(self, columns: Columns, refused: Diagnosis | None = None) -> Refusal:
        """`refused`, by default what the filters say of all nodes, as a message for people."""
        refused = self.refused(columns) if refused is None else refused
        nodes = int(np.count_nonzero(columns.present[: columns.size]))
        if self.rejection is not None and nodes:
            return Refusal(f"0/{nodes} nodes are available: {self.rejection.message}.", refused.plugins)
        return Refusal(fit_error(nodes, refused.counts), refused.plugins)
