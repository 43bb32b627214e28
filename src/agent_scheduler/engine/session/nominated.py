"""Room that a session leaves to pods of other schedulers which are nominated to nodes, as others leave for them.

As the fast path does it (`engine.preemption.nominated`), and the binder that has the last word: a task leaves room to
those of its own priority and above. What the session's own pods have a claim on is the session's to decide, but for
pods that stand by, for which an earlier process kept room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..decide.classview import ClassView
from ..preemption.nominated import NO_NOMINATED, NominatedPods, Nominations
from ..state.columns import Columns
from ..state.podinfo import PodInfo
from .fit import FitErrors, fit_message


class Nominated:
    """As it was when the session was opened. Owner: the session's nodes."""

    def __init__(self, nominations: Nominations | None, rows: Mapping[str, int], scheduler_name: str) -> None:
        """`rows` by node; `scheduler_name` is that of the session's own pods. Without `nominations` there are none."""
        self._nominations = nominations
        #: UIDs of those that the session has placed itself.
        self.placed: set[str] = set()
        self._by_row: dict[int, NominatedPods] = {}
        if nominations is not None:
            for node_name, pods in nominations.beside(scheduler_name).items():
                if node_name in rows:
                    self._by_row[rows[node_name]] = pods

    def on(self, row: int, pod: PodInfo) -> NominatedPods:
        """Those on one row that `pod` has to leave room for."""
        if not self._by_row:
            return ()
        return tuple(
            other
            for other in self._by_row.get(row, ())
            if other.priority >= pod.priority and other.uid != pod.uid and other.uid not in self.placed
        )

    def amount(self, row: int, pod: PodInfo, resource: str) -> int:
        """What these ask for."""
        return sum(other.cls.requests.get(resource, 0) for other in self.on(row, pod))

    def taken(self, pod: PodInfo, view: ClassView, columns: Columns) -> Sequence[int]:
        """The rows that no filter refuses, and that would be too small for all of them."""
        against = self._against(pod)
        return self._nominations.taken(pod, view, columns, against) if against and self._nominations else ()

    def why_not(self, pod: PodInfo, view: ClassView, columns: Columns) -> FitErrors | None:
        """Why no node would do, with them in place; None where they have no part in it."""
        if self._nominations is None or view.rejection is not None or not self.taken(pod, view, columns):
            return None
        found = self._nominations.refused(pod, view, columns, self._against(pod))
        nodes = int(np.count_nonzero(columns.present[: columns.size]))
        return FitErrors(fit_message(nodes, found.counts), frozenset(found.plugins))

    def _against(self, pod: PodInfo) -> Mapping[int, NominatedPods]:
        if not self._by_row:
            return NO_NOMINATED
        return {row: nominated for row in self._by_row if (nominated := self.on(row, pod))}
