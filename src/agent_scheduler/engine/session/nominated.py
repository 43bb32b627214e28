"""The room that a session leaves to nominated pods of other schedulers.

The rule is that of the fast path (`engine.preemption.nominated`) and of the binder's final check: a task leaves room to
nominated pods of its own or higher priority. Claims of the session's own pods do not count here, except those of pods
in reserved stages, for which an earlier process kept room.
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
    """The nominated pods at the opening of the session, by row. Owner: the session's nodes."""

    def __init__(self, nominations: Nominations, rows: Mapping[str, int], scheduler_name: str) -> None:
        """Read `nominations`; `rows` maps nodes to rows.

        `scheduler_name` is that of the session's own pods.
        """
        self._nominations = nominations
        #: The UIDs of nominated pods that the session has placed itself.
        self.placed: set[str] = set()
        self._by_row: dict[int, NominatedPods] = {}
        for node_name, pods in nominations.beside(scheduler_name).items():
            if node_name in rows:
                self._by_row[rows[node_name]] = pods

    def on(self, row: int, pod: PodInfo) -> NominatedPods:
        """Return the nominated pods on a row to which `pod` has to leave room."""
        if not self._by_row:
            return ()
        return tuple(
            other
            for other in self._by_row.get(row, ())
            if other.priority >= pod.priority and other.uid != pod.uid and other.uid not in self.placed
        )

    def amount(self, row: int, pod: PodInfo, resource: str) -> int:
        """Return the amount of a resource that these pods request."""
        return sum(other.cls.requests.get(resource, 0) for other in self.on(row, pod))

    def taken(self, pod: PodInfo, view: ClassView, columns: Columns) -> Sequence[int]:
        """Return the rows that all filters accept, but that have no room beside the nominated pods."""
        against = self._against(pod)
        return self._nominations.taken(pod, view, columns, against) if against else ()

    def why_not(self, pod: PodInfo, view: ClassView, columns: Columns) -> FitErrors | None:
        """Return why no node is feasible beside the nominated pods; None if they are not the reason."""
        if view.rejection is not None or not self.taken(pod, view, columns):
            return None
        found = self._nominations.refused(pod, view, columns, self._against(pod))
        nodes = int(np.count_nonzero(columns.present[: columns.size]))
        return FitErrors(fit_message(nodes, found.counts), frozenset(found.plugins))

    def _against(self, pod: PodInfo) -> Mapping[int, NominatedPods]:
        if not self._by_row:
            return NO_NOMINATED
        return {row: nominated for row in self._by_row if (nominated := self.on(row, pod))}
