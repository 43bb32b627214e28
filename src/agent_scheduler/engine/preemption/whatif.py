"""One row of columns as it would be if pods left it or came to it.

Compiled filters read columns, so a question of the kind "would it fit without these" is asked by changing the row,
asking, and putting back what was there. Guarantee: after the `with` block the columns are what they were, whatever
happened inside. A row is small, and what it holds is copied first, so nothing has to be undone step by step.

Versions are left alone: kept answers of views are about the row as it is, and stay true.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import numpy as np

from ..state.columns import NO_PORTS, Amounts, Columns, Ints
from ..state.ledger import Ledger
from ..state.podclass import HostPort
from ..state.podinfo import PodInfo
from ..state.podterms import ExistingTerm
from ..state.podvolumes import PodVolumes


class WhatIf:
    """A row of `columns` (the ledger's own, or those of a snapshot that is up to date with it)."""

    def __init__(self, ledger: Ledger, columns: Columns, row: int, more: Iterable[PodInfo] = ()) -> None:
        """`more`: pods that stand there, too, to begin with."""
        self._ledger = ledger
        self._columns = columns
        self.row = row
        self._more = more
        #: UID -> host ports of the pods that are there now; None until ports matter.
        self._pods: dict[str, tuple[HostPort, ...]] | None = None

    def __enter__(self) -> WhatIf:
        columns, row = self._columns, self.row
        self._taken: Amounts = columns.taken[row]
        self._ports = columns.ports.get(row, NO_PORTS)
        self._absent = columns.absent
        #: Pods placed here that were taken away.
        self._gone: set[str] = set()
        columns.absent = self._gone
        self._before = columns.hypothetical_pods
        #: Volumes of pods put here that are placed nowhere.
        self._hypothetical: dict[str, PodVolumes] = {}
        columns.hypothetical_pods = self._hypothetical
        self._counts: list[tuple[Ints, int]] = columns.counts_on(row)
        self._new_terms: list[ExistingTerm] = []
        for pod in self._more:
            self.add_pod(pod)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        columns, row = self._columns, self.row
        columns.take(row, self._taken)
        columns.set_ports(row, self._ports)
        columns.absent = self._absent
        columns.hypothetical_pods = self._before
        columns.put_back(row, self._counts)
        for term in self._new_terms:
            del columns.terms[term]
        self._pods = None

    def add_pod(self, pod: PodInfo) -> None:
        """The pod stands here, too: one that was taken away, or one that waits."""
        columns = self._columns
        columns.take(self.row, self._ledger.with_pod(columns.taken[self.row], pod.cls, 1))
        self._gone.discard(pod.uid)
        if pod.cls.volumes is not None and pod.uid not in self._ledger.placements:
            self._hypothetical[pod.uid] = pod.cls.volumes
        if pod.cls.host_ports:
            self._there()[pod.uid] = pod.cls.host_ports
            self._recount_ports()
        if pod.cls.existing or columns.matching:
            for term in pod.cls.existing:
                if term not in columns.terms:
                    columns.terms[term] = np.zeros(columns.capacity, dtype=np.int64)
                    self._new_terms.append(term)
            columns.count_others(self.row, pod, 1)

    def remove_pod(self, pod: PodInfo) -> None:
        """The pod is gone: one that is placed here, or one that was put here."""
        columns = self._columns
        columns.take(self.row, self._ledger.with_pod(columns.taken[self.row], pod.cls, -1))
        if pod.uid in self._ledger.placements:
            self._gone.add(pod.uid)
        self._hypothetical.pop(pod.uid, None)
        if pod.cls.host_ports:
            del self._there()[pod.uid]
            self._recount_ports()
        if pod.cls.existing or columns.matching:
            columns.count_others(self.row, pod, -1)

    def _there(self) -> dict[str, tuple[HostPort, ...]]:
        if self._pods is None:
            node = self._columns.nodes[self.row]
            assert node is not None, "a row without a node has no pods"
            self._pods = {
                placement.uid: placement.cls.host_ports
                for placement in self._ledger.pods_on(node.name)
                if placement.cls.host_ports
            }
        return self._pods

    def _recount_ports(self) -> None:
        taken = frozenset(port for ports in self._there().values() for port in ports)
        self._columns.set_ports(self.row, taken)
