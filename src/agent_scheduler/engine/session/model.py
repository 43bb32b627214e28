"""The jobs and tasks of a session: Volcano's `JobInfo` and `TaskInfo` (`pkg/scheduler/api`).

A job is a group with its pods, a task one of these pods. Each session creates its own, and only it changes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from agent_scheduler.objects.batch import INQUEUE, PENDING, QUEUE_ALLOCATION_GATE, PodGroupCondition

from ..decide.compiled import CompiledFilter
from ..gangs.group import PodGroupInfo, SubGroup, effective_minimum
from ..quotas.vector import Total, Vector, add_to, take_from
from ..state.podinfo import PodInfo
from .fit import FitErrors


class TaskStatus(IntEnum):
    PENDING = 0
    #: Placed, in a gang that is not complete so far.
    ALLOCATED = 1
    #: Placed on room that is about to be free.
    PIPELINED = 2
    BINDING = 3
    BOUND = 4
    RUNNING = 5
    RELEASING = 6
    SUCCEEDED = 7
    FAILED = 8
    UNKNOWN = 9

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS: Final = tuple(each.name.capitalize() for each in TaskStatus)

NO_ERRORS: Final[Mapping[str, FitErrors]] = MappingProxyType({})

PENDING_TASKS: Final = TaskStatus.PENDING
#: Statuses in which a task has room (`AllocatedStatus`).
HOLDING: Final = frozenset((TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING, TaskStatus.ALLOCATED))
#: Statuses in which a task counts for the minimum of its gang (`ReadyTaskNum`).
READY: Final = (*HOLDING, TaskStatus.SUCCEEDED)
#: Statuses in which a task has no room on a node at present; a pipelined one has it once others have left the node.
WITHOUT_ROOM: Final = (TaskStatus.PENDING, TaskStatus.PIPELINED)
_IS_READY: Final = tuple(status in READY for status in TaskStatus)
_IS_HOLDING: Final = tuple(status in HOLDING for status in TaskStatus)

#: Phase -> status, of a pod that has a node and is not terminating.
_BY_PHASE: Final[Mapping[str, TaskStatus]] = {
    "Running": TaskStatus.RUNNING,
    "Pending": TaskStatus.BOUND,
    "": TaskStatus.BOUND,
    "Succeeded": TaskStatus.SUCCEEDED,
    "Failed": TaskStatus.FAILED,
}


def status_of(pod: PodInfo) -> TaskStatus:
    """Return the status of a pod by its object (`getTaskStatus`)."""
    status = _BY_PHASE.get(pod.batch.phase if pod.batch is not None else "", TaskStatus.UNKNOWN)
    if status in (TaskStatus.RUNNING, TaskStatus.BOUND):
        if pod.deleting:
            return TaskStatus.RELEASING
        if status is TaskStatus.BOUND and not pod.node_name:
            return TaskStatus.PENDING
    return status


class TaskInfo:
    """A pod in a session."""

    __slots__ = (
        "best_effort",
        "evicting",
        "filters",
        "gated",
        "has_other_gate",
        "job",
        "last",
        "node_name",
        "only_queue_gate",
        "pod",
        "priority",
        "request",
        "role",
        "row",
        "status",
        "sub_job",
        "uid",
    )

    def __init__(self, pod: PodInfo, job: JobInfo, request: Vector, *, best_effort: bool) -> None:
        batch = pod.batch
        self.uid = pod.uid
        self.pod = pod
        self.job = job
        self.sub_job: SubJobInfo | None = None
        self.role = batch.role if batch is not None else ""
        self.status = status_of(pod)
        self.priority = pod.priority if batch is None or batch.priority is None else batch.priority
        #: The requests, including 1 of the resource pods.
        self.request = request
        #: Whether it requests nothing else.
        self.best_effort = best_effort
        #: Its node and row, chosen or actual; empty and -1 if there is none.
        self.node_name = pod.node_name
        self.row = -1
        #: Whether pods are evicted for it.
        self.evicting = False
        #: The filters that accepted the node on which it is allocated.
        self.filters: Sequence[CompiledFilter] = ()
        #: (status, node, evicting) of the last attempt that was undone.
        self.last: tuple[TaskStatus, str, bool] | None = None
        gates = pod.closed_gates if pod.gates else ()
        self.gated = bool(gates)
        #: Whether its only closed gate is that of its queue.
        self.only_queue_gate = gates == (QUEUE_ALLOCATION_GATE,)
        #: Whether it has a closed gate other than that of its queue.
        self.has_other_gate = self.gated and not self.only_queue_gate

    @property
    def gate_managed(self) -> bool:
        """Whether the scheduler may remove the queue's gate from it."""
        return self.pod.batch is not None and self.pod.batch.gate_managed

    @property
    def gets_free(self) -> bool:
        """Whether it has no gate, or only that of its queue, and the scheduler may remove it."""
        return not self.has_other_gate and (self.gate_managed or not self.gated)

    @property
    def preemptable(self) -> bool:
        """Whether it may be evicted for other jobs."""
        return self.pod.batch is None or self.pod.batch.preemptable

    @property
    def attempt(self) -> tuple[TaskStatus, str, bool]:
        """(status, node, evicting) of the last attempt that was undone, or else the current ones."""
        return self.last or (self.status, self.node_name, self.evicting)


