"""A pod class compiled for a profile on one snapshot, with the answers that are kept from pod to pod.

Invariant: after `refresh`, every kept answer equals the answer of the plugins for the current snapshot. A view finds
the best rows by one of three strategies, chosen when it is created:

- `ByKeptScores`: no plugin reads other rows. Takes the heads of the kept ranking; works as `ByFacets` while a
  normalized score tells nodes apart.
- `ByFacets`: every plugin that reads other rows can name the rows with equal answers (`framework.Faceted`). Asks about
  each class of such rows once; works as `Scan` if there are too many classes.
- `Scan`: asks about all rows for each pod. It is correct for every class, and the reference for the other two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Any, Final, cast

import numpy as np

from ..framework.plugin import POD_SPEC, Depends, Faceted, FacetedScore, PodUnrankable, Profile
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass
from .compiled import CompiledFilter, CompiledScore, Rejection, filters_of, scores_of
from .facet_classes import FacetClasses, Facets, distinct
from .ranking import REFUSED, ScoredRow, best_of
from .refusals import NO_PLUGINS, Diagnosis, Refusal, diagnose, fit_error
from .rowanswers import NodeAnswers, RowAnswers, by_reading
from .shared_prefilter import SharedPreFilters
from .snapshot import Snapshot

#: The scans after which classes pay off, and those after which to try again if there were too many classes.
_SCANS: Final = 3
_SCANS_AFTER_MANY: Final = 1000


class Scan:
    """Asks the plugins that read other rows about all rows that the other plugins pass."""

    def __init__(self, rows: RowAnswers, filters: Sequence[CompiledFilter], scores: Sequence[CompiledScore]) -> None:
        """Store the `filters` that depend on the cluster and the `scores` that are added to the kept ranking."""
        self.rows = rows
        self._filters = filters
        self._scores = scores

    def follow(self, snapshot: Snapshot, touched: Sequence[int]) -> None:
        """Handle rows whose answers were renewed while the ranking has facet classes."""

    def best(self, columns: Columns, count: int, offset: int) -> Sequence[ScoredRow]:
        """Return the best rows as `ClassView.best` does."""
        rows = self.feasible_rows(columns)
        # The rows are in ascending order; those at or after the offset begin at this index.
        place = int(rows.searchsorted(offset)) if 0 <= offset < columns.size else 0
        return [(rows.item(index), score) for index, score in best_of(self.totals(columns, rows), count, place)]

    def ranked(self, columns: Columns, taken: Sequence[int]) -> Ints:
        """Return the scores as `ClassView.ranked` does."""
        ranked = np.full(columns.size, REFUSED, dtype=np.int64)
        rows = self.feasible_rows(columns)
        if taken:
            rows = rows[~np.isin(rows, taken)]
        ranked[rows] = self.totals(columns, rows)
        return ranked

    def is_relative(self) -> bool:
        """Return the answer as `ClassView.is_relative` does."""
        return bool(self._scores)

    def feasible_rows(self, columns: Columns) -> Rows:
        """Return the rows that pass every filter."""
        return self._passing(columns, self.rows.all_asked().admitted())

    def totals(self, columns: Columns, rows: Rows) -> Ints:
        """Return the final score of each of the feasible `rows`, up to a constant that all rows share."""
        return self.rows.all_asked().scores[rows] + self._added(columns, rows)

    def _passing(self, columns: Columns, rows: Rows) -> Rows:
        for entry in self._filters:
            passed = entry.feasible(columns, rows)
            if np.count_nonzero(passed) < rows.shape[0]:
                rows = rows[passed]
        return rows

    def _added(self, columns: Columns, rows: Rows, classes: FacetClasses | None = None) -> Ints:
        """Return for each of the feasible `rows` the sum that is added to its kept score.

        With `classes`, each of the rows represents its facet class.
        """
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

    def __init__(self, rows: RowAnswers, filters: Sequence[CompiledFilter], scores: Sequence[CompiledScore]) -> None:
        """Expect that the plugins that depend on the cluster are `Faceted`."""
        Scan.__init__(self, rows, filters, scores)
        #: Scans of all rows since the last classes existed.
        self._scans = 0
        #: Set while the ranking has these classes as its follower.
        self._facet_classes: FacetClasses | None = None
        #: Facets are the same arrays while this is unchanged. None before they were first compared.
        self._epoch: tuple[object, ...] | None = None

    def best(self, columns: Columns, count: int, offset: int) -> Sequence[ScoredRow]:
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
        """Return the facets of all parts of a final score but the kept ranking and what all rows share."""
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
        epoch = (snapshot.respecified.end, snapshot.counts_version, *(each.varies for each in self.rows.normalized))
        if epoch != self._epoch:
            self._epoch = epoch
            facets = self._facets(snapshot.columns)
            # Compared by identity: `==` would compare the numbers.
            if len(facets) != len(classes.facets) or not all(map(is_, facets, classes.facets)):
                ranking.follower = self._facet_classes = None
                return
        if not classes.sort_in(touched):
            ranking.follower = self._facet_classes = None


class ByKeptScores(ByFacets):
    """Takes the first rows of the kept ranking."""

    def best(self, columns: Columns, count: int, offset: int) -> Sequence[ScoredRow]:
        rows = self.rows
        if rows.deferred is not None:
            if not rows.is_chosen_from:
                return rows.first_choice(columns, count, offset)
            rows.all_asked()
        # Equals `RowAnswers.varies`; inlined because it runs once per pod.
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


def strategy_for(nodes: NodeAnswers, filters: Iterable[CompiledFilter], scores: Sequence[CompiledScore]) -> Scan:
    """Return the strategy for a class with these filters and scores; `nodes` has the answers that read nodes alone."""
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
    """A class on one snapshot. Owned by the owner of the snapshot."""

    def __init__(
        self, profile: Profile, pod: PodClass, snapshot: Snapshot, shared: SharedPreFilters | None = None
    ) -> None:
        """Compile the class; `shared` has the states that the profile's classes have in common."""
        self.pod = pod
        handle = snapshot.handle
        #: The versions of the objects that the class was compiled from. Usually empty.
        self.reads = handle.reads()
        shared = shared or SharedPreFilters(profile)
        #: Why the class is not decided on, see `budget`; empty if it is.
        self.excess = snapshot.excess(pod)
        # Referenced here because `shared` keeps it only while a class holds it.
        self._prefilter = prefilter = shared.blank if self.excess else shared.of(pod, handle, self.reads)
        #: The filters, which the binder also asks on the live ledger because their states hold nothing of the snapshot;
        #: and the filter that rejects the class on every node, if any.
        self.filters, self.rejection = (
            ((), Rejection(POD_SPEC, self.excess)) if self.excess else filters_of(prefilter.filters, pod, handle)
        )
        #: Whether a plugin may take more of a node for such a pod than capacity, or decides when it may be bound.
        taking = pod.reserves or not shared.reserving.isdisjoint([id(each.plugin) for each in self.filters])
        self.reserves = taking or bool(profile.permits)
        self._scores: tuple[CompiledScore, ...] = ()
        #: The reason why nodes cannot be ranked for the class, or "".
        self.unrankable = ""
        try:
            if not self.excess:
                self._scores = scores_of(prefilter.scores, pod, handle)
        except PodUnrankable as why:
            self.unrankable = str(why)
        snapshot.take_new_counts()
        nodes = prefilter.answers
        if nodes is None or self.rejection is not None:
            nodes = shared.answers(self.filters, self._scores, rejected=self.rejection is not None, reads=self.reads)
            self._scores = nodes.with_own(self._scores)
        self._strategy = strategy_for(nodes, self.filters, self._scores)
        self._rows = self._strategy.rows
        #: (columns, count, offset) -> up to `count` rows that pass every filter, by falling final score, each with this
        #: score up to a constant that all rows share. Among equal scores the first at or after row `offset` wins,
        #: wrapping around. Call after `refresh`.
        self.best = self._strategy.best
        #: The ledger's sequence that the answers hold for.
        self.seen = -1
        #: The last diagnosis of all nodes, and the position in the snapshot's changes that it holds for.
        self._refused: tuple[int, Diagnosis] | None = None

    def refresh(self, snapshot: Snapshot) -> None:
        """Ask the plugins about the rows that changed since the last call."""
        self.seen = snapshot.sequence
        rows = self._rows
        if snapshot.touched.end != rows.position:
            touched = rows.refresh(snapshot)
            if touched is not None and rows.ranking.follower is not None:
                self._strategy.follow(snapshot, touched)

    @property
    def is_outdated(self) -> bool:
        """Whether an object that a plugin read when it compiled the class has changed since."""
        return any(source.version != version for source, version in self.reads.items())

    def ranked(self, columns: Columns, taken: Sequence[int] = ()) -> Ints:
        """Return [row] the final score up to a constant that all rows share, `REFUSED` if a filter refuses.

        Rows in `taken` count as refused. Call after `refresh`. The array belongs to the view: a caller that writes into
        it restores it.
        """
        return self._strategy.ranked(columns, taken)

    def is_relative(self) -> bool:
        """Return whether the order of two rows may depend on which other rows are feasible; call after `refresh`."""
        return self._strategy.is_relative()

    def feasible_rows(self, columns: Columns) -> Rows:
        """Return the rows that pass every filter; call after `refresh`."""
        return self._strategy.feasible_rows(columns)

    def totals(self, columns: Columns, rows: Rows) -> Ints:
        """Return the final score of each of the feasible `rows`, up to a constant that all rows share."""
        return self._strategy.totals(columns, rows)

    def plugin_scores(self, columns: Columns, rows: Rows) -> dict[str, Ints]:
        """Return the weighted, normalized score of each plugin for the feasible `rows`; for explanations."""
        found = {}
        for score in self._scores:
            raw = score.plugin.score(score.state, columns, rows)
            normalize = score.plugin.normalize
            found[score.plugin.name] = score.weight * (normalize(raw) if normalize else raw)
        return found

    @property
    def weights(self) -> dict[str, int]:
        """The number by which each plugin in `plugin_scores` multiplies a point."""
        return {each.plugin.name: each.weight * each.plugin.per_point for each in self._scores}

    def refused(self, columns: Columns, rows: Rows | None = None) -> Diagnosis:
        """Return the filters' diagnosis of `rows`, which must be present.

        By default of all nodes; that diagnosis is kept until the next change.
        """
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
        """Return `refused`, by default the diagnosis of all nodes, as a message for people."""
        refused = self.refused(columns) if refused is None else refused
        nodes = int(np.count_nonzero(columns.present[: columns.size]))
        if self.rejection is not None and nodes:
            return Refusal(f"0/{nodes} nodes are available: {self.rejection.message}.", refused.plugins)
        return Refusal(fit_error(nodes, refused.counts), refused.plugins)
