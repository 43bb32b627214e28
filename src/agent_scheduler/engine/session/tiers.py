"""Combines the results of plugins by tiers, as in Volcano's `session_plugins.go`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from operator import attrgetter
from typing import Any, Final, TypeVar

from ..queues.asks import needed
from ..quotas.queues import QueueInfo
from ..quotas.turns import number_of
from ..quotas.vector import Vector
from .conf import PluginOption
from .hooks import REJECT, Hooks, Invalid, Victims
from .model import READY, JobInfo, SubJobInfo, TaskInfo, TaskStatus

T = TypeVar("T")
Hook = TypeVar("Hook", bound=Callable[..., Any])

#: Hook -> the switch of plugins that enables it; the other hooks are always called.
SWITCHES = {
    "job_order": "enableJobOrder",
    "sub_job_order": "enableSubJobOrder",
    "task_order": "enableTaskOrder",
    "queue_order": "enableQueueOrder",
    "job_ready": "enableJobReady",
    "sub_job_ready": "enableSubJobReady",
    "job_pipelined": "enableJobPipelined",
    "sub_job_pipelined": "enableSubJobPipelined",
    "job_starving": "enableJobStarving",
    "job_enqueueable": "enableJobEnqueued",
    "job_enqueued": "enableJobEnqueued",
    "overused": "enabledOverused",
    "allocatable": "enabledAllocatable",
    "preemptive": "enablePreemptive",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
}

#: Statuses in which a task has room, or a claim on room.
_PLACED: Final = (*READY, TaskStatus.PIPELINED)

Opened = Sequence[Sequence[tuple[PluginOption, Hooks]]]


class Tiers:
    """The hooks of a session's plugins, in their order."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._job_orders = self._flat("job_order")
        self._sub_job_orders = self._flat("sub_job_order")
        self._task_orders = self._flat("task_order")
        self._queue_orders = self._flat("queue_order")
        self._victim_queue_orders = self._flat("victim_queue_order")
        self._job_valid = self._flat("job_valid")
        #: Returns whether a job's gang is complete.
        self.job_ready: Callable[[JobInfo], bool] = _all(self._flat("job_ready"))
        self._sub_job_ready: Callable[[SubJobInfo], bool] = _all(self._flat("sub_job_ready"))
        #: Returns whether a queue may hold a task in addition.
        self.allocatable: Callable[[QueueInfo, TaskInfo], bool] = _all(self._flat("allocatable"))
        self.allocatable_now: Callable[[QueueInfo, TaskInfo], bool] = _all(self._flat("allocatable_now"))
        #: Returns whether a queue stays within its share and limits with a vector more, for tasks of these UIDs.
        self.may_hold: Callable[[JobInfo, Vector, Sequence[str]], bool] = _all(self._flat("may_hold"))
        self._overused = self._flat("overused")
        self._preemptive = self._flat("preemptive")
        self._enqueued = self._flat("job_enqueued")
        self._pipelined = self._tiered("job_pipelined")
        self._sub_job_pipelined = self._tiered("sub_job_pipelined")
        self._enqueueable = self._tiered("job_enqueueable")
        self._starving = self._tiered("job_starving")
        self._preemptable = self._tiered("preemptable")
        self._reclaimable = self._tiered("reclaimable")
        self._beyond_share: Sequence[Victims] = tuple(
            hooks["reclaimable"]
            for tier in opened
            for option, hooks in tier
            if "reclaimable" in hooks and "may_hold" in hooks and option.enabled(SWITCHES["reclaimable"])
        )

    def _tiered(self, name: str) -> tuple[tuple[Any, ...], ...]:
        switch = SWITCHES.get(name, "")
        return tuple(
            tuple(
                hook
                for option, hooks in tier
                if (hook := hooks.get(name)) is not None and (not switch or option.enabled(switch))
            )
            for tier in self._opened
        )

    def _flat(self, name: str) -> tuple[Any, ...]:
        return tuple(hook for tier in self._tiered(name) for hook in tier)

    # ---- orders

    def job_key(self, job: JobInfo) -> tuple[Any, ...]:
        """Return the sort key of a job: the keys of plugins, then creation time and name."""
        return (*[order(job) for order in self._job_orders], job.created, job.uid)

    def sub_job_key(self, sub_job: SubJobInfo) -> tuple[Any, ...]:
        return (*[order(sub_job) for order in self._sub_job_orders], sub_job.index, sub_job.uid)

    def in_task_order(self, tasks: Iterable[TaskInfo]) -> list[TaskInfo]:
        """Return the tasks sorted by plugins, the number at the end of the name, creation and UID (`CompareTask`)."""
        keyed = [([order(task) for order in self._task_orders], number_of(task.pod.name), task) for task in tasks]
        if all(number is not None for _, number, _ in keyed):
            keyed.sort(key=lambda each: (each[0], each[1], each[2].pod.created, each[2].uid))
        elif all(number is None for _, number, _ in keyed):
            keyed.sort(key=lambda each: (each[0], each[2].pod.created, each[2].uid))
        else:
            keyed.sort(key=cmp_to_key(_compare))
        return [task for _, _, task in keyed]

    def in_pending_order(self, job: JobInfo, tasks: Iterable[TaskInfo]) -> list[TaskInfo]:
        """Return the job's waiting tasks in the order of placement.

        First are those that each role needs for its minimum, since the surplus of one role would otherwise use the room
        that another role, and therefore the gang, needs. In both parts pods of reserved stages come last, since with
        the room that an earlier stage lacks they would wait forever.
        """
        ordered = sorted(self.in_task_order(tasks), key=lambda task: task.pod.stands_by)
        if not job.role_minimums:
            return ordered
        lacking = {role: least - job.in_role(role, _PLACED) for role, least in job.role_minimums.items()}
        first, others = needed(ordered, role_of=attrgetter("role"), more=0, of_roles=lacking)
        return first + others

    def queue_first(self, left: QueueInfo, right: QueueInfo) -> bool:
        """Return whether `left` comes before `right`."""
        found = self.compare_queues(left, right)
        return found < 0 if found else (left.created, left.name) < (right.created, right.name)

    def compare_queues(self, left: QueueInfo, right: QueueInfo) -> int:
        """Compare by the plugins only: negative if `left` comes first, 0 if they are equal."""
        return next((found for order in self._queue_orders if (found := order(left, right))), 0)

    def victim_queue_first(self, left: QueueInfo, right: QueueInfo, preemptor: QueueInfo) -> bool:
        for order in self._victim_queue_orders:
            found: int = order(left, right, preemptor)
            if found:
                return found < 0
        return not self.queue_first(left, right)

    # ---- all have to agree

    def invalid(self, job: JobInfo) -> Invalid | None:
        """Return the result of the first plugin that finds the job invalid; None if it is valid."""
        for valid in self._job_valid:
            found: Invalid | None = valid(job)
            if found is not None:
                return found
        return None

    def sub_job_ready(self, job: JobInfo, sub_job: SubJobInfo | None) -> bool:
        """Return whether a sub-group is ready; without one, whether the job is."""
        if sub_job is None:
            return self.job_ready(job)
        return self._sub_job_ready(sub_job)

    def preemptive(self, queue: QueueInfo, task: TaskInfo) -> bool:
        return all(allows(queue, task) for allows in self._preemptive)

    def overused(self, queue: QueueInfo) -> bool:
        return any(overused(queue) for overused in self._overused)

    # ---- by tiers

    def job_pipelined(self, job: JobInfo) -> bool:
        return _permitted(self._pipelined, job)

    def sub_job_pipelined(self, job: JobInfo, sub_job: SubJobInfo | None) -> bool:
        if sub_job is None:
            return self.job_pipelined(job)
        return _permitted(self._sub_job_pipelined, sub_job)

    def enqueueable(self, job: JobInfo) -> bool:
        return _permitted(self._enqueueable, job)

    def enqueued(self, job: JobInfo) -> None:
        for hook in self._enqueued:
            hook(job)

    def starving(self, job: JobInfo) -> bool:
        """Return whether the job starves: the first tier with a vote decides; without any vote it does not."""
        for tier in self._starving:
            if not all(starves(job) for starves in tier):
                return False
            if tier:
                return True
        return False

    def preemptable(self, preemptor: TaskInfo, tasks: Sequence[TaskInfo]) -> list[TaskInfo]:
        return _victims(self._preemptable, preemptor, tasks)

    def reclaimable(
        self, reclaimer: TaskInfo, tasks: Sequence[TaskInfo], *, beyond_share: bool = False
    ) -> list[TaskInfo]:
        """Return the tasks that may be evicted for the reclaimer.

        With `beyond_share`, plugins of shares in all tiers must agree.
        """
        found = _victims(self._reclaimable, reclaimer, tasks)
        for vote in self._beyond_share if beyond_share else ():
            found = list(vote(reclaimer, found) or ())
        return found

    # ---- all are called

    def every(self, name: str) -> tuple[Any, ...]:
        """Return the hooks of a name, in the order of their plugins."""
        return self._flat(name)