class _Counts:
    """Tasks by status, with counts for the minimum."""

    __slots__ = ("best_effort", "by_status", "minimum", "ready", "tasks")

    def __init__(self, minimum: int) -> None:
        self.minimum = minimum
        self.tasks: dict[str, TaskInfo] = {}
        #: [status] UID -> task.
        self.by_status: tuple[dict[str, TaskInfo], ...] = tuple({} for _ in _TEXTS)
        #: The number of tasks in a status of `READY`: those that hold room or succeeded (`ReadyTaskNum`).
        self.ready = 0
        #: The number of pending best-effort tasks.
        self.best_effort = 0

    def _enter(self, task: TaskInfo) -> None:
        status = task.status
        self.by_status[status][task.uid] = task
        if _IS_READY[status]:
            self.ready += 1
        elif task.best_effort and status == PENDING_TASKS:
            self.best_effort += 1

    def _leave(self, task: TaskInfo) -> None:
        status = task.status
        del self.by_status[status][task.uid]
        if _IS_READY[status]:
            self.ready -= 1
        elif task.best_effort and status == PENDING_TASKS:
            self.best_effort -= 1

    def count(self, status: TaskStatus) -> int:
        return len(self.by_status[status])

    @property
    def waiting(self) -> int:
        return len(self.by_status[TaskStatus.PIPELINED])

    @property
    def is_ready(self) -> bool:
        """Whether enough tasks have room or need none."""
        return self.ready + self.best_effort >= self.minimum

    @property
    def is_pipelined(self) -> bool:
        """Whether enough tasks have room, need none, or have a claim on room."""
        return self.waiting + self.ready + self.best_effort >= self.minimum

    @property
    def is_starving(self) -> bool:
        return self.waiting + self.ready < self.minimum


class SubJobInfo(_Counts):
    """A sub-group, or all members of a job without a sub-group. Only jobs with policies for sub-groups have them."""

    __slots__ = ("index", "policy", "priority", "uid")

    def __init__(self, uid: str, policy: SubGroup | None, values: tuple[str, ...]) -> None:
        super().__init__(1 if policy is None else policy.size)
        self.uid = uid
        #: The name of its policy; empty for the members without a sub-group.
        self.policy = policy.name if policy is not None else ""
        self.index = int(values[0]) if values and values[0].lstrip("+-").isdecimal() else 0
        self.priority = 0

    def add(self, task: TaskInfo) -> None:
        self.tasks[task.uid] = task
        self._enter(task)
        self.priority = max(self.priority, task.priority)


