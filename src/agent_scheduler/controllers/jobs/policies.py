"""The events of a Job, and the actions that its policies specify, by Volcano's rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from agent_scheduler.objects.job import Job, LifecyclePolicy
from apimachinery.durations import parse_duration

from .states import ABORT_JOB, COMPLETE_JOB, RESTART_JOB, SYNC_JOB, TERMINATE_JOB, tasks_of

ANY: Final = "*"
POD_FAILED: Final = "PodFailed"
POD_EVICTED: Final = "PodEvicted"
POD_PENDING: Final = "PodPending"
TASK_COMPLETED: Final = "TaskCompleted"
TASK_FAILED: Final = "TaskFailed"
UNKNOWN: Final = "Unknown"

#: Actions that change the Job's phase or version, which reveals that the event was handled.
OF_THE_WHOLE: Final = frozenset({ABORT_JOB, RESTART_JOB, TERMINATE_JOB, COMPLETE_JOB})


class JobEvent(NamedTuple):
    """An event of a Job, of its task or of its pod; or a Command's action.

    `version` is that of the Job when the pod was created; None means the current one. `waited` is whether its policy's
    timeout has passed.
    """

    event: str = ""
    task: str = ""
    pod: str = ""
    uid: str = ""
    exit_code: int = 0
    version: int | None = None
    action: str = ""
    waited: bool = False


class PolicyAction(NamedTuple):
    """The action to execute, after a delay in seconds."""

    action: str
    after: float = 0.0


def answer(job: Job, happened: JobEvent) -> PolicyAction:
    """Return the action of the first policy that applies; those of the task precede those of the Job."""
    if happened.action:
        return PolicyAction(happened.action)
    version = job.status.version if happened.version is None else happened.version
    if not happened.event or version < job.status.version:
        # Events of an earlier try do not concern this one.
        return PolicyAction(SYNC_JOB)
    for policy in _policies(job, happened.task):
        if _meets(policy, happened):
            return PolicyAction(policy.action, seconds_of(policy))
    return PolicyAction(SYNC_JOB)


def seconds_of(policy: LifecyclePolicy) -> float:
    """Return the policy's timeout in seconds; 0 if it cannot be parsed."""
    try:
        return parse_duration(policy.timeout or "0")
    except ValueError:
        return 0.0


def pending_limits(job: Job) -> dict[str, PolicyAction]:
    """Return the action on a pod that is pending for its limit, by task; tasks without one are omitted."""
    found: dict[str, LifecyclePolicy | None] = {}
    of_all = _pending(job.spec.policies)
    for task in tasks_of(job):
        if task.name not in found:
            found[task.name] = _pending(task.policies) or of_all
    actions = {task: PolicyAction(each.action, seconds_of(each)) for task, each in found.items() if each is not None}
    return {task: action for task, action in actions.items() if action.action != SYNC_JOB}


def _pending(policies: Iterable[LifecyclePolicy] | None) -> LifecyclePolicy | None:
    return next((each for each in policies or () if _meets(each, JobEvent(POD_PENDING))), None)


def _policies(job: Job, task: str) -> Iterator[LifecyclePolicy]:
    own: Iterable[LifecyclePolicy] = next((each.policies or () for each in tasks_of(job) if each.name == task), ())
    yield from own
    yield from job.spec.policies or ()


def _meets(policy: LifecyclePolicy, happened: JobEvent) -> bool:
    events = {*(policy.events or ()), policy.event} - {""}
    if happened.event in events or ANY in events:
        # Pending is no event without a timeout.
        return happened.event != POD_PENDING or policy.timeout is not None
    return policy.exit_code is not None and policy.exit_code == happened.exit_code
