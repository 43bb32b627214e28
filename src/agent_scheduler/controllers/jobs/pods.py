"""The desired pods of a Job: names and contents, as Volcano's controller creates them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from agent_scheduler.objects.batch import GROUP_NAME, PREEMPTABLE, STAGE_GATE, TASK_SPEC
from agent_scheduler.objects.job import JOB_VERSION, Job, TaskSpec
from agent_scheduler.objects.job_pod import (
    JOB_NAME,
    JOB_NAMESPACE,
    PARTITION_ID,
    POD_QUEUE_NAME,
    RETRY_COUNT,
    TASK_INDEX,
    TEMPLATE_UID,
    VERSION,
    JobPod,
)
from apimachinery.wire import Wire

from .states import tasks_of
from .templates import remembered

_NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
#: Annotations that pods copy from their Job; of `_BUDGETS` only the first that is set.
_COPIED: Final = (PREEMPTABLE, "volcano.sh/cooldown-time", "volcano.sh/revocable-zone")
_BUDGETS: Final = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")

#: The digits of the largest index: replicas are 32-bit integers.
_DIGITS: Final = 10

#: The maximum size of what is added to a pod: API servers store no larger object.
_MOST_BYTES: Final = 1_500_000

_Items = list[dict[str, Any]] | None


class _Container(Wire, frozen=True):
    env: _Items = None
    ports: _Items = None
    volume_mounts: _Items = None


class _TaskPodSpec(Wire, frozen=True):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: _Items = None


class _TaskMetadata(Wire, frozen=True):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _TaskTemplate(Wire, frozen=True):
    """The parts to which the controller adds, with their types, because the API server does not validate them."""

    metadata: _TaskMetadata | None = None
    spec: _TaskPodSpec | None = None


_decode_template = msgspec.json.Decoder(_TaskTemplate).decode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@remembered
def _check(template: bytes) -> None:
    """Validate a template. Raises msgspec.ValidationError. It is cached because the pods of a task share one."""
    _decode_template(template)


def check_additions(what: str, size: int, containers: int) -> None:
    """Raise msgspec.ValidationError if additions of this size to each container make a pod too large for a server."""
    if size * containers > _MOST_BYTES:
        raise msgspec.ValidationError(
            f"{what} add {size} bytes to each of {containers} containers; allowed: {_MOST_BYTES} bytes for a pod"
        )


def pod_name(job: Job, task: TaskSpec, index: int) -> str:
    return f"{job.metadata.name}-{task.name}-{index}"


def group_name_of(job: Job) -> str:
    return f"{job.metadata.name}-{job.metadata.uid}"


def desired(job: Job) -> Iterator[tuple[str, TaskSpec, int]]:
    """Yield name, task and index of each desired pod."""
    for task in tasks_of(job):
        for index in range(task.replicas):
            yield pod_name(job, task, index), task, index


def place_of(job: Job, name: str) -> tuple[TaskSpec, int] | None:
    """Return task and index of the desired pod of this name; None if none has it."""
    return places_of(job, (name,)).get(name)


def places_of(job: Job, names: Iterable[str]) -> dict[str, tuple[TaskSpec, int]]:
    """Return `place_of` for each of the names that has one. The cost does not depend on the number of desired pods."""
    tasks = {f"{job.metadata.name}-{task.name}": task for task in tasks_of(job)}
    found = {}
    for name in names:
        prefix, _, digits = name.rpartition("-")
        task = tasks.get(prefix)
        if task is not None and (place := _index(digits)) is not None and place < task.replicas:
            found[name] = task, place
    return found


def _index(digits: str) -> int | None:
    """Parse the index of a pod as `pod_name` writes it."""
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
        return None
    return int(digits) if str(int(digits)) == digits else None


def partition_of(task: TaskSpec, index: int) -> int | None:
    policy = task.partition_policy
    return index // policy.partition_size if policy is not None and policy.partition_size > 0 else None


def owner_of(job: Job) -> dict[str, Any]:
    """Return the owner reference to a Job."""
    return {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_for(job: Job, task: TaskSpec, index: int) -> dict[str, Any]:
    """Return one pod to create, without plugins' additions. Raises msgspec.ValidationError for an invalid template."""
    _check(bytes(task.template))
    template = _decode(task.template)
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    if not spec.get("schedulerName") and job.spec.scheduler_name:
        spec["schedulerName"] = job.spec.scheduler_name
    if not spec.get("priorityClassName") and job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    labels, annotations = _own(job, task, index)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job, task, index),
            "namespace": job.metadata.namespace,
            "annotations": (metadata.get("annotations") or {})
            | annotations
            | {VERSION: str(job.status.version), RETRY_COUNT: str(job.status.retry_count)}
            | ({_NUMA_POLICY: task.topology_policy} if task.topology_policy else {})
            | _copied(job.metadata.annotations or {}),
            "labels": (metadata.get("labels") or {})
            | labels
            | {key: value for key, value in (job.metadata.labels or {}).items() if key == PREEMPTABLE},
            "ownerReferences": [owner_of(job)],
        },
        "spec": spec,
    }


