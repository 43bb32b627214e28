"""One scheduling cycle, without its surroundings: a class and a snapshot in, candidate nodes or a refusal out.

A `ClassView` keeps what the plugins answered for a class on a worker's snapshot and asks again only for rows
that changed. Deciding is then one pass over one column.

Invariant: after `refresh`, every kept answer equals what the plugin would say about the snapshot as it stands.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from .columns import Bools, Columns, Ints, Rows
from .framework import Depends, Filter, PodRejected, Profile, Score, WeightedScore
from .handle import Handle
from .podclass import PodClass
from .snapshot import Snapshot

#: Below every score: what a row that is refused has in its place.
_REFUSED: Final = -(2**63)

#: So many changed rows are asked about one by one; more of them together.
_ONE_BY_ONE = 3

NO_PLUGINS: Final[frozenset[str]] = frozenset()

#: Classes whose views a worker keeps, and rows that all of them may have together (about 50 bytes each). The least
#: recently used view goes first; dropping one costs a rebuild only.
VIEWS_KEPT = 512
VIEW_ROWS_KEPT = 1_000_000
#: Views kept however many rows they have.
_VIEWS_AT_LEAST = 16


class Candidate(NamedTuple):
    """A node that passed every filter, with the version of its row at that moment."""

    node_name: str
    row: int
    version: int


class Refusal(NamedTuple):
    """Why no node will do. `plugins` are those that refused at least one node: their events wake the pod."""

    message: str
    plugins: frozenset[str]


class Refused(NamedTuple):
    """Nodes that filters refuse, each counted for the first that does."""

    #: Reason, in kube-scheduler's words, and on how many nodes.
    counts: Mapping[str, int]
    plugins: frozenset[str]
    #: The nodes that might do if pods of lower priority went away.
    curable: Rows


class Placement(NamedTuple):
    """Candidates, best first; at least one. `seen` is the ledger's sequence up to which they are true."""

    candidates: tuple[Candidate, ...]
    seen: int = -1


class CompiledFilter:
    """A filter and its state for one class."""

    __slots__ = ("plugin", "state")

    def __init__(self, plugin: Filter, state: Any) -> None:
        self.plugin = plugin
        self.state = state

    def feasible(self, nodes: Columns, rows: Rows) -> Bools:
        return self.plugin.feasible(self.state, nodes, rows)

    def feasible_row(self, nodes: Columns, row: int) -> bool:
        return self.plugin.feasible_row(self.state, nodes, row)


class CompiledScore:
    """A score, its weight and its state for one class; `raw` is kept by row where it has to be normalised."""

    __slots__ = ("plugin", "raw", "state", "varies", "weight")

    def __init__(self, weighted: WeightedScore, state: Any) -> None:
        self.plugin: Score = weighted.plugin
        self.weight = weighted.weight
        self.state = state
        self.raw: Ints = np.zeros(0, dtype=np.int64)
        #: False while every raw score is 0, when normalising gives every node the same.
        self.varies = False


class Rejection(NamedTuple):
    """Which filter will have no node at all for a class, and why."""

    plugin: str
    message: str


def compile_filters(
    profile: Profile, pod: PodClass, handle: Handle
) -> tuple[tuple[CompiledFilter, ...], Rejection | None]:
    """The filters that have something to say about `pod`, in the profile's order."""
    compiled = []
    narrowing = (plugin.narrowing for plugin in profile.filters if plugin.narrowing is not None)
    for plugin in (*narrowing, *profile.filters):
        try:
            state = plugin.prepare(pod, handle)
        except PodRejected as rejected:
            return (), Rejection(plugin.name, str(rejected))
        if state is not None:
            compiled.append(CompiledFilter(plugin, state))
    return tuple(compiled), None


