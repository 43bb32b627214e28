"""Where a task can go: nodes as the plugins of the fast path judge them, on the batch scheduler's own snapshot.

The snapshot's columns show the room that there will be, Volcano's FutureIdle: pods that are placed or have a claim on a
node take room, and pods that leave take none. On rows where no pod leaves and none has a claim, that is the room that
there is. For the others it is kept how the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from ..decide.classview import ClassView
from ..decide.compiled import CompiledFilter
from ..decide.gang_placing import GangPlacing, given
from ..decide.ranking import REFUSED, best_of
from ..decide.snapshot import Snapshot
from ..decide.trial import Mark, Trial
from ..dra.catalogue import PORTION
from ..dra.gang_search import Placement
from ..plugins.node_resources_fit import NodeResourcesFit
from ..preemption.nominated import Nominations
from ..quotas.vector import COMMON, Total, of_requests
from ..shards.claims import ShardingMode, Shared
from ..state.columns import Ints, Rows
from ..state.gpus import NO_GPUS, Free, fits
from ..state.nodeinfo import NodeInfo, is_ready
from ..state.podclass import PODS, PodClass
from ..state.podinfo import PodInfo
from .fit import FitErrors, first_short, fit_message
from .model import Job, Task, TaskStatus
from .nominated import Nominated
from .sparing import Spared

#: Of a search for devices, until it is given up: no other task has a turn meanwhile.
_PORTIONS: Final = 8

#: Volcano's reason for a node that is full of pods, where it looks at nothing else of its room.
_TOO_MANY_PODS = "node(s) pod number exceeded"


#: What is said of a node that has room for those alone who are within the share of their queue.
_KEPT: Final = "node(s) kept for pods within the share of their queue"


class SessionNodes:
    """Owner: the session. Nobody else writes to the trial's snapshot until it is over.

    Invariant: `_waiting` has, for each row on which pods leave or have claims, what they take by resource: more than 0
    where the room that there is, is less than the one to come.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        trial: Trial,
        shared: Shared | None = None,
        *,
        nominations: Nominations | None = None,
        scheduler_name: str = "",
    ) -> None:
        """`trial` is one of `snapshot`, and has been reset. `shared`: which nodes alone may be used, as the filter
        NodeShard of the views says, too, or come first; None: all are alike. `nominations` are read beside it: those of
        pods that are not of `scheduler_name`."""
        self._snapshot = snapshot
        self._trial = trial
        self._devices = snapshot.handle.devices
        #: Whether a task was refused nodes that nobody knows of whether they would do: searches were given up.
        self.is_partial = False
        self.columns = snapshot.columns
        self._rows = {node.name: row for row, node in enumerate(self.columns.nodes) if node is not None}
        mine = None if shared is None else shared.membership.nodes
        elsewhere = [] if mine is None else [row for name, row in self._rows.items() if name not in mine]
        only = shared is not None and shared.mode is ShardingMode.HARD
        #: Rows that are taken where no other will do.
        self._elsewhere = [] if only else elsewhere
        #: They add nothing to what there is to share. That nobody is placed there is the matter of their taints.
        self._unready = [row for row in self._rows.values() if not is_ready(self._node(row))]
        self._nominated = Nominated(nominations, self._rows, scheduler_name)
        #: They, and those that may not be used at all.
        self._useless = sorted({*self._unready, *elsewhere}) if only else self._unready
        #: Row -> resource -> what leaves less what has a claim; and how many pods these are.
        self._waiting: dict[int, dict[str, int]] = {}
        self._waiting_pods: dict[int, int] = {}
        #: Row -> UID -> task of a job that is there, or has a claim there; None until it is asked for.
        self._tasks: dict[int, dict[str, Task]] | None = None
        #: Room that nobody is given for the time being.
        self._spared: Sequence[Spared] = ()
        #: Resources that they ask for.
        self.asked: Collection[str] = ()
        #: Jobs of the session by name, as it has them.
        self.jobs: Mapping[str, Job] = {}
        #: (class, whether room was looked at) -> why no node would do, as of this change of the snapshot.
        self._kept: dict[tuple[PodClass, bool], FitErrors] = {}
        self._kept_at = -1

    def name(self, row: int) -> str:
        return self._node(row).name

    def _node(self, row: int) -> NodeInfo:
        node = self.columns.nodes[row]
        assert node is not None, "a row that is chosen has a node"
        return node

    def row(self, name: str) -> int:
        """-1 for a node that there is not."""
        return self._rows.get(name, -1)

    @property
    def count(self) -> int:
        return len(self._rows)

    def total(self) -> Total:
        """What all nodes offer that are ready: what queues share, whoever places their pods."""
        return {**self._by_devices(), **self._sum(self.columns.allocatable, self._unready)}

    def usable(self) -> Total:
        """What those offer that may be used."""
        return {**self._by_devices(), **self._sum(self.columns.allocatable, self._useless)}

    def used(self) -> Total:
        """What pods on these ask for of what any node offers."""
        return self._sum(self.columns.requested, self._useless)

    def _by_devices(self) -> Total:
        """Of extended resources that devices stand for, and jobs ask for, no more than there can be: as many as there
        are devices. Which of them are meant is found out by searches."""
        named = [each for each in self._devices.resources() if each in self.asked]
        number = sum(len(each.devices) for each in self._devices.pools.slices.values()) if named else 0
        return dict.fromkeys(named, number * 1000)

    def _sum(self, amounts: Ints, without: Sequence[int]) -> Total:
        columns = self.columns
        sums = amounts[:, : columns.size].sum(axis=1)
        if without:
            sums -= amounts[:, without].sum(axis=1)
        totals = sums.tolist()
        found = {
            resource: totals[index]
            for resource, index in columns.interns.resources.items()
            if index < columns.resources and (totals[index] or resource in COMMON)
        }
        return {**of_requests(found), PODS: found.get(PODS, 0)}

    # ---- what the session does

    def tasks_on(self, row: int) -> Collection[Task]:
        """Those on a row, and those that have a claim there."""
        if self._tasks is None:
            self._tasks = {}
            for job in self.jobs.values():
                for task in job.tasks.values():
                    if task.row >= 0 and task.node_name:
                        self._tasks.setdefault(task.row, {})[task.uid] = task
        return self._tasks.get(row, {}).values()

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
        if self._tasks is not None:
            self._tasks.setdefault(task.row, {})[task.uid] = task
        if task.status is TaskStatus.PIPELINED:
            self._wait(task, -1, 1)
        self._nominated.placed.add(task.uid)
        return mark

    def let_go(self, tasks: Iterable[Task]) -> None:
        """The tasks stay where they are, but what plugins have reserved for them is for others: they are not sent now,
        and nobody else has a turn while anything is reserved."""
        for task in tasks:
            self._trial.give_back(task.pod)

    def unplace(self, task: Task, mark: Mark | None = None) -> None:
        """`task` has the status that it was placed in. `mark`: what `place` gave, if that is known; with it, what was
        reserved for the pod is given back."""
        if mark is not None and self._trial.mark() == mark + 1:
            self._trial.rollback(mark)
        else:
            self._trial.remove(task.pod, task.row)
        self._nominated.placed.discard(task.uid)
        if self._tasks is not None:
            del self._tasks[task.row][task.uid]
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
        if _asks_devices(task):
            self._devices.budget.left = PORTION
            self._look_again()
        return self._trial.view_of(task.pod)

    def best(self, task: Task, view: ClassView) -> int | None:
        """The row that a task is to go to: of those that have room now the best, else of those that will have it."""
        row = self._best(task, view)
        if row is None and _asks_devices(task):
            for _ in range(_PORTIONS):
                if row is not None or not self._devices.undecided:
                    return row
                view = self.view(task)
                row = self._best(task, view)
            self.is_partial |= row is None and bool(self._devices.undecided)
        return row

    def placing(self, pods: Sequence[PodInfo], needed: int) -> GangPlacing:
        """The search for places for so many of these, all of which have room there now."""
        return GangPlacing(self._trial, self._snapshot, pods, needed, self._not_now)

    def as_found(
        self, task: Task, found: Placement, allocate: Callable[[Task, int, ClassView], bool]
    ) -> bool:
        """Have a task allocated as such a search found it; False, and nothing is changed, where that can no longer
        be."""
        view, row = self.view(task), self.row(found.node.name)
        with given(found, view, self._devices):
            return allocate(task, row, view)

    def _not_now(self, pod: PodInfo, view: ClassView) -> Sequence[int]:
        """Rows that are others' by nomination, or only will have room."""
        later = [row for row in self._waiting if not self._has_room(pod, row)]
        return [*later, *self._nominated.taken(pod, view, self.columns)]

    def _look_again(self) -> None:
        """Have the nodes asked about again that searches came to no end for."""
        before = self._trial.sequence
        if self._devices.again():
            self._trial.follow(before)

    def _best(self, task: Task, view: ClassView) -> int | None:
        if self._elsewhere:
            row = self._best_beside(task, view, [*self._elsewhere, *self._left_out(task)])
            if row is not None and self.has_room(task, row):
                return row
        return self._best_beside(task, view, self._left_out(task))

    def _best_beside(self, task: Task, view: ClassView, left_out: Sequence[int]) -> int | None:
        """Of the rows that are not `left_out`, nor are others' by nomination."""
        columns, waiting = self.columns, self._waiting
        taken = [*left_out, *self._nominated.taken(task.pod, view, columns)]
        nominated = task.pod.nominated_node_name
        if nominated:
            row = self.row(nominated)
            if row >= 0 and row not in taken and view.ranked(columns)[row] != REFUSED:
                return row
        chosen = best_of(view.ranked(columns, taken), 1, 0) if taken else view.best(columns, 1, 0)
        if not chosen:
            return None
        row = chosen[0]
        if not waiting or (not view.is_relative() and self.has_room(task, row)):
            return row
        later = [each for each in waiting if not self.has_room(task, each)]
        if not later:
            return row
        # Volcano ranks among themselves those that have room now.
        now = best_of(view.ranked(columns, [*later, *taken]), 1, 0)
        return now[0] if now else row

    def has_room(self, task: Task, row: int) -> bool:
        """Whether a row that has room to come has it now."""
        return self._has_room(task.pod, row)

    def _has_room(self, pod: PodInfo, row: int) -> bool:
        waiting = self._waiting.get(row)
        if waiting is None:
            return True
        now = {resource: -amount for resource, amount in waiting.items()}
        return self._fits(pod, row, now) and _fits_gpus(pod, lambda: self._trial.gpus_now(row))

    def fits_without(self, task: Task, row: int, leaving: Sequence[Task] = ()) -> bool:
        """Whether there is the room to come for a task on a row once others have left, too. GPUs are looked at one by
        one when they have."""
        freed: dict[str, int] = {}
        if not leaving and not _fits_gpus(task.pod, lambda: self.columns.gpus.get(row, NO_GPUS)):
            return False
        for each in leaving:
            for resource, amount in each.pod.cls.requests.items():
                freed[resource] = freed.get(resource, 0) + amount
        return self._fits(task.pod, row, freed)

    def _fits(self, pod: PodInfo, row: int, freed: Mapping[str, int]) -> bool:
        """Whether a row has the room to come for a pod and those nominated there, with so much more of it."""
        columns, nominated = self.columns, self._nominated
        known, offers, taken = columns.interns.resources, columns.offers[row], columns.taken[row]
        for resource, amount in pod.cls.requests.items():
            index = known.get(resource, columns.resources)
            offered, used = (offers[index], taken[index]) if index < columns.resources else (0, 0)
            kept = nominated.amount(row, pod, resource)
            if offered - used - kept + freed.get(resource, 0) < amount:
                return False
        return True

    def in_score_order(self, view: ClassView) -> list[int]:
        """Rows that no filter refuses for what would stay if pods left, the best first; of equals the first."""
        columns, rows = self.columns, self._if_pods_left(view)
        if not rows.size:
            return []
        scores = np.zeros(rows.size, dtype=np.int64)
        for each in view.plugin_scores(columns, rows).values():
            scores += each
        found: list[int] = rows[np.argsort(-scores, kind="stable")].tolist()
        if self._elsewhere:
            found.sort(key=set(self._elsewhere).__contains__)
        return found

    def of_use(self, task: Task) -> Collection[int]:
        """Rows on which the task would have room if enough pods left."""
        columns = self.columns
        rows = self._if_pods_left(self.view(task))
        for resource, amount in task.pod.cls.requests.items():
            index = columns.interns.resources.get(resource, columns.resources)
            if index < columns.resources and not self._devices.stand_for((resource,)):
                rows = rows[columns.allocatable[index][rows] >= amount]
        found: list[int] = rows.tolist()
        return found

    @property
    def keeps(self) -> bool:
        return bool(self._spared)

    def keep(self, room: Sequence[Spared]) -> None:
        """From now on nobody is given this, until other room is named."""
        self._spared = room

    def _left_out(self, task: Task) -> Sequence[int]:
        """Rows on which it would take of what is kept."""
        found: set[int] = set()
        for each in self._spared:
            found.update(each.hindered_by(task, self.columns).tolist())
        return sorted(found)

    def _if_pods_left(self, view: ClassView) -> Rows:
        """Rows that no filter refuses for what would stay if pods left; room is not looked at."""
        columns = self.columns
        rows = np.flatnonzero(columns.present[: columns.size])
        if view.rejection is not None:
            return rows[:0]
        for entry in view.filters:
            if isinstance(entry.plugin, NodeResourcesFit) or not rows.size:
                continue
            passed = entry.feasible(columns, rows)
            refused = rows[~passed]
            if refused.size:
                passed[~passed] = entry.plugin.curable(entry.state, columns, refused)
                rows = rows[passed]
        return rows

    def why_not(self, task: Task, view: ClassView, *, room: bool = True) -> FitErrors:
        """Why no node would do. `room`: whether the room of nodes is looked at for anything but pods."""
        with_nominated = self._nominated.why_not(task.pod, view, self.columns)
        if with_nominated is not None:
            return with_nominated
        if self._spared:
            return self._explain(view, room=room, left_out=self._left_out(task))
        position = self._snapshot.touched.end
        if position != self._kept_at:
            self._kept_at = position
            self._kept.clear()
        found = self._kept.get((view.pod, room))
        if found is None:
            found = self._kept[view.pod, room] = self._explain(view, room=room)
        return found

    def _explain(self, view: ClassView, *, room: bool, left_out: Sequence[int] = ()) -> FitErrors:
        columns = self.columns
        rows = np.flatnonzero(columns.present[: columns.size])
        counts: dict[str, int] = {}
        plugins: set[str] = set()
        if view.rejection is not None:
            counts = {view.rejection.message: rows.size} if rows.size else {}
            return FitErrors(fit_message(rows.size, counts), frozenset((view.rejection.plugin,)))
        late = np.isin(rows, self._unready)
        self._ask(view.filters, rows[~late], counts, plugins, room=room)
        # Their taints say why nobody goes there, as in the fast path's words; whether there would be room does not.
        self._ask(sorted(view.filters, key=_is_room), rows[late], counts, plugins, room=room)
        if left_out:
            kept = int(np.count_nonzero(view.ranked(columns)[left_out] != REFUSED))
            counts |= {_KEPT: kept} if kept else {}
        return FitErrors(fit_message(rows.size, counts), frozenset(plugins))

    def _ask(
        self,
        filters: Sequence[CompiledFilter],
        rows: Rows,
        counts: dict[str, int],
        plugins: set[str],
        *,
        room: bool,
    ) -> None:
        """Adds to `counts`, reason -> nodes, and to the `plugins` that refused."""
        columns = self.columns
        for entry in filters:
            if not rows.size:
                break
            refused = rows[~entry.feasible(columns, rows)]
            if not refused.size:
                continue
            plugins.add(entry.plugin.name)
            if _is_room(entry):
                reasons: Mapping[str, int] = {_TOO_MANY_PODS: refused.size}
                if room:
                    reasons = first_short(entry.state, columns, refused)
                # Nothing else is asked of a node that lacks room, but for one that is full of pods.
                settled = refused if room else refused[:0]
            else:
                reasons = entry.plugin.reasons(entry.state, columns, refused)
                settled = refused[~entry.plugin.curable(entry.state, columns, refused)]
            for reason, count in reasons.items():
                counts[reason] = counts.get(reason, 0) + count
            rows = rows[~np.isin(rows, settled)]


def _is_room(entry: CompiledFilter) -> bool:
    return isinstance(entry.plugin, NodeResourcesFit)


def _fits_gpus(pod: PodInfo, free: Callable[[], Free]) -> bool:
    return not pod.cls.gpu or fits(free(), pod.cls.gpu)


def _asks_devices(task: Task) -> bool:
    return bool(task.pod.claims or task.pod.cls.extended)
