"""Where a task can go: nodes as the plugins of the fast path judge them, on the batch scheduler's own snapshot.

The snapshot's columns show the room that there will be, Volcano's FutureIdle: pods that are placed or have a claim on a
node take room, and pods that leave take none. On rows where no pod leaves and none has a claim, that is the room that
there is. For the others it is kept how the two differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from ..decide.classview import ClassView
from ..decide.compiled import CompiledFilter
from ..decide.decide import ClassViews
from ..decide.ranking import REFUSED, best_of
from ..decide.snapshot import Snapshot
from ..framework.plugin import Profile
from ..plugins.node_resources_fit import NodeResourcesFit
from ..quotas.vector import Total, add_to, of_requests
from ..state.columns import Rows
from ..state.podclass import PODS, PodClass
from ..state.podcounts import Countable
from ..state.podinfo import PodInfo
from .fit import FitErrors, fit_message, insufficient
from .model import Task, TaskStatus

#: Volcano's reason for a node that is full of pods, where it looks at nothing else of its room.
_TOO_MANY_PODS = "node(s) pod number exceeded"


class Trial(Protocol):
    """Hypothetical placements on the snapshot. Each change appends its row to `snapshot.touched`."""

    def place(self, pod: PodInfo, row: int) -> None: ...
    def remove(self, pod: Countable, row: int) -> None: ...


class SessionNodes:
    """Owner: the session. Nobody else writes to the snapshot until it is closed.

    Invariant: `_waiting` has, for each row on which pods leave or have claims, what they take by resource: more than 0
    where the room that there is, is less than the one to come.
    """

    def __init__(
        self, snapshot: Snapshot, trial: Trial, profile: Profile, views: ClassViews | None = None
    ) -> None:
        """`views`: those of `profile`, kept from session to session."""
        self.snapshot = snapshot
        self._trial = trial
        self.views = views or ClassViews(profile, snapshot)
        self.columns = snapshot.columns
        self._rows = {node.name: row for row, node in enumerate(self.columns.nodes) if node is not None}
        #: Row -> resource -> what leaves less what has a claim; and how many pods these are.
        self._waiting: dict[int, dict[str, int]] = {}
        self._waiting_pods: dict[int, int] = {}
        #: Placed by the session, where they say something about other pods.
        self._speaking: dict[str, Task] = {}
        #: (class, change of the snapshot) -> why no node would do.
        self._kept: tuple[PodClass, int, bool, FitErrors] | None = None

    def name(self, row: int) -> str:
        node = self.columns.nodes[row]
        assert node is not None, "a row that is chosen has a node"
        return node.name

    def row(self, name: str) -> int:
        """-1 for a node that there is not."""
        return self._rows.get(name, -1)

    @property
    def count(self) -> int:
        return len(self._rows)

    def total(self) -> Total:
        """What all nodes offer."""
        total: Total = {}
        for node in self.columns.nodes:
            if node is not None:
                add_to(total, _vector(node.allocatable))
        return total

    def used(self) -> Total:
        """What pods on nodes ask for of what any node offers."""
        columns = self.columns
        used = columns.requested[:, : columns.size].sum(axis=1).tolist()
        return _vector(
            {
                resource: used[index]
                for resource, index in columns.interns.resources.items()
                if index < columns.resources
            }
        )

    # ---- what the session does

    def place(self, task: Task) -> None:
        self._trial.place(task.pod, task.row)
        if task.pod.cls.existing:
            self._speaking[task.uid] = task
        if task.status is TaskStatus.PIPELINED:
            self._wait(task, -1)

    def unplace(self, task: Task) -> None:
        """`task` was placed by the session and has the status that it had then."""
        self._trial.remove(task.pod, task.row)
        self._speaking.pop(task.uid, None)
        if task.status is TaskStatus.PIPELINED:
            self._wait(task, 1, -1)

    def release(self, task: Task) -> None:
        if task.row >= 0:
            self._trial.remove(task.pod, task.row)
            self._wait(task, 1)

    def take_back_release(self, task: Task) -> None:
        if task.row >= 0:
            self._trial.place(task.pod, task.row)
            self._wait(task, -1, -1)

    def _wait(self, task: Task, sign: int, pods: int = 1) -> None:
        row = task.row
        waiting = self._waiting.setdefault(row, {})
        for resource, amount in task.pod.cls.requests.items():
            waiting[resource] = waiting.get(resource, 0) + sign * amount
        number = self._waiting_pods.get(row, 0) + pods
        if number:
            self._waiting_pods[row] = number
        else:
            del self._waiting[row]
            self._waiting_pods.pop(row, None)

    # ---- what it asks

    def view(self, task: Task) -> ClassView:
        beside = [each.pod for each in self._speaking.values()] if self._speaking else ()
        return self.views.of(self.snapshot.handle.class_of(task.pod, beside=beside))

    def best(self, task: Task, view: ClassView) -> int | None:
        """The row that a task is to go to: of those that have room now the best, else of those that will have it."""
        columns, waiting = self.columns, self._waiting
        nominated = task.pod.nominated_node_name
        if nominated:
            row = self.row(nominated)
            if row >= 0 and view.ranked(columns)[row] != REFUSED:
                return row
        chosen = view.best(columns, 1, 0)
        if not chosen:
            return None
        row = chosen[0]
        if row not in waiting or self.has_room(task, row):
            return row
        later = [each for each in waiting if not self.has_room(task, each)]
        now = best_of(view.ranked(columns, later), 1, 0)
        return now[0] if now else row

    def has_room(self, task: Task, row: int) -> bool:
        """Whether a row that has room to come has it now."""
        waiting = self._waiting.get(row)
        if waiting is None:
            return True
        columns = self.columns
        known, offers, taken = columns.interns.resources, columns.offers[row], columns.taken[row]
        for resource, amount in task.pod.cls.requests.items():
            index = known.get(resource, columns.resources)
            offered, used = (offers[index], taken[index]) if index < columns.resources else (0, 0)
            if offered - used - waiting.get(resource, 0) < amount:
                return False
        return True

    def why_not(self, task: Task, view: ClassView, *, room: bool = True) -> FitErrors:
        """Why no node would do. `room`: whether the room of nodes is looked at for anything but pods."""
        position = self.snapshot.touched.end
        kept = self._kept
        if kept is not None and kept[0] is view.pod and kept[1] == position and kept[2] == room:
            return kept[3]
        found = self._explain(view, room=room)
        self._kept = (view.pod, position, room, found)
        return found

    def _explain(self, view: ClassView, *, room: bool) -> FitErrors:
        columns = self.columns
        rows = np.flatnonzero(columns.present[: columns.size])
        if view.rejection is not None:
            return FitErrors(fit_message(rows.size, {view.rejection.message: rows.size} if rows.size else {}))
        counts: dict[str, int] = {}
        unresolvable: set[int] = set()
        number = rows.size
        for entry in view.filters:
            if not rows.size:
                break
            refused = rows[~entry.feasible(columns, rows)]
            if not refused.size:
                continue
            if isinstance(entry.plugin, NodeResourcesFit):
                reasons: Mapping[str, int] = self._lacking(entry, refused, room=room)
                # Nothing else is asked of a node that lacks room.
                settled = refused
            else:
                reasons = entry.plugin.reasons(entry.state, columns, refused)
                settled = refused[~entry.plugin.curable(entry.state, columns, refused)]
                unresolvable.update(settled.tolist())
            for reason, count in reasons.items():
                counts[reason] = counts.get(reason, 0) + count
            rows = rows[~np.isin(rows, settled)]
        return FitErrors(fit_message(number, counts), frozenset(unresolvable))

    def _lacking(self, entry: CompiledFilter, rows: Rows, *, room: bool) -> dict[str, int]:
        """Of each row the first resource that is short."""
        counts: dict[str, int] = {}
        columns = self.columns
        for row in rows.tolist():
            one = np.array((row,), dtype=np.intp)
            short = [
                each.removeprefix("Insufficient ") for each in entry.plugin.reasons(entry.state, columns, one)
            ]
            reason = insufficient(_in_order(short)) if room else _TOO_MANY_PODS
            counts[reason] = counts.get(reason, 0) + 1
        return counts


def _in_order(short: Sequence[str]) -> Iterable[str]:
    names = ["pods" if name == "Too many pods" else name for name in short]
    return sorted(names, key=lambda name: (name != "cpu", name != "memory", name))


def _vector(amounts: Mapping[str, int]) -> Total:
    """Of a sum in the ledger's units."""
    return {**of_requests(amounts), PODS: amounts.get(PODS, 0)}