class ClassView:
    """A class on one snapshot. Owner: the worker that owns the snapshot."""

    __slots__ = (
        "_filters",
        "_node_base",
        "_position",
        "_ranked",
        "_reads",
        "_refused",
        "_rejection",
        "_scores",
        "_shape",
        "_specs_matter",
        "_specs_position",
        "_usage_filters",
        "_usage_scores",
        "pod",
        "seen",
    )

    def __init__(self, profile: Profile, pod: PodClass, snapshot: Snapshot) -> None:
        self.pod = pod
        handle = snapshot.handle
        #: What the states below were compiled from, beside the class.
        self._reads = handle.reads()
        self._filters, self._rejection = compile_filters(profile, pod, handle)
        self._scores = tuple(
            CompiledScore(weighted, state)
            for weighted in profile.scores
            if (state := weighted.plugin.prepare(pod, handle)) is not None
        )
        snapshot.take_new_counts()
        self._specs_matter = any(each.plugin.depends is Depends.NODES for each in self._scores)
        #: The ledger's sequence that the answers are true for.
        self.seen = -1
        self._usage_filters = tuple(each for each in self._filters if each.plugin.depends is Depends.USAGE)
        self._usage_scores = tuple(each for each in self._scores if each.plugin.depends is Depends.USAGE)
        #: What was last said of all nodes, and what `seen` was then.
        self._refused: tuple[int, Refused] | None = None
        self._shape = (-1, -1)
        self._position = self._specs_position = -1
        #: [row] weighted sum of the scores that depend on the node alone and need no normalising; `_REFUSED` where a
        #: filter that depends on the node alone refuses, or where there is no node.
        self._node_base: Ints = np.zeros(0, dtype=np.int64)
        #: [row] the same of all filters and scores but those that depend on the cluster.
        self._ranked: Ints = np.zeros(0, dtype=np.int64)

    def refresh(self, snapshot: Snapshot) -> None:
        """Ask the plugins about the rows that changed since the last time."""
        columns = snapshot.columns
        self.seen = snapshot.sequence
        if snapshot.touched.end == self._position and snapshot.shape == self._shape:
            return
        touched = snapshot.touched.since(self._position) if self._position >= 0 else None
        respecified = self._respecified_since(snapshot)
        same_shape = snapshot.shape == self._shape
        self._shape = snapshot.shape
        self._position = snapshot.touched.end
        self._specs_position = snapshot.respecified.end
        if touched is None or respecified is None or not same_shape or (self._specs_matter and respecified):
            self._grow(columns.capacity)
            rows = columns.all_rows()
            self._ask_about_nodes(columns, rows)
            self._ask_about_usage(columns, rows)
            return
        if respecified:
            self._ask_about_nodes(columns, np.asarray(respecified, dtype=np.intp))
        if len(touched) <= _ONE_BY_ONE:
            for row in touched:
                self._ask_about_row(columns, row)
        else:
            self._ask_about_usage(columns, np.asarray(touched, dtype=np.intp))

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

    def _respecified_since(self, snapshot: Snapshot) -> Sequence[int] | None:
        """Rows whose node is another than at the last refresh; None if too long ago to tell."""
        if snapshot.respecified.end == self._specs_position:
            return ()
        return snapshot.respecified.since(self._specs_position)

    def _grow(self, capacity: int) -> None:
        self._node_base = np.full(capacity, _REFUSED, dtype=np.int64)
        self._ranked = np.full(capacity, _REFUSED, dtype=np.int64)
        for score in self._scores:
            score.raw = np.zeros(capacity, dtype=np.int64)

    def _ask_about_nodes(self, columns: Columns, rows: Rows) -> None:
        mask = columns.present[rows]
        if self._rejection is not None:
            mask = np.zeros_like(mask)
        for entry in self._filters:
            if entry.plugin.depends is Depends.NODE:
                mask &= entry.feasible(columns, rows)
        scored = self._scored(Depends.NODE, columns, rows)
        if self._specs_matter:
            scored += self._scored(Depends.NODES, columns, rows)
        self._node_base[rows] = np.where(mask, scored, _REFUSED)

    def _ask_about_usage(self, columns: Columns, rows: Rows) -> None:
        base = self._node_base[rows]
        mask = base != _REFUSED
        for entry in self._usage_filters:
            mask &= entry.feasible(columns, rows)
        self._ranked[rows] = np.where(mask, base + self._scored(Depends.USAGE, columns, rows), _REFUSED)

    def _ask_about_row(self, columns: Columns, row: int) -> None:
        """`_ask_about_usage` for one row."""
        total = self._node_base.item(row)
        if total != _REFUSED:
            for entry in self._usage_filters:
                if not entry.plugin.feasible_row(entry.state, columns, row):
                    total = _REFUSED
                    break
        if total != _REFUSED:
            for score in self._usage_scores:
                raw = score.plugin.score_row(score.state, columns, row)
                if score.plugin.normalize is None:
                    total += score.weight * raw
                else:
                    score.raw[row] = raw
                    score.varies = score.varies or bool(raw)
        self._ranked[row] = total

    def _scored(self, depends: Depends, columns: Columns, rows: Rows) -> Ints:
        """Weighted sum of the scores of that kind that need no normalising; the others are kept as they are."""
        total: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        for score in self._scores:
            if score.plugin.depends is not depends:
                continue
            raw = score.plugin.score(score.state, columns, rows)
            if score.plugin.normalize is None:
                total += score.weight * raw
            else:
                score.raw[rows] = raw
                score.varies = score.varies or bool(raw.any())
        return total

    def ranked(self, columns: Columns, taken: Sequence[int] = ()) -> Ints:
        """[row] final score up to a constant that all share, `_REFUSED` where a filter refuses; after `refresh`.

        Rows in `taken` count as refused. Belongs to the view: whoever writes into it puts back what was there.
        """
        for entry in self._filters:
            if entry.plugin.depends is Depends.CLUSTER:
                break
        else:
            for score in self._scores:
                if score.plugin.depends is Depends.CLUSTER or (score.plugin.normalize and score.varies):
                    break
            else:
                if not taken:
                    return self._ranked[: columns.size]
                ranked = self._ranked[: columns.size].copy()
                ranked[taken] = _REFUSED
                return ranked
        ranked = np.full(columns.size, _REFUSED, dtype=np.int64)
        rows = self.feasible_rows(columns)
        if taken:
            rows = rows[~np.isin(rows, taken)]
        ranked[rows] = self.totals(columns, rows)
        return ranked

    def feasible_rows(self, columns: Columns) -> Rows:
        """Rows that pass every filter; call after `refresh`."""
        rows = np.flatnonzero(self._ranked[: columns.size] != _REFUSED)
        for entry in self._filters:
            if entry.plugin.depends is Depends.CLUSTER and rows.size:
                rows = rows[entry.feasible(columns, rows)]
        return rows

    def totals(self, columns: Columns, rows: Rows) -> Ints:
        """Final score of each of the feasible `rows`, up to a constant that all share."""
        total = self._ranked[rows]
        for score in self._scores:
            plugin = score.plugin
            if plugin.depends is Depends.CLUSTER:
                raw = plugin.score(score.state, columns, rows)
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
        counts: dict[str, int] = {}
        plugins = set()
        curable: list[Rows] = []
        for entry in self._filters:
            if not rows.size:
                break
            passed = entry.feasible(columns, rows)
            refused = rows[~passed]
            if refused.size:
                plugins.add(entry.plugin.name)
                count_reasons(counts, entry, columns, refused)
                curable.append(refused[entry.plugin.curable(entry.state, columns, refused)])
            rows = rows[passed]
        return Refused(
            counts, frozenset(plugins), np.sort(np.concatenate(curable)) if curable else rows[:0].copy()
        )

    def refusal(self, columns: Columns, refused: Refused | None = None) -> Refusal:
        """`refused`, by default what the filters say of all nodes, as people are told it."""
        refused = self.refused(columns) if refused is None else refused
        nodes = int(np.count_nonzero(columns.present[: columns.size]))
        if self._rejection is not None and nodes:
            return Refusal(f"0/{nodes} nodes are available: {self._rejection.message}.", refused.plugins)
        return Refusal(fit_error(nodes, refused.counts), refused.plugins)


