"""Reads Jobs and their pods from the API's objects, for judges, independent of the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from . import gang_reading as read
from .api import Json

#: The gate of pods of reserved stages, until the pods that they depend on have begun.
STANDS_BY = "agent-scheduler.io/depends-on"
_INDEX = "volcano.sh/task-index"
#: Annotation of a pod that the controller is about to delete.
_GOES = "volcano.sh/controller-out-of-sync"
_VERSION = "volcano.sh/job-version"
FINISHED = frozenset(("Completed", "Failed", "Terminated"))
#: Phases in which no pod of a Job runs.
CLOSED = FINISHED | {"Aborted", "Aborting", "Terminating", "Completing"}
#: Phases that lead to others: no Job rests in one.
UNDER_WAY = frozenset(("Aborting", "Terminating", "Completing", "Restarting"))


def owner(obj: Json) -> str:
    """Return the UID of the Job that controls the object; empty for none."""
    for each in obj["metadata"].get("ownerReferences") or ():
        is_job = each["kind"] == "Job" and each["apiVersion"].startswith("batch.volcano.sh/")
        if is_job and each.get("controller"):
            return str(each["uid"])
    return ""


def task_of(pod: Json) -> str:
    return read.annotation(pod, read.ROLE)


def index_of(pod: Json) -> str:
    return read.annotation(pod, _INDEX)


def version_of(pod: Json) -> int:
    """Return the version of the pod's Job at the pod's creation."""
    return int(read.annotation(pod, _VERSION) or 0)


def version(job: Json) -> int:
    return int((job.get("status") or {}).get("version", 0))


def stands_by(pod: Json) -> bool:
    return any(each["name"] == STANDS_BY for each in pod["spec"].get("schedulingGates") or ())


def minimum_of(task: Json) -> int:
    """Return how many pods of the task must be ready for the tasks that depend on it."""
    least: int = task.get("minAvailable", task.get("replicas", 0))
    return least


def is_ready(pod: Json) -> bool:
    if read.is_leaving(pod):
        return False
    if read.phase(pod) == "Succeeded":
        return True
    reports = (pod.get("status") or {}).get("containerStatuses") or ()
    return read.phase(pod) == "Running" and bool(reports) and all(each["ready"] for each in reports)


def is_kept(pod: Json) -> bool:
    """Return whether the pod has succeeded, and no action removes it."""
    is_marked = read.annotation(pod, _GOES) == "true"
    return read.phase(pod) == "Succeeded" and not is_marked and not read.is_leaving(pod)


def may_begin(job: Json, task: Json, pods: Iterable[Json]) -> bool:
    """Return whether enough pods are ready of the tasks that this one depends on, or of one of them if any suffices."""
    depends = task.get("dependsOn") or {}
    by_name = {each["name"]: each for each in job["spec"]["tasks"]}
    names = [name for name in depends.get("name") or () if name in by_name]
    ready = Counter(task_of(pod) for pod in pods if is_ready(pod))
    met = [ready[name] >= minimum_of(by_name[name]) for name in names]
    return not met or (any(met) if depends.get("iteration") == "any" else all(met))


def phase_of(job: Json | None) -> str:
    status: Mapping[str, Any] = (job or {}).get("status") or {}
    return str((status.get("state") or {}).get("phase") or "")
