"""Which pods of which node have to go for a pod that was refused, or why that would not help.

Rules, order and words are kube-scheduler's (`framework/preemption`, `plugins/defaultpreemption`):

1. Whether the pod may have others evicted at all, or waits for some already.
2. Nodes that were refused for good are passed over, and those that have no pods of lower priority.
3. The others are tried in turn from an offset: with all pods of lower priority gone, does the pod fit? Then those that
   need not go stay: first the ones whose eviction would violate a PDB, then the rest, always the most important first
   (priority, then the longer running). It is enough to find some candidates, one of them without a violated PDB.
4. Of the candidates the best is the one with the fewest violated PDBs, then the least highest priority, the least sum
   of priorities, the fewest victims, the latest start among its most important; then the first.

What tells most nodes apart is asked of all rows at once; pods are walked over only where the answer is yes. So it costs
little to find out that nothing helps, however many pods run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import numpy as np

from ..decide.classview import ClassView
from ..decide.refusals import Diagnosis, fit_error
from ..state.columns import NOBODY, Columns
from ..state.ledger import Ledger
from ..state.podinfo import PodInfo
from .dry_run import Candidate, DryRun, select_candidate
from .nominated import NO_NOMINATED, NominatedPods, Nominations
from .pdbs import PDBs
from .victims import PotentialVictims

#: What kube-scheduler's DynamicResources says at the same point of a pod that has no claims to give back. It is said of
#: every refused pod; who compares messages compares the whole.
NO_CLAIMS: Final = "no new claims to deallocate"


def with_preemption(refusal: str, message: str, claims: str = NO_CLAIMS) -> str:
    """`refusal`, and that preemption came to `message`; unchanged where it found victims. `claims` is what came of the
    look for claims to give back."""
    return f"{refusal} {claims}, preemption: {message}" if message else refusal


NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"


class PostFilterResult(NamedTuple):
    """What came of it: pods to evict, or a message why not."""

    candidate: Candidate | None
    message: str = ""
    #: Whether the pod's nomination is of no use any more.
    clear: bool = False


class Evaluator:
    """Finds victims on a snapshot that is up to date with the ledger."""

    def __init__(self, ledger: Ledger, columns: Columns, pdbs: PDBs, nominations: Nominations) -> None:
        self._ledger = ledger
        self._columns = columns
        self._pdbs = pdbs
        self._nominations = nominations
        self._victims = PotentialVictims(ledger)

    def preempt(
        self,
        pod: PodInfo,
        view: ClassView,
        refused: Diagnosis,
        *,
        wanted: Callable[[int], int],
        offset: Callable[[int], int],
        nominated: str = "",
        against: Mapping[int, NominatedPods] = NO_NOMINATED,
        leaving: Collection[str] = NOBODY,
    ) -> PostFilterResult:
        """For a pod that every node refused, decided in `view`. Of n nodes `wanted(n)` candidates are enough, and
        `offset(n)`, below n, is where to begin.

        `nominated`: the node that the pod waits for, if any. `against`: see `Nominations.against`. `leaving`: UIDs of
        pods that were evicted, whether or not the API server was seen to know it.
        """
        if not pod.preempts:
            return PostFilterResult(None, NEVER)
        if nominated and self._waits_for(nominated, pod, refused, leaving):
            return PostFilterResult(None, TERMINATING)
        columns = self._columns
        nodes = int(np.count_nonzero(columns.present[: columns.size]))
        rows = refused.curable
        counts: dict[str, int] = {}
        if rows.size:
            search = DryRun(
                self._ledger,
                columns,
                self._pdbs,
                self._nominations,
                pod=pod,
                view=view,
                against=against,
                victims=self._victims.below(pod.priority),
            )
            rows = np.roll(rows, -offset(rows.shape[0]))
            candidates = search.candidates(rows, wanted(rows.shape[0]))
            if candidates:
                return PostFilterResult(select_candidate(candidates))
            counts = search.counts
        if others := nodes - rows.shape[0]:
            counts[NOT_HELPFUL] = counts.get(NOT_HELPFUL, 0) + others
        return PostFilterResult(None, fit_error(nodes, counts), clear=True)

    def _waits_for(self, nominated: str, pod: PodInfo, refused: Diagnosis, leaving: Collection[str]) -> bool:
        """Whether a pod is leaving the nominated node for this one, and may still make it fit there."""
        row = self._ledger.rows.get(nominated)
        if row is None or row not in refused.curable:
            return False
        return any(
            placement.pod.priority < pod.priority
            and (placement.uid in leaving or (placement.pod.deleting and placement.pod.preempted))
            for placement in self._ledger.pods_on(nominated)
        )
