"""One scheduling cycle as pure functions.

`decide` maps a class and a snapshot to candidate nodes or a refusal. `judge` decides whether a candidate may still be
taken; it is the pure half of the conflict-aware binder.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from ..framework.plugin import Depends, PodUnrankable, Profile
from ..ledger import Ledger
from ..state.columns import Columns
from ..state.podclass import PodClass
from .budget import ALWAYS, KEPT
from .classview import ClassView
from .compiled import CompiledFilter
from .ranking import REFUSED, ScoredRow, best_of
from .refusals import Refusal
from .shared_prefilter import SharedPreFilters
from .snapshot import Snapshot

#: The most classes whose views a worker keeps, and the most rows of all of these together (about 50 bytes each). The
#: least recently used view is dropped first; it can be rebuilt.
VIEWS_KEPT = 512
VIEW_ROWS_KEPT = 1_000_000
#: Views that are kept whatever their number of rows.
_VIEWS_AT_LEAST = 16


class CandidateNode(msgspec.Struct, frozen=True, gc=False):
    """A node that passed every filter, with the version of its row at that moment."""

    node_name: str
    row: int
    version: int
    #: Its final score up to a constant that all candidates share; None if it was not chosen by scores.
    score: int | None = None


class CandidateNodes(msgspec.Struct, frozen=True, gc=False):
    """Candidates, best first; at least one. `seen` is the ledger's sequence that they hold for.

    `nominated`: the first one comes first because the pod is nominated to it, whatever its score.
    """

    candidates: tuple[CandidateNode, ...]
    seen: int = -1
    nominated: bool = False


class ClassViews:
    """A snapshot's views for one profile, least recently used first."""

    def __init__(self, profile: Profile, snapshot: Snapshot) -> None:
        self.profile = profile
        self._snapshot = snapshot
        self._shared = SharedPreFilters(profile)
        self._views: OrderedDict[PodClass, ClassView] = OrderedDict()
        #: The number of constraints of all classes with a view.
        self._constraints = 0

    def __contains__(self, pod: PodClass) -> bool:
        """Return whether a view of the class exists."""
        return pod in self._views

    def of(self, pod: PodClass) -> ClassView:
        """Return the view of `pod`'s class, refreshed to the snapshot."""
        view = self._views.get(pod)
        if view is None or (view.reads and view.is_outdated) or self._has_other_excess(pod, view):
            self._constraints += pod.constraints if view is None else 0
            view = self._views[pod] = ClassView(self.profile, pod, self._snapshot, self._shared)
            while len(self._views) > self._most() or (self._constraints > KEPT and len(self._views) > 1):
                self._constraints -= self._views.popitem(last=False)[0].constraints
        else:
            self._views.move_to_end(pod)
        view.refresh(self._snapshot)
        return view

    def _has_other_excess(self, pod: PodClass, view: ClassView) -> bool:
        return pod.constraints > ALWAYS and view.excess != self._snapshot.excess(pod)

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
) -> CandidateNodes | Refusal:
    """Return the best `candidates` nodes for a pod of the view's class, or the refusal.

    Among nodes of equal score the first at or after row `offset` wins, wrapping around: workers with different offsets
    then fill different nodes and do not race for one. A feasible `nominated` row comes first, as in kube-scheduler.
    Rows in `taken` are skipped because other pods hold their room; a refusal does not mention them (see
    `preemption.nominated`). Raises PodUnrankable if there are several nodes to rank and the pod's preferences have no
    meaning.
    """
    chosen: Sequence[ScoredRow]
    if nominated is None and not taken:
        chosen = view.best(columns, candidates, offset)
    else:
        ranked = view.ranked(columns, taken)
        chosen = best_of(ranked, candidates, offset)
        if nominated is not None and nominated < columns.size and ranked[nominated] != REFUSED:
            others = [each for each in chosen if each[0] != nominated]
            chosen = [(nominated, int(ranked[nominated])), *others][:candidates]
    if not chosen:
        return view.refusal(columns)
    is_nominated = chosen[0][0] == nominated
    if view.unrankable and not is_nominated:
        several = np.count_nonzero(view.ranked(columns, taken) != REFUSED) > 1
        if several:
            raise PodUnrankable(view.unrankable)
    return CandidateNodes(_candidates(columns, chosen), view.seen, is_nominated)


def _candidates(columns: Columns, rows: Sequence[ScoredRow]) -> tuple[CandidateNode, ...]:
    nodes, version = columns.nodes, columns.version
    found = []
    for row, score in rows:
        node = nodes[row]
        assert node is not None, "a feasible row has a node"
        found.append(CandidateNode(node.name, row, version[row], score))
    return tuple(found)


class ConflictPolicy(enum.StrEnum):
    """The rule for candidates if the ledger has changed since the snapshot.

    - `revalidate`: accept a candidate whose version is unchanged, or on which the pod still passes every filter on the
      live ledger. Only a node that has become infeasible is skipped.
    - `strict`: also skip a candidate if a bind to its node was accepted since the version that the worker saw. Other
      changes of the row are revalidated, because a rule about versions alone would take the room of a
      foreign pod twice.
    """

    REVALIDATE = "revalidate"
    STRICT = "strict"


class JudgeResult(msgspec.Struct, frozen=True, gc=False):
    """The accepted candidate, if any, with counters of the checks."""

    candidate: CandidateNode | None
    #: Skipped candidates, which is the index of the accepted one.
    conflicts: int
    #: Live checks that the pod passed, and those that it failed.
    revalidated: int
    outdated: int


def judge(
    ledger: Ledger,
    candidates: Sequence[CandidateNode],
    filters: Sequence[CompiledFilter],
    policy: ConflictPolicy,
    *,
    seen: int = -1,
) -> JudgeResult:
    """Return the first candidate that may be taken now. Changes nothing: the caller assumes it at once or not at all.

    `seen` is the ledger's sequence at the time of the decision. If the ledger has changed since, filters that read
    other rows are asked again even if the candidate's own row is unchanged.
    """
    columns = ledger.columns
    elsewhere = ledger.sequence != seen and any(entry.plugin.depends is Depends.CLUSTER for entry in filters)
    revalidated = outdated = 0
    for index, candidate in enumerate(candidates):
        row = candidate.row
        node = columns.nodes[row]
        if node is None or node.name != candidate.node_name:
            continue
        if columns.version[row] == candidate.version and not elsewhere:
            return JudgeResult(candidate, index, revalidated, outdated)
        if policy is ConflictPolicy.STRICT and ledger.used(row, candidate.version):
            continue
        if _passes(columns, filters, candidate):
            return JudgeResult(candidate, index, revalidated + 1, outdated)
        outdated += 1
    return JudgeResult(None, len(candidates), revalidated, outdated)


def _passes(columns: Columns, filters: Sequence[CompiledFilter], candidate: CandidateNode) -> bool:
    row = candidate.row
    same_row = columns.version[row] == candidate.version
    same_node = columns.spec_version[row] <= candidate.version
    for entry in filters:
        depends = entry.plugin.depends
        if (same_node and depends is Depends.NODE) or (same_row and depends in (Depends.ROOM, Depends.USAGE)):
            # The filter passed the pod when the candidate was chosen, and reads nothing that has changed.
            continue
        if not entry.feasible_row(columns, row):
            return False
    return True
