"""One scheduling cycle, without its surroundings: a class and a snapshot in, candidate nodes or a refusal out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from ..framework.plugin import PodUnrankable, Profile
from ..state.columns import Columns
from ..state.podclass import PodClass
from .classview import ClassView
from .heads import REFUSED, best_of
from .refusals import Refusal
from .shared_prefilter import SharedPreFilters
from .snapshot import Snapshot

#: Classes whose views a worker keeps, and rows that all of them may have together (about 50 bytes each). The least
#: recently used view goes first; dropping one costs a rebuild only.
VIEWS_KEPT = 512
VIEW_ROWS_KEPT = 1_000_000
#: Views kept however many rows they have.
_VIEWS_AT_LEAST = 16


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A node that passed every filter, with the version of its row at that moment."""

    node_name: str
    row: int
    version: int


class Placement(msgspec.Struct, frozen=True):
    """Candidates, best first; at least one. `seen` is the ledger's sequence up to which they are true."""

    candidates: tuple[Candidate, ...]
    seen: int = -1


class ClassViews:
    """A snapshot's views for one profile, least recently used first."""

    def __init__(self, profile: Profile, snapshot: Snapshot) -> None:
        self.profile = profile
        self._snapshot = snapshot
        self._shared = SharedPreFilters(profile)
        self._views: OrderedDict[PodClass, ClassView] = OrderedDict()

    def __contains__(self, pod: PodClass) -> bool:
        """Whether there is a view of the class."""
        return pod in self._views

    def of(self, pod: PodClass) -> ClassView:
        """The view of `pod`'s class, up to date with the snapshot."""
        view = self._views.get(pod)
        if view is None or (view.reads and view.is_outdated):
            view = self._views[pod] = ClassView(self.profile, pod, self._snapshot, self._shared)
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
    there are any, a refusal says nothing of them (see `preemption.nominated`). Raises PodUnrankable where there are
    several nodes to rank, and the pod's preferences have no meaning.
    """
    chosen: Sequence[int]
    if nominated is None and not taken:
        chosen = view.best(columns, candidates, offset)
    else:
        ranked = view.ranked(columns, taken)
        chosen = best_of(ranked, candidates, offset)
        if nominated is not None and nominated < columns.size and ranked[nominated] != REFUSED:
            chosen = [nominated, *(row for row in chosen if row != nominated)][:candidates]
    if not chosen:
        return view.refusal(columns)
    if view.unrankable and chosen[0] != nominated:
        several = np.count_nonzero(view.ranked(columns, taken) != REFUSED) > 1
        if several:
            raise PodUnrankable(view.unrankable)
    return Placement(_candidates(columns, chosen), view.seen)


def _candidates(columns: Columns, rows: Sequence[int]) -> tuple[Candidate, ...]:
    nodes, version = columns.nodes, columns.version
    found = []
    for row in rows:
        node = nodes[row]
        assert node is not None, "a feasible row has a node"
        found.append(Candidate(node.name, row, version[row]))
    return tuple(found)
