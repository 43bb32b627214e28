"""The desired pods of a Job: names and contents, as Volcano's controller creates them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
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

_NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
#: Annotations that pods copy from their Job; of `_BUDGETS` only the first that is set.
_COPIED: Final = (PREEMPTABLE, "volcano.sh/cooldown-time", "volcano.sh/revocable-zone")
_BUDGETS: Final = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")

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


@lru_cache(maxsize=1024)
def _check(template: bytes) -> None:
    """Validate a template. Raises msgspec.ValidationError. It is cached because the pods of a task share one."""
    _decode_template(template)


def pod_name(job: Job, task: TaskSpec, index: int) -> str:
    return f"{job.metadata.name}-{task.name}-{index}"


def group_name_of(job: Job) -> str:
    return f"{job.metadata.name}-{job.metadata.uid}"


def wanted_pods(job: Job) -> dict[str, tuple[TaskSpec, int]]:
    """Return task and index of each desired pod, by its name."""
    return {pod_name(job, task, index): (task, index) for task in tasks_of(job) for index in range(task.replicas)}


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
        if wrong := {key: text for key, text in own.items() if (said or {}).get(key) != text}:
            wanted[field] = wrong
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
