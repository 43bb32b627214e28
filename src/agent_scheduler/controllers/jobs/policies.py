"""What has happened to a Job, and what its policies say to that, by Volcano's rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from agent_scheduler.objects.job import Job, LifecyclePolicy, TaskSpec
from apimachinery.durations import parse_duration

from .states import ABORT_JOB, COMPLETE_JOB, RESTART_JOB, SYNC_JOB, TERMINATE_JOB, tasks_of

ANY: Final = "*"
POD_FAILED: Final = "PodFailed"
POD_EVICTED: Final = "PodEvicted"
POD_PENDING: Final = "PodPending"
TASK_COMPLETED: Final = "TaskCompleted"
TASK_FAILED: Final = "TaskFailed"
UNKNOWN: Final = "Unknown"

#: After these a Job has another phase or version, by which it is seen that what they answer is answered.
OF_THE_WHOLE: Final = frozenset({ABORT_JOB, RESTART_JOB, TERMINATE_JOB, COMPLETE_JOB})


class Happened(NamedTuple):
    """An event of a Job, of a task or a pod of it; or a Command's action.

    `version` is that of the Job when the pod was made; None: of now. `waited`: its policy's timeout is over.
    """

    event: str = ""
    task: str = ""
    pod: str = ""
    uid: str = ""
    exit_code: int = 0
    version: int | None = None
    action: str = ""
    waited: bool = False


class Answer(NamedTuple):
    """What is to be done, after so many seconds."""

    action: str
    after: float = 0.0


def answer(job: Job, happened: Happened) -> Answer:
    """By the first policy that says something: those of the task before those of the Job."""
    if happened.action:
        return Answer(happened.action)
    version = job.status.version if happened.version is None else happened.version
    if not happened.event or version < job.status.version:
        # What is left of an earlier try says nothing of this one.
        return Answer(SYNC_JOB)
    for policy in _policies(job, happened.task):
        if _meets(policy, happened):
            return Answer(policy.action, seconds_of(policy))
    return Answer(SYNC_JOB)


def seconds_of(policy: LifecyclePolicy) -> float:
    """Its timeout; one that cannot be read is none."""
    try:
        return parse_duration(policy.timeout or "0")
    except ValueError:
        return 0.0


def pending_limit(job: Job, task: TaskSpec) -> Answer | None:
    """What is done to a pod of the task that is pending for so long, if anything is."""
    found = answer(job, Happened(POD_PENDING, task.name))
    return found if found.action != SYNC_JOB else None


def _policies(job: Job, task: str) -> Iterator[LifecyclePolicy]:
    own: Iterable[LifecyclePolicy] = next(
        (each.policies or () for each in tasks_of(job) if each.name == task), ()
    )
    yield from own
    yield from job.spec.policies or ()


def _meets(policy: LifecyclePolicy, happened: Happened) -> bool:
    events = {*(policy.events or ()), policy.event} - {""}
    if happened.event in events or ANY in events:
        # That a pod is pending is nothing by itself.
        return happened.event != POD_PENDING or policy.timeout is not None
    return policy.exit_code is not None and policy.exit_code == happened.exit_code
