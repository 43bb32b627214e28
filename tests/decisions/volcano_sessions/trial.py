"""Hypothetical placements on a snapshot, as far as a session without volumes needs them."""

from __future__ import annotations

from operator import add
from operator import sub as subtract

import numpy as np

from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.state.podcounts import Countable


class Trial:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._ledger = snapshot._ledger

    def place(self, pod: Countable, row: int) -> None:
        self._change(pod, row, 1)

    def remove(self, pod: Countable, row: int) -> None:
        self._change(pod, row, -1)

    def _change(self, pod: Countable, row: int, sign: int) -> None:
        columns = self.snapshot.columns
        columns.take(row, self._ledger.with_pod(columns.taken[row], pod.cls, sign))
        if pod.cls.host_ports:
            there = columns.ports.get(row, frozenset())
            ports = frozenset(pod.cls.host_ports)
            columns.set_ports(row, there | ports if sign > 0 else there - ports)
        if pod.cls.existing or columns.matching:
            for term in pod.cls.existing:
                if term not in columns.terms:
                    columns.terms[term] = np.zeros(columns.capacity, dtype=np.int64)
            columns.count_others(row, pod, sign)
        self.snapshot.touched.append(row)


_ = (add, subtract)
