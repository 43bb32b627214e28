"""Room on nodes that is kept for jobs within their queue's share while others are lent what is left (decision 0057).

Who waits may have no use for a node yet, as devices, a volume, or room for the rest of its gang are missing. So no node
is kept as a whole, but what such a job needs there: others may have as much as leaves it all that it finds now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..quotas.vector import Total, Vector, add_to, at_least
from ..state.columns import Columns, Rows
from ..state.podterms import NO_TERMS
from .model import Task


class Spared(NamedTuple):
    """What jobs need on each of these rows. `scarce`: something that room says nothing of, as `_is_scarce` has it;
    `about_pods`: they say with which pods they share a node."""

    rows: Rows
    wanted: Vector
    scarce: bool
    about_pods: bool

    def hindered_by(self, task: Task, columns: Columns) -> Rows:
        """Rows on which they would find less than they need, or less of what they lack already, beside the task."""
        if (self.scarce and _is_scarce(task)) or self.about_pods or _says_of_pods(task):
            return self.rows
        hindered = np.zeros(self.rows.size, dtype=bool)
        for resource, amount in task.pod.cls.requests.items():
            index = columns.interns.resources.get(resource, columns.resources)
            if resource in self.wanted and index < columns.resources:
                free = columns.allocatable[index][self.rows] - columns.requested[index][self.rows]
                hindered |= free - amount < self.wanted[resource]
        return self.rows[hindered]


class Keeping:
    """Gathers what is to be kept, in as few parts as there are sets of rows. Owner: the action that lends."""

    def __init__(self) -> None:
        self._parts: dict[tuple[bytes, bool, bool], Spared] = {}

    def add(self, rows: Iterable[int], tasks: Sequence[Task]) -> None:
        """A job waits for room for all of these tasks, on some of these rows."""
        array = np.array(sorted(rows), dtype=np.intp)
        if not array.size:
            return
        total: Total = {}
        for task in tasks:
            add_to(total, task.pod.cls.requests)
        part = Spared(array, {}, any(map(_is_scarce, tasks)), any(map(_says_of_pods, tasks)))
        key = (array.tobytes(), part.scarce, part.about_pods)
        known = self._parts.get(key, part)
        self._parts[key] = known._replace(wanted=at_least(known.wanted, total))

    def parts(self) -> Sequence[Spared]:
        return [*self._parts.values()]


def _is_scarce(task: Task) -> bool:
    """Whether it asks for what is not told apart here: devices, volumes or ports."""
    pod, cls = task.pod, task.pod.cls
    return bool(pod.claims or pod.extended_claim or cls.extended or cls.volumes or cls.host_ports)


def _says_of_pods(task: Task) -> bool:
    return task.pod.cls.terms != NO_TERMS or bool(task.pod.cls.spread)