class JobInfo(_Counts):
    """A group in a session. Invariant: `allocated` is the sum of its tasks' requests in a status of `HOLDING`."""

    __slots__ = (
        "_failed_roles",
        "_lacking_role",
        "_policies",
        "_roles",
        "allocated",
        "begun_minimum",
        "conditions",
        "created",
        "eviction_refusals",
        "fit_errors",
        "group",
        "job_fit_error",
        "name",
        "namespace",
        "phase",
        "pipelined_sub_jobs",
        "priority",
        "queue",
        "quota_refusal",
        "ready_sub_jobs",
        "role_minimums",
        "sub_jobs",
        "sub_minimums",
        "uid",
    )

    def __init__(self, group: PodGroupInfo, *, priority: int = 0, roles: Collection[str] = ()) -> None:
        """Create a job without tasks; `roles` are those of its pods."""
        minimum, self.role_minimums = effective_minimum(group, roles)
        super().__init__(minimum)
        #: The minimum with only those of its roles that have run.
        self.begun_minimum = effective_minimum(group)[0]
        self.group = group
        #: Its group's `namespace/name`.
        self.uid = group.name
        self.namespace, self.name, _ = group.key
        self.queue = group.queue
        self.created = group.created
        self.priority = priority
        self.phase = group.status.phase
        self.conditions: list[PodGroupCondition] = list(group.status.conditions or ())
        self.allocated: Total = {}
        #: The reason why the job as a whole waits.
        self.job_fit_error = ""
        #: The reason why a quota of its namespace kept it from admission.
        self.quota_refusal = ""
        #: UID -> the reason why no node is feasible.
        self.fit_errors: dict[str, FitErrors] = {}
        #: UID -> the plugins that rejected nodes when pods were to be evicted for the task.
        self.eviction_refusals: dict[str, frozenset[str]] = {}
        #: Sub-group -> roles of the tasks in `fit_errors`; the key is None without sub-groups.
        self._failed_roles: dict[SubJobInfo | None, set[str]] = {}
        #: [status] role -> number of tasks, with pending best-effort ones at the end; empty if roles do not count.
        self._roles: tuple[dict[str, int], ...] = ()
        if group.role_minimums:
            self._roles = tuple({} for _ in range(len(TaskStatus) + 1))
        #: A role that had less than its minimum when it was last compared.
        self._lacking_role = ""
        self.sub_jobs: dict[str, SubJobInfo] = {}
        #: Policy -> the number of its sub-groups that are ready, and of those that are ready with claims.
        self.ready_sub_jobs: Counter[str] = Counter()
        self.pipelined_sub_jobs: Counter[str] = Counter()
        #: Policy -> required number of ready sub-groups.
        #: Policies with their places, by a label that members must have.
        self._policies: dict[tuple[str, str] | None, list[tuple[int, SubGroup]]] = {}
        for place, policy in enumerate(group.sub_groups):
            self._policies.setdefault(policy.label, []).append((place, policy))
        self.sub_minimums = {policy.name: policy.minimum for policy in group.sub_groups}

    # ---- tasks

    def add(self, task: TaskInfo) -> None:
        self.tasks[task.uid] = task
        if self.group.sub_groups:
            sub_job = task.sub_job = self._sub_job_of(task)
            self._count_sub_job(sub_job, -1)
            sub_job.add(task)
            self._count_sub_job(sub_job, 1)
        self._enter(task)
        self._count_role(task, 1)
        if _IS_HOLDING[task.status]:
            add_to(self.allocated, task.request)

    def set_status(self, task: TaskInfo, status: TaskStatus) -> None:
        """Change a task's status, and all counts that depend on it."""
        held, holds = _IS_HOLDING[task.status], _IS_HOLDING[status]
        if held and not holds:
            take_from(self.allocated, task.request)
        elif holds and not held:
            add_to(self.allocated, task.request)
        self._leave(task)
        sub_job = task.sub_job
        if sub_job is not None:
            self._count_sub_job(sub_job, -1)
            sub_job._leave(task)
        self._count_role(task, -1)
        task.status = status
        self._enter(task)
        if sub_job is not None:
            sub_job._enter(task)
            self._count_sub_job(sub_job, 1)
        self._count_role(task, 1)

    def _sub_job_of(self, task: TaskInfo) -> SubJobInfo:
        labels, by_label = task.pod.labels, self._policies
        candidates = [found for each in (None, *labels.items()) for found in by_label.get(each, ())]
        for _, policy in sorted(candidates, key=itemgetter(0)):
            values = policy.values_of(labels)
            if values:
                return self._sub_job(f"{self.uid}/{policy.name}-{'-'.join(values)}", policy, values)
        return self._sub_job(self.uid, None, ())

    def _sub_job(self, uid: str, policy: SubGroup | None, values: tuple[str, ...]) -> SubJobInfo:
        found = self.sub_jobs.get(uid)
        if found is None:
            found = self.sub_jobs[uid] = SubJobInfo(uid, policy, values)
            self._count_sub_job(found, 1)
        return found

    def _count_sub_job(self, sub_job: SubJobInfo, sign: int) -> None:
        self.ready_sub_jobs[sub_job.policy] += sign * sub_job.is_ready
        self.pipelined_sub_jobs[sub_job.policy] += sign * sub_job.is_pipelined

    # ---- roles

    def _count_role(self, task: TaskInfo, sign: int) -> None:
        if self._roles:
            counts = self._roles[len(TaskStatus) if task.best_effort and task.status == PENDING_TASKS else task.status]
            counts[task.role] = counts.get(task.role, 0) + sign

    def in_role(self, role: str, statuses: Iterable[int], *, best_effort: bool = False) -> int:
        """Return the number of a role's tasks in these statuses; with `best_effort` also pending best-effort ones."""
        counts = self._roles
        number = sum(counts[status].get(role, 0) for status in statuses)
        return number + counts[len(TaskStatus)].get(role, 0) if best_effort else number

    def roles_have(self, statuses: tuple[int, ...]) -> bool:
        """Return whether each role has its minimum in these statuses, including pending best-effort tasks."""
        minimums = self.role_minimums
        # This is asked after each placement, and usually the same role still lacks tasks.
        first = (self._lacking_role,) if self._lacking_role in minimums else ()
        for role in chain(first, minimums):
            if self.in_role(role, statuses, best_effort=True) < minimums[role]:
                self._lacking_role = role
                return False
        return True

    # ---- what it waits for

    @property
    def is_pending(self) -> bool:
        return self.phase in (PENDING, "")

    @property
    def is_inqueue(self) -> bool:
        return self.phase == INQUEUE

    @property
    def earlier_stage_waits(self) -> bool:
        """Whether any pending task belongs to an earlier stage than the tasks that are reserved for theirs."""
        return not all(task.pod.stands_by for task in self.by_status[PENDING_TASKS].values())

    @property
    def is_leaving(self) -> bool:
        """Whether it has its minimum if terminating pods with a node count: then it does not wait for nodes."""
        leaving = sum(bool(task.node_name) for task in self.by_status[TaskStatus.RELEASING].values())
        return self.ready + self.best_effort + leaving >= self.minimum

    @property
    def min_resources(self) -> Vector | None:
        return self.group.min_resources

    def gated_request(self) -> Total:
        """Return the requests of tasks with other gates than only the queue's (`GetSchGatedPodResources`)."""
        total: Total = {}
        for task in self.tasks.values():
            if task.has_other_gate:
                add_to(total, task.request)
        return total

    def set_condition(self, condition: PodGroupCondition) -> None:
        """Set a condition; it replaces the one of its type."""
        for index, each in enumerate(self.conditions):
            if each.type == condition.type:
                self.conditions[index] = condition
                return
        self.conditions.append(condition)

    # ---- tasks that found no node

    def fail(self, task: TaskInfo, why: FitErrors) -> None:
        self.fit_errors[task.uid] = why
        self._failed_roles.setdefault(task.sub_job, set()).add(task.role)

    def forget_errors(self, tasks: Iterable[TaskInfo]) -> None:
        """Remove the errors of tasks for which a node was found later."""
        for task in tasks:
            self.fit_errors.pop(task.uid, None)
        self._failed_roles.clear()
        for uid in self.fit_errors:
            failed = self.tasks[uid]
            self._failed_roles.setdefault(failed.sub_job, set()).add(failed.role)

    def failed_roles(self, sub_job: SubJobInfo | None) -> Collection[str]:
        """Return the roles of the tasks for which no node is feasible."""
        return self._failed_roles.get(sub_job, ())

    def reset_fit_errors(self, sub_job: SubJobInfo | None = None) -> None:
        """Remove the errors of a sub-group; None removes all."""
        if sub_job is None:
            self.job_fit_error = ""
            self.fit_errors.clear()
            self._failed_roles.clear()
            return
        self._failed_roles.pop(sub_job, None)
        for uid in sub_job.tasks.keys() & self.fit_errors.keys():
            del self.fit_errors[uid]

    def take_fit_errors(self, others: Mapping[str, FitErrors] = NO_ERRORS) -> Mapping[str, FitErrors]:
        """Replace all errors by `others`, and return the former ones."""
        found = dict(self.fit_errors)
        self.reset_fit_errors()
        for uid, error in others.items():
            self.fail(self.tasks[uid], error)
        return found

    def pipelined_tasks(self) -> Collection[TaskInfo]:
        """Return the tasks with a claim on room that is about to be free."""
        return self.by_status[TaskStatus.PIPELINED].values()

    def in_statuses(self, statuses: Iterable[int]) -> int:
        return sum([len(self.by_status[status]) for status in statuses])

    @property
    def counts(self) -> dict[str, int]:
        """Status -> number of tasks, for statuses with tasks."""
        return {text: len(tasks) for text, tasks in zip(_TEXTS, self.by_status, strict=True) if tasks}
