"""Where a task can go: nodes as the plugins of the fast path judge them, on the batch scheduler's own snapshot.

The snapshot's columns show the room that there will be, Volcano's FutureIdle: pods that are placed or have a claim on a
node take room, and pods that leave take none. On rows where no pod leaves and none has a claim, that is the room that
there is. For the others it is kept how the two differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..decide.classview import ClassView
from ..decide.compiled import CompiledFilter
from ..decide.ranking import REFUSED, best_of
from ..decide.snapshot import Snapshot
from ..decide.trial import Mark, Trial
from ..plugins.node_resources_fit import NodeResourcesFit
from ..quotas.vector import COMMON, Total, of_requests
from ..state.columns import Ints, Rows
from ..state.podclass import PODS, PodClass
from .fit import FitErrors, fit_message, insufficient
from .model import Task, TaskStatus

#: Volcano's reason for a node that is full of pods, where it looks at nothing else of its room.
_TOO_MANY_PODS = "node(s) pod number exceeded"


class SessionNodes:
    """Owner: the session. Nobody else writes to the trial's snapshot until it is over.

    Invariant: `_waiting` has, for each row on which pods leave or have claims, what they take by resource: more than 0
    where the room that there is, is less than the one to come.
    """

    def __init__(self, snapshot: Snapshot, trial: Trial) -> None:
        """`trial` is one of `snapshot`, and has been reset."""
        self._snapshot = snapshot
        self._trial = trial
        self.columns = snapshot.columns
        self._rows = {node.name: row for row, node in enumerate(self.columns.nodes) if node is not None}
        #: Row -> resource -> what leaves less what has a claim; and how many pods these are.
        self._waiting: dict[int, dict[str, int]] = {}
        self._waiting_pods: dict[int, int] = {}
        #: (class, change of the snapshot, whether room was looked at) -> why no node would do, as last asked.
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
        return self._sum(self.columns.allocatable)

    def used(self) -> Total:
        """What pods on nodes ask for of what any node offers."""
        return self._sum(self.columns.requested)

    def _sum(self, amounts: Ints) -> Total:
        columns = self.columns
        totals = amounts[:, : columns.size].sum(axis=1).tolist()
        found = {
            resource: totals[index]
            for resource, index in columns.interns.resources.items()
            if index < columns.resources and (totals[index] or resource in COMMON)
        }
        return {**of_requests(found), PODS: found.get(PODS, 0)}

    # ---- what the session does

    def leave(self, task: Task) -> None:
        """A pod is being deleted: the room that it has is about to be free. Not counted of a pod with host ports or
        terms about others, which are in the way for as long as it is there."""
        if task.row >= 0 and not task.pod.cls.host_ports and not task.pod.cls.existing:
            self.release(task)

    def place(self, task: Task, view: ClassView | None = None) -> Mark | None:
        """Where the trial stood before; None, and nothing is changed, where a plugin has not what the pod needs there.

        `view`: what the task was decided in; without it nothing is reserved, as for a claim on room that is still
        taken.
        """
        mark = self._trial.mark()
        if view is None:
            self._trial.place(task.pod, task.row)
        elif not self._trial.try_place(task.pod, task.row, view):
            return None
        if task.status is TaskStatus.PIPELINED:
            self._wait(task, -1, 1)
        return mark

    def unplace(self, task: Task, mark: Mark | None = None) -> None:
        """`task` has the status that it was placed in. `mark`: what `place` gave, if that is known; with it, what was
        reserved for the pod is given back."""
        if mark is not None and self._trial.mark() == mark + 1:
            self._trial.rollback(mark)
        else:
            self._trial.remove(task.pod, task.row)
        if task.status is TaskStatus.PIPELINED:
            self._wait(task, 1, -1)

    def release(self, task: Task) -> Mark:
        """The task's room is about to be free."""
        mark = self._trial.mark()
        if task.row >= 0:
            self._trial.remove(task.pod, task.row)
            self._wait(task, 1, 1)
        return mark

    def take_back_release(self, task: Task, mark: Mark) -> None:
        if task.row < 0:
            return
        if self._trial.mark() == mark + 1:
            self._trial.rollback(mark)
        else:
            self._trial.place(task.pod, task.row)
        self._wait(task, -1, -1)

    def _wait(self, task: Task, sign: int, pods: int) -> None:
        row = task.row
        number = self._waiting_pods.get(row, 0) + pods
        if not number:
            del self._waiting[row], self._waiting_pods[row]
            return
        self._waiting_pods[row] = number
        waiting = self._waiting.setdefault(row, {})
        for resource, amount in task.pod.cls.requests.items():
            waiting[resource] = waiting.get(resource, 0) + sign * amount

    # ---- what it asks

    def view(self, task: Task) -> ClassView:
        """What plugins say of the nodes for a task, as things stand."""
        return self._trial.view_of(task.pod)

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
        position = self._snapshot.touched.end
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
                # Nothing else is asked of a node that lacks room, but for one that is full of pods.
                settled = refused if room else refused[:0]
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