def _all(hooks: Sequence[Callable[..., bool]]) -> Callable[..., bool]:
    """Return a function that returns whether all hooks agree; a single hook is returned itself, which is faster."""
    return hooks[0] if len(hooks) == 1 else lambda *about: all(hook(*about) for hook in hooks)


def _permitted(tiers: Sequence[Sequence[Callable[[T], int]]], about: T) -> bool:
    """Return whether the votes permit: a rejection is final, a permitting tier ends the vote, no vote permits."""
    for tier in tiers:
        permitted = False
        for vote in tier:
            found = vote(about)
            if found <= REJECT:
                return False
            permitted = permitted or found > 0
        if permitted:
            return True
    return True


def _victims(tiers: Sequence[Sequence[Victims]], preemptor: TaskInfo, tasks: Sequence[TaskInfo]) -> list[TaskInfo]:
    """Return the tasks that all plugins of a tier name, in the first tier that has any.

    If a plugin names none, or none of those that the others name, the tier has no result, and the next one decides.
    """
    for tier in tiers:
        victims: list[TaskInfo] | None = None
        for vote in tier:
            candidates = vote(preemptor, tasks)
            if candidates is None:
                continue
            if not candidates:
                victims = None
                break
            if victims is None:
                victims = list(candidates)
            else:
                named = {task.uid for task in candidates}
                victims = [task for task in victims if task.uid in named]
            if not victims:
                # Volcano treats this as no vote, so the next plugin of the tier would name any tasks.
                victims = None
                break
        if victims is not None:
            return victims
    return []


_Keyed = tuple[list[Any], int | None, TaskInfo]


def _compare(left: _Keyed, right: _Keyed) -> int:
    if left[0] != right[0]:
        return -1 if left[0] < right[0] else 1
    one, other = left[1], right[1]
    if one is not None and other is not None and one != other:
        return -1 if one < other else 1
    return -1 if (left[2].pod.created, left[2].uid) < (right[2].pod.created, right[2].uid) else 1
