"""The victims on nodes for a refused pod, or the reason why evictions would not help.

Rules, order and messages are kube-scheduler's (`framework/preemption`, `plugins/defaultpreemption`):

1. Check whether the pod may preempt at all, or already waits for victims.
2. Skip nodes whose refusal is unresolvable, and those without pods of lower priority.
3. Try the others in turn from an offset: does the pod fit without all pods of lower priority? Then restore the victims
   that can stay: first those whose eviction would violate a PDB, then the rest, always the most important first
   (priority, then the longer running). The search ends after some candidates, one of them without a violated PDB.
4. The best candidate has the fewest violated PDBs, then the lowest highest priority, the lowest sum of priorities, the
   fewest victims, the latest start among its most important victims; then the first one wins.

The conditions that decide for most nodes are evaluated for all rows at once; pods are only examined where these hold.
So it is cheap to find that nothing helps, however many pods run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import numpy as np

from ..decide.classview import ClassView
from ..decide.refusals import Diagnosis, fit_error
from ..ledger import Ledger
from ..state.columns import NOBODY, Columns
from ..state.podinfo import PodInfo
from .dry_run import Candidate, DryRun, DryRunState, select_candidate
from .nominated import NO_NOMINATED, NominatedPods, Nominations
from .pdbs import PDBs
from .victims import PotentialVictims

#: kube-scheduler's DynamicResources adds this at the same point for a pod without claims to deallocate. It is part of
#: every refusal, because comparisons of messages cover the whole text.
NO_CLAIMS: Final = "no new claims to deallocate"


def with_preemption(refusal: str, message: str, claims: str = NO_CLAIMS) -> str:
    """Return `refusal` with the preemption `message`; unchanged if victims were found.

    `claims` is the result of the search for claims to deallocate.
    """
    return f"{refusal} {claims}, preemption: {message}" if message else refusal


NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"


class PostFilterResult(NamedTuple):
    """The result: pods to evict, or a message with the reason."""

    candidate: Candidate | None
    message: str = ""
    #: Whether the pod's nomination is no longer useful.
    clear: bool = False


class Evaluator:
    """Finds victims on a snapshot that is current."""

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
        """Search victims for a pod that every node refused, decided in `view`.

        Among n nodes `wanted(n)` candidates are enough, and `offset(n)`, below n, is the first to try. `nominated` is
        the node that the pod waits for, if any. `against`: see `Nominations.against`. `leaving` has the UIDs of evicted
        pods, whether or not the API server has confirmed it.
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
                DryRunState(self._ledger, columns, self._pdbs, self._nominations),
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
        """Return whether a pod is leaving the nominated node for this one, and may still make it fit there."""
        row = self._ledger.rows.get(nominated)
        if row is None or row not in refused.curable:
            return False
        return any(
            placement.pod.priority < pod.priority
            and (placement.uid in leaving or (placement.pod.deleting and placement.pod.preempted))
            for placement in self._ledger.pods_on(nominated)
        )
