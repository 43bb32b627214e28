"""The status of a Job: the counts of its pods, its phase, and the time of its last transition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from agent_scheduler.objects.batch import TASK_SPEC
from agent_scheduler.objects.job import Job, JobCondition, JobState, JobStatus, TaskState
from agent_scheduler.objects.job_pod import JobPod
from kube_client.merging import replacement

from .depends import REASON, WaitingTask
from .volumes import controlled

#: The fields that count pods, by the pods' phase.
_COUNTED: Final = {"Pending": "pending", "Running": "running", "Succeeded": "succeeded", "Failed": "failed"}
_UNKNOWN: Final = "Unknown"
_PLUGIN: Final = "plugin-"
#: Plugins without objects, which Volcano does not list.
_UNTOLD: Final = frozenset({"hcclrank"})


def counted(status: JobStatus, pods: Iterable[JobPod]) -> JobStatus:
    """Return `status` with the counts of these pods; pods that are being deleted count in no phase."""
    numbers = dict.fromkeys((*_COUNTED.values(), "unknown", "terminating"), 0)
    tasks: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            numbers["terminating"] += 1
            continue
        # A created pod has no phase yet in the API server's response.
        phase = pod.status.phase or "Pending"
        numbers[_COUNTED.get(phase, "unknown")] += 1
        of_task = tasks.setdefault(pod.annotation(TASK_SPEC), {})
        shown = phase if phase in _COUNTED else _UNKNOWN
        of_task[shown] = of_task.get(shown, 0) + 1
    counts = {task: TaskState(phases) for task, phases in tasks.items()}
    return msgspec.structs.replace(status, task_status_count=counts or None, **numbers)


def found_again(status: JobStatus, pods: Iterable[JobPod]) -> JobStatus:
    """Return `status` with the version and retries of the Job's pods if higher, since it may have been lost."""
    there = list(pods)
    return msgspec.structs.replace(
        status,
        version=max((status.version, *(pod.version for pod in there))),
        retry_count=max((status.retry_count, *(pod.retry_count for pod in there))),
    )


def moved(status: JobStatus, phase: str, now: str) -> JobStatus:
    """Return `status` in `phase`, with `now` as the transition time if its last condition has another phase.

    There is one condition per phase, the newest at the end.
    """
    known = status.conditions or ()
    if status.state.phase == phase and known and known[-1].status == phase:
        since = status.state.last_transition_time or known[-1].last_transition_time or now
        state = msgspec.structs.replace(status.state, last_transition_time=since)
        return msgspec.structs.replace(status, state=state)
    conditions = [each for each in known if each.status != phase]
    return msgspec.structs.replace(
        status, state=JobState(phase, last_transition_time=now), conditions=(*conditions, JobCondition(phase, now))
    )


def explained(status: JobStatus, waiting: Mapping[str, WaitingTask]) -> JobStatus:
    """Return `status` with the tasks that wait and their dependencies."""
    text = "; ".join(str(each) for each in waiting.values())
    state = msgspec.structs.replace(status.state, reason=REASON if text else "", message=text)
    return msgspec.structs.replace(status, state=state)


def controlled_by(job: Job) -> dict[str, str]:
    """Return what was created for a Job: its plugins, by `plugin-` and their names, and its claims."""
    return {**{f"{_PLUGIN}{name}": name for name in job.spec.plugins or () if name not in _UNTOLD}, **controlled(job)}


def without_plugins(job: Job, status: JobStatus) -> JobStatus:
    """Return `status` of a Job whose plugins' objects are gone."""
    return _naming(status, controlled(job))


def without_others(job: Job, status: JobStatus) -> JobStatus:
    """Return `status` without controlled resources that do not belong to the Job."""
    return _naming(status, controlled_by(job))


def _naming(status: JobStatus, own: Mapping[str, str]) -> JobStatus:
    left = {key: own[key] for key in status.controlled_resources or () if key in own}
    return msgspec.structs.replace(status, controlled_resources=left or None)


def status_patch(before: JobStatus, after: JobStatus) -> dict[str, Any] | None:
    """Return the merge patch that changes one status to the other; None if they are equal."""
    if before == after:
        return None
    return replacement(msgspec.to_builtins(before), msgspec.to_builtins(after))