def count_reasons(counts: dict[str, int], entry: CompiledFilter, columns: Columns, refused: Rows) -> None:
    for reason, count in entry.plugin.reasons(entry.state, columns, refused).items():
        counts[reason] = counts.get(reason, 0) + count


def first_refusing(filters: Sequence[CompiledFilter], columns: Columns, row: int) -> CompiledFilter | None:
    """The filter that refuses one row, asked in their order; None where all let the pod pass."""
    for entry in filters:
        if not entry.feasible_row(columns, row):
            return entry
    return None


def fit_error(nodes: int, counts: Mapping[str, int]) -> str:
    """kube-scheduler's `FitError` message: reasons as "<count> <reason>", sorted as texts."""
    if not nodes:
        return "no nodes available to schedule pods"
    reasons = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{nodes} nodes are available: {', '.join(reasons)}."


class ClassViews:
    """A snapshot's views for one profile, least recently used first."""

    def __init__(self, profile: Profile, snapshot: Snapshot) -> None:
        self.profile = profile
        self._snapshot = snapshot
        self._views: OrderedDict[PodClass, ClassView] = OrderedDict()

    def of(self, pod: PodClass) -> ClassView:
        """The view of `pod`'s class, up to date with the snapshot."""
        view = self._views.get(pod)
        if view is None or view.is_outdated:
            view = self._views[pod] = ClassView(self.profile, pod, self._snapshot)
            if len(self._views) > self._most():
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(pod)
        view.refresh(self._snapshot)
        return view

    def _most(self) -> int:
        rows = max(1, self._snapshot.columns.capacity)
        return min(VIEWS_KEPT, max(_VIEWS_AT_LEAST, VIEW_ROWS_KEPT // rows))


def decide(
    view: ClassView,
    columns: Columns,
    *,
    candidates: int,
    offset: int = 0,
    nominated: int | None = None,
    taken: Sequence[int] = (),
) -> Placement | Refusal:
    """The best `candidates` nodes for a pod of the view's class, or why there is none.

    Among nodes of equal score the first at or after row `offset` wins, wrapping around: workers with different
    offsets then fill different nodes, which is what keeps them from racing for one. A `nominated` row is taken
    first if it is feasible, as kube-scheduler does. Rows in `taken` are not looked at: others hold their room. Where
    there are any, a refusal says nothing of them (see `preemption.nominated`).
    """
    ranked = view.ranked(columns, taken)
    chosen = _best(ranked, candidates, offset)
    if not chosen:
        return view.refusal(columns)
    if nominated is not None and nominated < columns.size and ranked[nominated] != _REFUSED:
        chosen = [nominated, *(row for row in chosen if row != nominated)][:candidates]
    return Placement(_candidates(columns, chosen), view.seen)


def _best(ranked: Ints, count: int, offset: int) -> list[int]:
    """Up to `count` rows by falling score, ties by distance from `offset`. `ranked` is afterwards as it was."""
    if not 0 <= offset < ranked.shape[0]:
        offset = 0
    near, far = ranked[offset:], ranked[:offset]
    chosen: list[tuple[int, int]] = []
    while len(chosen) < count and near.shape[0]:
        row = int(near.argmax())
        score = near.item(row)
        row += offset
        if offset:
            other = int(far.argmax())
            if far.item(other) > score:
                row, score = other, far.item(other)
        if score == _REFUSED:
            break
        chosen.append((row, score))
        ranked[row] = _REFUSED
    for row, score in chosen:
        ranked[row] = score
    return [row for row, _ in chosen]


def _candidates(columns: Columns, rows: list[int]) -> tuple[Candidate, ...]:
    nodes, version = columns.nodes, columns.version
    found = []
    for row in rows:
        node = nodes[row]
        assert node is not None, "a feasible row has a node"
        found.append(Candidate(node.name, row, version[row]))
    return tuple(found)
