"""Which tasks of a Job wait for others, and what they wait for. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent_scheduler.objects.batch import ATTAINABLE, TASK_SPEC, PodGroup
from agent_scheduler.objects.job import ANY, DEPENDS_ON_GANG, RESERVE, Job, TaskSpec
from agent_scheduler.objects.job_pod import JobPod

from .pods import partition_of, pod_name, wanted_pods
from .states import tasks_of

#: The reason in a Job's state while a task waits.
REASON: Final = "TasksWaiting"


#: The phase in which a pod stays that has failed, until a policy or a command has it made again.
_FAILED: Final = "Failed"
#: Phases of pods that run, or did.
_RAN: Final = frozenset(("Running", "Succeeded", _FAILED))


class Waiting(NamedTuple):
    """A task whose pods are not made yet, or stand by; of each that it waits for, how many are ready and are needed.

    `in_vain`: so many of their pods have failed that its turn does not come unless some are made again."""

    task: str
    on: tuple[tuple[str, int, int], ...]
    any_of: bool = False
    in_vain: bool = False

    def __str__(self) -> str:
        sign = " or " if self.any_of else ", "
        return f"{self.task} waits {'in vain ' if self.in_vain else ''}for " + sign.join(
            f"{name} ({ready} of {least} ready)" for name, ready, least in self.on
        )


def reserves(job: Job) -> bool:
    """Whether pods of tasks that wait are made with the first ones and stand by, so that room is kept for them."""
    return (job.metadata.annotations or {}).get(DEPENDS_ON_GANG) == RESERVE


def waiting_tasks(job: Job, pods: Mapping[str, JobPod]) -> dict[str, Waiting]:
    """Those tasks, by name; `pods` are all of the Job's. A name of no task is waited for by nobody: such a pod would
    never be made."""
    if all(task.depends_on is None for task in tasks_of(job)):
        return {}
    ready: dict[str, int] = {}
    for pod in pods.values():
        if is_ready(pod):
            name = pod.annotation(TASK_SPEC)
            ready[name] = ready.get(name, 0) + 1
    by_name = {task.name: task for task in tasks_of(job)}
    found = {}
    for task in by_name.values():
        waiting = _waiting(task, by_name, ready)
        there = [pods.get(pod_name(job, task, index)) for index in range(task.replicas)]
        if waiting is not None and any(each is None or each.stands_by for each in there):
            found[task.name] = waiting
    lost = _in_vain(found, {name: _may_be_ready(job, task, pods) for name, task in by_name.items()})
    return {name: waiting._replace(in_vain=name in lost) for name, waiting in found.items()}


def pods_in_vain(job: Job, pods: Mapping[str, JobPod], waiting: Mapping[str, Waiting]) -> int:
    """How many pods are not there and never come, as their tasks wait in vain."""
    return sum(
        pod_name(job, task, index) not in pods
        for task in tasks_of(job)
        if task.name in waiting and waiting[task.name].in_vain
        for index in range(task.replicas)
    )


def attainable_minimum(job: Job, group: PodGroup | None, pods: Mapping[str, JobPod]) -> str:
    """What the group of the Job says of members that it cannot have any more (`ATTAINABLE`). Empty where it can have
    all that it asks for; and where no pod waits for others, as long as none has."""
    is_told = group is not None and ATTAINABLE in (group.metadata.annotations or {})
    is_whole = all(task.minimum <= task.replicas for task in tasks_of(job))
    if not is_told and is_whole and all(pod.status.phase != _FAILED for pod in pods.values()):
        return ""
    there = [pods.get(name) for name in wanted_pods(job)]
    if not is_told and all(pod is not None and pod.status.phase in _RAN for pod in there):
        return ""
    possible = {task.name: _may_be_ready(job, task, pods) for task in tasks_of(job)}
    roles, lost = [], 0
    for task in tasks_of(job):
        parts, least = _whole_parts(job, task, pods), min(task.minimum, possible[task.name])
        lost += task.minimum - least
        if parts is not None or least < task.minimum:
            roles.append(f"{task.name}={least}" + ("" if parts is None else f"/{parts}"))
    least = job.spec.min_available
    if least >= sum(task.minimum for task in tasks_of(job)):
        least -= lost
    least = min(least, sum(possible.values()))
    return ",".join((str(least), *roles)) if roles or least < job.spec.min_available else ""


def _whole_parts(job: Job, task: TaskSpec, pods: Mapping[str, JobPod]) -> int | None:
    """How many of its partitions may be ready; None where these are as many as it needs."""
    policy = task.partition_policy
    if policy is None or not policy.min_partitions:
        return None
    broken = {
        partition_of(task, index)
        for index in range(task.replicas)
        if not _may_run(pods.get(pod_name(job, task, index)))
    }
    whole = policy.total_partitions - len(broken)
    return whole if whole < policy.min_partitions else None


def _may_be_ready(job: Job, task: TaskSpec, pods: Mapping[str, JobPod]) -> int:
    """How many pods of the task are ready, or may be without being made again."""
    return sum(_may_run(pods.get(pod_name(job, task, index))) for index in range(task.replicas))


def _may_run(pod: JobPod | None) -> bool:
    """Whether it runs, has ended well, or may come to; one that is not there, or not for long, is made again."""
    return pod is None or pod.status.phase != _FAILED or pod.metadata.deletion_timestamp is not None


def _in_vain(found: Mapping[str, Waiting], possible: Mapping[str, int]) -> set[str]:
    """Those whose turn does not come: what they wait for cannot get ready, or waits in vain itself."""
    lost: set[str] = set()
    while True:
        more = {
            name
            for name, waiting in found.items()
            if name not in lost
            and (all if waiting.any_of else any)(
                (ready if each in lost else possible[each]) < least for each, ready, least in waiting.on
            )
        }
        if not more:
            return lost
        lost |= more


def _waiting(task: TaskSpec, by_name: Mapping[str, TaskSpec], ready: Mapping[str, int]) -> Waiting | None:
    depends = task.depends_on
    names = [name for name in (depends.name or () if depends is not None else ()) if name in by_name]
    unmet = [
        (name, ready.get(name, 0), least)
        for name in dict.fromkeys(names)
        if (least := by_name[name].minimum) > ready.get(name, 0)
    ]
    any_of = depends is not None and depends.iteration == ANY and len(names) > 1
    if not unmet or (any_of and len(unmet) < len(set(names))):
        return None
    return Waiting(task.name, tuple(unmet), any_of)


def waiting_roles(job: Job, group: PodGroup | None, pods: Mapping[str, JobPod]) -> list[str]:
    """What its group says of tasks that wait for others: those that have not had their minimum of pods running since
    the group was made, and those of which pods are not there as they wait. Others may run without these. Pods of before
    a restart of the Job, which are still there while they end, ran for another group."""
    if all(task.depends_on is None for task in tasks_of(job)):
        return []
    waiting = waiting_tasks(job, pods)
    ran = Counter(
        pod.annotation(TASK_SPEC)
        for pod in pods.values()
        if pod.status.phase in _RAN and pod.version >= job.status.version
    )
    names = {task.name for task in tasks_of(job)}
    said = None if group is None else group.waiting_roles
    return [
        task.name
        for task in tasks_of(job)
        if task.depends_on is not None
        and not names.isdisjoint(task.depends_on.name or ())
        and ran[task.name] < task.minimum
        and (said is None or task.name in said or task.name in waiting)
    ]


def is_ready(pod: JobPod) -> bool:
    """Whether it has ended well, or all its containers are ready."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    if pod.status.phase == "Running":
        reports = pod.status.container_statuses or ()
        return bool(reports) and all(each.ready for each in reports)
    return pod.status.phase == "Succeeded"
