"""A pod class compiled for a profile on one snapshot, and what is kept of it from pod to pod.

Invariant: after `refresh`, every kept answer equals what the plugins would say about the snapshot as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..framework.plugin import PodUnrankable, Profile
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass
from .compiled import CompiledFilter, CompiledScore, Rejection, filters_of, scores_of
from .refusals import NO_PLUGINS, Refusal, Refused, fit_error, refused_by
from .selection import strategy_for
from .shared_prefilter import SharedPreFilters
from .snapshot import Snapshot


class ClassView:
    """A class on one snapshot. Owner: whoever owns the snapshot."""

    __slots__ = (
        "_filters",
        "_prefilter",
        "_refused",
        "_rejection",
        "_rows",
        "_scores",
        "_strategy",
        "best",
        "pod",
        "reads",
        "reserves",
        "seen",
        "unrankable",
    )

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
        self._filters, self._rejection = filters_of(prefilter.filters, pod, handle)
        #: Whether some plugin may take more of a node for such a pod than capacity.
        reserving = {id(plugin) for plugin in profile.reserves}
        self.reserves = pod.reserves or any(id(each.plugin) in reserving for each in self._filters)
        self._scores: tuple[CompiledScore, ...] = ()
        #: Why nodes cannot be ranked for the class, where a score says so.
        self.unrankable = ""
        try:
            self._scores = scores_of(prefilter.scores, pod, handle)
        except PodUnrankable as why:
            self.unrankable = str(why)
        snapshot.take_new_counts()
        nodes = prefilter.answers
        if nodes is None or self._rejection is not None:
            nodes = shared.answers(
                self._filters, self._scores, rejected=self._rejection is not None, reads=self.reads
            )
            self._scores = nodes.with_own(self._scores)
        self._strategy = strategy_for(nodes, self._filters, self._scores)
        self._rows = self._strategy.rows
        #: (columns, count, offset) -> up to `count` rows that pass every filter, by falling final score; among equals
        #: the first at or after row `offset`, wrapping around. To be called after `refresh`.
        self.best = self._strategy.best
        #: The ledger's sequence that the answers are true for.
        self.seen = -1
        #: What was last said of all nodes, and what `seen` was then.
        self._refused: tuple[int, Refused] | None = None

    def refresh(self, snapshot: Snapshot) -> None:
        """Ask the plugins about the rows that changed since the last time."""
        self.seen = snapshot.sequence
        rows = self._rows
        if snapshot.touched.end != rows.position:
            touched = rows.refresh(snapshot)
            if touched is not None and rows.ranking.classes is not None:
                self._strategy.follow(snapshot, touched)

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
        return any(source.version != version for source, version in self.reads.items())

    def ranked(self, columns: Columns, taken: Sequence[int] = ()) -> Ints:
        """[row] final score up to a constant that all share, `REFUSED` where a filter refuses; after `refresh`.

        Rows in `taken` count as refused. Belongs to the view: whoever writes into it puts back what was there.
        """
        return self._strategy.ranked(columns, taken)

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
