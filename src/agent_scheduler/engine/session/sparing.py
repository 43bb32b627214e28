"""Keeps room on nodes for jobs within their queue's share while the rest is lent to other jobs (decision 0057).

A waiting job may be unable to use a node so far, because devices, a volume, or room for the rest of its gang are
missing. So whole nodes are not kept, only what such a job needs there: other jobs may use a node as long as this leaves
the waiting job the room that it finds there now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..quotas.vector import Total, Vector, add_to, at_least
from ..state.columns import Columns, Rows
from ..state.podterms import NO_TERMS
from .model import TaskInfo


class SparedRows(NamedTuple):
    """The needs of waiting jobs on each of these rows.

    `scarce` is whether they need devices, volumes or ports (`_is_scarce`), `about_pods` whether they have terms about
    other pods.
    """

    rows: Rows
    wanted: Vector
    scarce: bool
    about_pods: bool

    def hindered_by(self, task: TaskInfo, columns: Columns) -> Rows:
        """Return the rows on which the task would leave the jobs less than they need, or than they find now."""
        if (self.scarce and _is_scarce(task)) or self.about_pods or _says_of_pods(task):
            return self.rows
        hindered = np.zeros(self.rows.size, dtype=bool)
        for resource, amount in task.pod.cls.requests.items():
            index = columns.interns.resources.get(resource, columns.resources)
            if resource in self.wanted and index < columns.resources:
                free = columns.allocatable[index][self.rows] - columns.requested[index][self.rows]
                hindered |= free - amount < self.wanted[resource]
        return self.rows[hindered]


class SparedNeeds:
    """Collects the needs of jobs, merged by equal sets of rows. Owner: the action that lends."""

    def __init__(self) -> None:
        self._parts: dict[tuple[bytes, bool, bool], SparedRows] = {}

    def add(self, rows: Iterable[int], tasks: Sequence[TaskInfo]) -> None:
        """Add a job that waits for room for all of these tasks on some of these rows."""
        array = np.array(sorted(rows), dtype=np.intp)
        if not array.size:
            return
        total: Total = {}
        for task in tasks:
            add_to(total, task.pod.cls.requests)
        part = SparedRows(array, {}, any(map(_is_scarce, tasks)), any(map(_says_of_pods, tasks)))
        key = (array.tobytes(), part.scarce, part.about_pods)
        known = self._parts.get(key, part)
        self._parts[key] = known._replace(wanted=at_least(known.wanted, total))

    def parts(self) -> Sequence[SparedRows]:
        return [*self._parts.values()]


def _is_scarce(task: TaskInfo) -> bool:
    """Return whether the task needs devices, volumes or ports, which are not compared in detail here."""
    pod, cls = task.pod, task.pod.cls
    return bool(pod.claims or pod.extended_claim or cls.extended or cls.volumes or cls.host_ports)


def _says_of_pods(task: TaskInfo) -> bool:
    return task.pod.cls.terms != NO_TERMS or bool(task.pod.cls.spread)
