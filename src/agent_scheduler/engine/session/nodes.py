"""Finds nodes for tasks by the plugins of the fast path, on the batch scheduler's own snapshot.

The snapshot's columns have the future room, Volcano's FutureIdle: pods that are placed or have a claim on a node count,
and terminating pods do not. On rows without terminating pods and claims, this is also the current room. For the other
rows, the difference of the two is stored.
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
from ..dra.gang_search import MemberPlacement
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
from .model import JobInfo, TaskInfo, TaskStatus
from .nominated import Nominated
from .sparing import SparedRows

#: The maximum number of portions of a search for devices; no other task can run meanwhile.
_PORTIONS: Final = 8

#: Volcano's reason for a node that is full of pods, for tasks for which it checks no other capacity.
_TOO_MANY_PODS = "node(s) pod number exceeded"


#: The reason for a node whose room is kept for pods within the share of their queue.
_KEPT: Final = "node(s) kept for pods within the share of their queue"


class SessionNodes:
    """The nodes of a session. Owner: the session; only it writes to the trial's snapshot until it ends.

    Invariant: `_waiting` has, for each row with terminating pods or claims, the future room minus the current room, by
    resource.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        trial: Trial,
        shared: Shared | None = None,
        *,
        nominations: Nominations,
        scheduler_name: str = "",
    ) -> None:
        """Evaluate the nodes of `snapshot`, on `trial`, which belongs to it and has been reset.

        `shared` are the nodes to use exclusively (the filter NodeShard rejects others) or to prefer; None if all are
        equal. `nominations` of pods of other schedulers than `scheduler_name` are respected.
        """
        self._snapshot = snapshot
        self._trial = trial
        self._devices = snapshot.handle.devices
        #: Whether a search was given up, so that a task found no node although an undecided node may be feasible.
        self.is_partial = False
        self.columns = snapshot.columns
        self._rows = {node.name: row for row, node in enumerate(self.columns.nodes) if node is not None}
        mine = None if shared is None else shared.membership.nodes
        elsewhere = [] if mine is None else [row for name, row in self._rows.items() if name not in mine]
        only = shared is not None and shared.mode is ShardingMode.HARD
        #: Rows that are used only if no other is feasible.
        self._elsewhere = [] if only else elsewhere
        #: Rows of nodes that are not ready. They do not count in totals; their taints prevent placements there.
        self._unready = [row for row in self._rows.values() if not is_ready(self._node(row))]
        self._nominated = Nominated(nominations, self._rows, scheduler_name)
        #: The unready rows and those that may not be used.
        self._useless = sorted({*self._unready, *elsewhere}) if only else self._unready
        #: Row -> resource -> amount of terminating pods minus amount of claims; and the number of these pods.
        self._waiting: dict[int, dict[str, int]] = {}
        self._waiting_pods: dict[int, int] = {}
        #: [row] its position in the order of names; None until it is first needed.
        self._name_order: Ints | None = None
        #: Row -> UID -> task of a job that is there or has a claim there; None until it is first needed.
        self._tasks: dict[int, dict[str, TaskInfo]] | None = None
        #: The room that is currently kept from tasks.
        self._spared: Sequence[SparedRows] = ()
        #: The resources that jobs request.
        self.asked: Collection[str] = ()
        #: The session's jobs by name.
        self.jobs: Mapping[str, JobInfo] = {}
        #: (class, whether capacity was checked) -> why no node is feasible, valid for one version of the snapshot.
        self._kept: dict[tuple[PodClass, bool], FitErrors] = {}
        self._kept_at = -1

    def name(self, row: int) -> str:
        return self._node(row).name

    def _node(self, row: int) -> NodeInfo:
        node = self.columns.nodes[row]
        assert node is not None, "a row that is chosen has a node"
        return node

    def row(self, name: str) -> int:
        """Return the row of a node; -1 if it is unknown."""
        return self._rows.get(name, -1)

    @property
    def count(self) -> int:
        return len(self._rows)

    def total(self) -> Total:
        """Return the allocatable amounts of all ready nodes, which queues share; all schedulers' pods count in it."""
        return {**self._by_devices(), **self._sum(self.columns.allocatable, self._unready)}

    def usable(self) -> Total:
        """Return the allocatable amounts of the usable nodes."""
        return {**self._by_devices(), **self._sum(self.columns.allocatable, self._useless)}

    def used(self) -> Total:
        """Return the requests of pods on the usable nodes, of resources that any node has."""
        return self._sum(self.columns.requested, self._useless)

    def _by_devices(self) -> Total:
        """Return an upper bound of requested extended resources that devices provide: the number of all devices.

        Only a search finds the devices that match.
        """
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

    def tasks_on(self, row: int) -> Collection[TaskInfo]:
        """Return the tasks on a row, and those with a claim there."""
        if self._tasks is None:
            self._tasks = {}
            for job in self.jobs.values():
                for task in job.tasks.values():
                    if task.row >= 0 and task.node_name:
                        self._tasks.setdefault(task.row, {})[task.uid] = task
        return self._tasks.get(row, {}).values()

    def leave(self, task: TaskInfo) -> None:
        """Count the room of a terminating pod as future room.

        Pods with host ports or with terms about other pods are left out: these block other pods until the pod is gone.
        """
        if task.row >= 0 and not task.pod.cls.host_ports and not task.pod.cls.existing:
            self.release(task)

    def place(self, task: TaskInfo, view: ClassView | None = None) -> Mark | None:
        """Place a task on its row. Returns the trial's mark from before.

        `view` is the view that the decision used. Without it nothing is reserved, as for a claim on room that is still
        used. Returns None and changes nothing if a plugin cannot reserve what the pod needs there.
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

    def let_go(self, tasks: Iterable[TaskInfo]) -> None:
        """Release the reservations of plugins for tasks that keep their places but are not committed now.

        No other task runs on the event loop while there are reservations.
        """
        for task in tasks:
            self._trial.give_back(task.pod)

    def unplace(self, task: TaskInfo, mark: Mark | None = None) -> None:
        """Undo the placement of a task, which still has the status of the placement.

        With `mark`, the result of `place`, the pod's reservations are released too.
        """
        if mark is not None and self._trial.mark() == mark + 1:
            self._trial.rollback(mark)
        else:
            self._trial.remove(task.pod, task.row)
        self._nominated.placed.discard(task.uid)
        if self._tasks is not None:
            del self._tasks[task.row][task.uid]
        if task.status is TaskStatus.PIPELINED:
            self._wait(task, 1, -1)

    def release(self, task: TaskInfo) -> Mark:
        """Count the room of a task, which is about to be free, as future room. Returns the mark from before."""
        mark = self._trial.mark()
        if task.row >= 0:
            self._trial.remove(task.pod, task.row)
            self._wait(task, 1, 1)
        return mark

    def take_back_release(self, task: TaskInfo, mark: Mark) -> None:
        if task.row < 0:
            return
        if self._trial.mark() == mark + 1:
            self._trial.rollback(mark)
        else:
            self._trial.place(task.pod, task.row)
        self._wait(task, -1, -1)

    def _wait(self, task: TaskInfo, sign: int, pods: int) -> None:
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

    def view(self, task: TaskInfo) -> ClassView:
        """Return the current view of the nodes for a task."""
        if _asks_devices(task):
            self._devices.budget.left = PORTION
            self._look_again()
        return self._trial.view_of(task.pod)

    def best(self, task: TaskInfo, view: ClassView) -> int | None:
        """Return the best row for a task: among those with current room, or else among those with future room."""
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
        """Return a search that places at least `needed` of the pods together on current room."""
        return GangPlacing(self._trial, self._snapshot, pods, needed, self._not_now)

    def as_found(
        self, task: TaskInfo, found: MemberPlacement, allocate: Callable[[TaskInfo, int, ClassView], bool]
    ) -> bool:
        """Allocate a task as such a search found it. Returns False and changes nothing if this is impossible now."""
        view, row = self.view(task), self.row(found.node.name)
        with given(found, view, self._devices):
            return allocate(task, row, view)

    def _not_now(self, pod: PodInfo, view: ClassView) -> Sequence[int]:
        """Return the rows that have future room only, or whose room belongs to nominated pods."""
        later = [row for row in self._waiting if not self._has_room(pod, row)]
        return [*later, *self._nominated.taken(pod, view, self.columns)]

    def _look_again(self) -> None:
        """Evaluate the nodes again whose search for devices is incomplete."""
        before = self._trial.sequence
        if self._devices.again():
            self._trial.follow(before)

    def _best(self, task: TaskInfo, view: ClassView) -> int | None:
        if self._elsewhere:
            row = self._best_beside(task, view, [*self._elsewhere, *self._left_out(task)])
            if row is not None and self.has_room(task, row):
                return row
        return self._best_beside(task, view, self._left_out(task))

    def _best_beside(self, task: TaskInfo, view: ClassView, left_out: Sequence[int]) -> int | None:
        """Return the best row that is not in `left_out` and whose room does not belong to nominated pods."""
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
        row, _ = chosen[0]
        if not waiting or (not view.is_relative() and self.has_room(task, row)):
            return row
        later = [each for each in waiting if not self.has_room(task, each)]
        if not later:
            return row
        # Like Volcano, rank the rows with current room among themselves.
        now = best_of(view.ranked(columns, [*later, *taken]), 1, 0)
        return now[0][0] if now else row

    def has_room(self, task: TaskInfo, row: int) -> bool:
        """Return whether a row with future room for the task has current room for it."""
        return self._has_room(task.pod, row)

    def _has_room(self, pod: PodInfo, row: int) -> bool:
        waiting = self._waiting.get(row)
        if waiting is None:
            return True
        now = {resource: -amount for resource, amount in waiting.items()}
        return self._fits(pod, row, now) and _fits_gpus(pod, lambda: self._trial.gpus_now(row))

    def fits_without(self, task: TaskInfo, row: int, leaving: Sequence[TaskInfo] = ()) -> bool:
        """Return whether a row has future room for a task after the `leaving` tasks have left as well.

        Single GPUs are compared only without `leaving` tasks.
        """
        freed: dict[str, int] = {}
        if not leaving and not _fits_gpus(task.pod, lambda: self.columns.gpus.get(row, NO_GPUS)):
            return False
        for each in leaving:
            for resource, amount in each.pod.cls.requests.items():
                freed[resource] = freed.get(resource, 0) + amount
        return self._fits(task.pod, row, freed)

    def _fits(self, pod: PodInfo, row: int, freed: Mapping[str, int]) -> bool:
        """Return whether a row has future room, plus `freed`, for a pod beside the pods nominated there."""
        columns, nominated = self.columns, self._nominated
        known, offers, taken = columns.interns.resources, columns.offers[row], columns.taken[row]
        for resource, amount in pod.cls.requests.items():
            index = known.get(resource, columns.resources)
            offered, used = (offers[index], taken[index]) if index < columns.resources else (0, 0)
            kept = nominated.amount(row, pod, resource)
            if offered - used - kept + freed.get(resource, 0) < amount:
                return False
        return True

    def in_score_order(self, view: ClassView, rows: Rows) -> list[int]:
        """Return the rows in descending order of scores, then by name.

        Which pods are evicted for a gang may depend on this order, and rows have another order after a restart.
        """
        columns = self.columns
        if not rows.size:
            return []
        scores = np.zeros(rows.size, dtype=np.int64)
        for each in view.plugin_scores(columns, rows).values():
            scores += each
        found: list[int] = rows[np.lexsort((self._by_name()[rows], -scores))].tolist()
        if self._elsewhere:
            found.sort(key=set(self._elsewhere).__contains__)
        return found

    def _by_name(self) -> Ints:
        """Return [row] its position in the order of names."""
        if self._name_order is None:
            order = np.zeros(self.columns.size, dtype=np.int64)
            order[[self._rows[name] for name in sorted(self._rows)]] = np.arange(len(self._rows))
            self._name_order = order
        return self._name_order

    def of_use(self, task: TaskInfo) -> Collection[int]:
        """Return the rows on which the task would have room if enough pods left."""
        columns = self.columns
        rows, _ = self.if_pods_left(self.view(task))
        for resource, amount in task.pod.cls.requests.items():
            index = columns.interns.resources.get(resource, columns.resources)
            if index < columns.resources and not self._devices.stand_for((resource,)):
                rows = rows[columns.allocatable[index][rows] >= amount]
        found: list[int] = rows.tolist()
        return found

    @property
    def keeps(self) -> bool:
        return bool(self._spared)

    def keep(self, room: Sequence[SparedRows]) -> None:
        """Keep this room from tasks until the next call."""
        self._spared = room

    def _left_out(self, task: TaskInfo) -> Sequence[int]:
        """Return the rows on which the task would use kept room."""
        found: set[int] = set()
        for each in self._spared:
            found.update(each.hindered_by(task, self.columns).tolist())
        return sorted(found)

    def if_pods_left(self, view: ClassView) -> tuple[Rows, frozenset[str]]:
        """Return the rows that filters reject only for reasons that end when pods leave; capacity is not checked.

        The second value has the plugins that reject any row now.
        """
        columns = self.columns
        rows = np.flatnonzero(columns.present[: columns.size])
        if view.rejection is not None:
            return rows[:0], frozenset((view.rejection.plugin,))
        plugins: set[str] = set()
        for entry in view.filters:
            if isinstance(entry.plugin, NodeResourcesFit) or not rows.size:
                continue
            passed = entry.feasible(columns, rows)
            refused = rows[~passed]
            if refused.size:
                plugins.add(entry.plugin.name)
                passed[~passed] = entry.plugin.curable(entry.state, columns, refused)
                rows = rows[passed]
        return rows, frozenset(plugins)

    def why_not(self, task: TaskInfo, view: ClassView, *, room: bool = True) -> FitErrors:
        """Return why no node is feasible. Without `room`, only the number of pods is checked of the nodes' capacity."""
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
        # For unready nodes the reason is their taint, as in the fast path, so the check of capacity comes last.
        self._ask(sorted(view.filters, key=_is_room), rows[late], counts, plugins, room=room)
        if left_out:
            kept = int(np.count_nonzero(view.ranked(columns)[left_out] != REFUSED))
            counts |= {_KEPT: kept} if kept else {}
        return FitErrors(fit_message(rows.size, counts), frozenset(plugins))

    def _ask(
        self, filters: Sequence[CompiledFilter], rows: Rows, counts: dict[str, int], plugins: set[str], *, room: bool
    ) -> None:
        """Add rejections to `counts`, reason -> number of nodes, and the rejecting plugins to `plugins`."""
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
                # A node without room is not evaluated further, unless it is only full of pods.
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


def _asks_devices(task: TaskInfo) -> bool:
    return bool(task.pod.claims or task.pod.cls.extended)
