"""Dependencies between the tasks of a Job. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from agent_scheduler.objects.batch import ATTAINABLE, TASK_SPEC, PodGroup
from agent_scheduler.objects.job import ANY, DEPENDS_ON_GANG, RESERVE, Job, TaskSpec
from agent_scheduler.objects.job_pod import JobPod

from .pods import partition_of, places_of
from .states import tasks_of

#: The reason in a Job's state while a task waits.
REASON: Final = "TasksWaiting"


#: The phase of a failed pod, which it keeps until a policy or a command recreates it.
_FAILED: Final = "Failed"
#: Phases of pods that run or ran.
_RAN: Final = frozenset(("Running", "Succeeded", _FAILED))


class WaitingTask(NamedTuple):
    """A task whose pods wait for other tasks; `on` has the name, the ready pods and the needed pods of each.

    `in_vain` is whether failures of their pods keep its turn from coming unless some are recreated.
    """

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
    """Return whether pods of waiting tasks are created with the first ones, so that room is reserved for them."""
    return (job.metadata.annotations or {}).get(DEPENDS_ON_GANG) == RESERVE


def waiting_tasks(job: Job, pods: Mapping[str, JobPod]) -> dict[str, WaitingTask]:
    """Return the waiting tasks by name; `pods` are all of the Job's.

    Unknown names in dependencies are ignored, because such a pod would never be created.
    """
    if all(task.depends_on is None for task in tasks_of(job)):
        return {}
    ready: dict[str, int] = {}
    for pod in pods.values():
        if is_ready(pod):
            name = pod.annotation(TASK_SPEC)
            ready[name] = ready.get(name, 0) + 1
    by_name, there = {task.name: task for task in tasks_of(job)}, _by_task(job, pods)
    found = {}
    for task in by_name.values():
        waiting, own = _waiting(task, by_name, ready), there[task.name]
        if waiting is not None and (len(own) < task.replicas or any(pod.stands_by for _, pod in own)):
            found[task.name] = waiting
    lost = _in_vain(found, {name: _may_be_ready(task, there[name]) for name, task in by_name.items()})
    return {name: waiting._replace(in_vain=name in lost) for name, waiting in found.items()}


def pods_in_vain(job: Job, pods: Mapping[str, JobPod], waiting: Mapping[str, WaitingTask]) -> int:
    """Return the number of missing pods that are never created, because their tasks wait in vain."""
    if not waiting:
        return 0
    there = _by_task(job, pods)
    return sum(
        max(task.replicas, 0) - len(there[task.name])
        for task in tasks_of(job)
        if task.name in waiting and waiting[task.name].in_vain
    )


def attainable_minimum(job: Job, group: PodGroup | None, pods: Mapping[str, JobPod]) -> str:
    """Return the text for the group's annotation `ATTAINABLE` on members that it can no longer have.

    It is empty if the group can have all members that it requests. Unless it was set before, it is also empty if no pod
    has failed, or if all pods run or ran.
    """
    is_told = group is not None and ATTAINABLE in (group.metadata.annotations or {})
    is_whole = all(task.minimum <= task.replicas for task in tasks_of(job))
    if not is_told and is_whole and all(pod.status.phase != _FAILED for pod in pods.values()):
        return ""
    there = _by_task(job, pods)
    if not is_told and all(
        len(there[task.name]) >= task.replicas and all(pod.status.phase in _RAN for _, pod in there[task.name])
        for task in tasks_of(job)
    ):
        return ""
    possible = {task.name: _may_be_ready(task, there[task.name]) for task in tasks_of(job)}
    roles, lost = [], 0
    for task in tasks_of(job):
        parts, least = _whole_parts(task, there[task.name]), min(task.minimum, possible[task.name])
        lost += task.minimum - least
        if parts is not None or least < task.minimum:
            roles.append(f"{task.name}={least}" + ("" if parts is None else f"/{parts}"))
    least = job.spec.min_available
    if least >= sum(task.minimum for task in tasks_of(job)):
        least -= lost
    least = min(least, sum(possible.values()))
    return ",".join((str(least), *roles)) if roles or least < job.spec.min_available else ""


def _by_task(job: Job, pods: Mapping[str, JobPod]) -> dict[str, list[tuple[int, JobPod]]]:
    """Return the desired ones of the existing pods, with their indices, by task."""
    found: dict[str, list[tuple[int, JobPod]]] = {task.name: [] for task in tasks_of(job)}
    for name, (task, index) in places_of(job, pods).items():
        found[task.name].append((index, pods[name]))
    return found


def _whole_parts(task: TaskSpec, there: Sequence[tuple[int, JobPod]]) -> int | None:
    """Return how many partitions of the task may be ready; None if they are as many as it needs."""
    policy = task.partition_policy
    if policy is None or not policy.min_partitions:
        return None
    broken = {partition_of(task, index) for index, pod in there if not _may_run(pod)}
    whole = policy.total_partitions - len(broken)
    return whole if whole < policy.min_partitions else None


def _may_be_ready(task: TaskSpec, there: Sequence[tuple[int, JobPod]]) -> int:
    """Return how many pods of the task are ready or may become so without being recreated; missing ones may."""
    return max(task.replicas, 0) - sum(not _may_run(pod) for _, pod in there)


def _may_run(pod: JobPod) -> bool:
    """Return whether the pod runs, has succeeded, or may run; a deleted pod is recreated."""
    return pod.status.phase != _FAILED or pod.metadata.deletion_timestamp is not None


def _in_vain(found: Mapping[str, WaitingTask], possible: Mapping[str, int]) -> set[str]:
    """Return the tasks whose turn never comes, because a dependency cannot become ready or waits in vain itself."""
    #: Task -> the tasks that wait for it; and task -> the dependencies that may still become ready.
    behind: dict[str, list[str]] = {}
    hopes = {
        name: {each for each, _, least in waiting.on if possible[each] >= least} for name, waiting in found.items()
    }
    for name, hoped in hopes.items():
        for each in hoped:
            behind.setdefault(each, []).append(name)

    def is_lost(name: str) -> bool:
        waiting, hoped = found[name], hopes[name]
        return not hoped if waiting.any_of else len(hoped) < len(waiting.on)

    rest = [name for name in found if is_lost(name)]
    lost = set(rest)
    while rest:
        # A task that is lost has fewer ready pods than others need, as these still wait for it.
        done = rest.pop()
        for name in behind.get(done, ()):
            hopes[name].discard(done)
            if name not in lost and is_lost(name):
                lost.add(name)
                rest.append(name)
    return lost


def _waiting(task: TaskSpec, by_name: Mapping[str, TaskSpec], ready: Mapping[str, int]) -> WaitingTask | None:
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
    return WaitingTask(task.name, tuple(unmet), any_of)


def waiting_roles(job: Job, group: PodGroup | None, pods: Mapping[str, JobPod]) -> list[str]:
    """Return the tasks that the group lists as waiting; others may run without them.

    These have had fewer pods running than their minimum since the group was created, or lack pods because they wait.
    Pods from before a restart of the Job, which may still be ending, belonged to another group.
    """
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
    """Return whether the pod has succeeded, or all its containers are ready."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    if pod.status.phase == "Running":
        reports = pod.status.container_statuses or ()
        return bool(reports) and all(each.ready for each in reports)
    return pod.status.phase == "Succeeded"