def with_index(pod: dict[str, Any], job: Job, task: TaskSpec, index: int) -> dict[str, Any]:
    """Return the pod with another index, if no plugin has added to `pod`, which is of the same task."""
    metadata, own = pod["metadata"], {TASK_INDEX: str(index)}
    partition = partition_of(task, index)
    labels = own if partition is None else own | {PARTITION_ID: str(partition)}
    changed = {
        "name": pod_name(job, task, index),
        "annotations": metadata["annotations"] | own,
        "labels": metadata["labels"] | labels,
    }
    return pod | {"metadata": metadata | changed}


def _own(job: Job, task: TaskSpec, index: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that assign a pod to its Job."""
    both = {TASK_SPEC: task.name, TASK_INDEX: str(index), JOB_NAME: job.metadata.name, POD_QUEUE_NAME: job.spec.queue}
    labels, partition = both | {JOB_NAMESPACE: job.metadata.namespace}, partition_of(task, index)
    if partition is not None:
        labels[PARTITION_ID] = str(partition)
    annotations = {GROUP_NAME: group_name_of(job), TEMPLATE_UID: f"{job.metadata.name}-{task.name}"}
    return labels, both | annotations


def correction(job: Job, task: TaskSpec, index: int, pod: JobPod) -> dict[str, Any] | None:
    """Return the merge patch that restores the assignment of a pod to the Job; None if it is correct.

    Other labels and annotations belong to users.
    """
    wanted, (labels, annotations) = {}, _own(job, task, index)
    if not pod.annotation(VERSION).isdecimal() or pod.version > job.status.version:
        annotations[VERSION] = str(job.status.version)
    metadata = pod.metadata
    for field, own, said in (("labels", labels, metadata.labels), ("annotations", annotations, metadata.annotations)):
        there = said or {}
        if not own.items() <= there.items():
            wanted[field] = {key: text for key, text in own.items() if there.get(key) != text}
    if not any(each.controller for each in metadata.owner_references or ()):
        wanted["ownerReferences"] = [owner_of(job)]  # type: ignore[assignment]
    return {"metadata": {"uid": metadata.uid, **wanted}} if wanted else None


def is_lost(job: Job, task: TaskSpec, pod: JobPod) -> bool:
    """Return whether a pod of this name was created for this Job, although its label or its owner is missing."""
    controller = next((each.uid for each in pod.metadata.owner_references or () if each.controller), "")
    said = pod.annotation(JOB_NAME), pod.annotation(GROUP_NAME), pod.annotation(TASK_SPEC)
    marks = (job.metadata.name, group_name_of(job), task.name)
    return controller == job.metadata.uid or (not controller and said == marks)


def stand_by(pod: dict[str, Any]) -> None:
    """Add the stage gate, behind which the pod waits for its turn."""
    spec = pod["spec"]
    spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), {"name": STAGE_GATE}]


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    keys = (*_COPIED, *[key for key in _BUDGETS if key in annotations][:1])
    return {key: annotations[key] for key in keys if key in annotations}
