"""Defaults and checks of jobs that are created or changed.

All problems are reported together, each with its field and what is allowed; the words are Volcano's where it has
some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from agent_scheduler.objects.batch import DEFAULT_QUEUE, ROOT_QUEUE, Queue
from agent_scheduler.objects.job import DEPENDENT_JOB, DEPENDS_ON_GANG, RESERVE, Job, JobSpec, TaskSpec, excess

from .answers import first
from .job_changes import changes
from .job_checks import problems
from .job_dependencies import is_dependent
from .job_minimums import minimum_of, strict_problem
from .podgroups import TOPOLOGY_IGNORED
from .queue_access import NO_LABELS, LabelsByName, not_allowed
from .review import (
    ALLOWED,
    CREATE,
    UPDATE,
    AdmissionRequest,
    AdmissionResponse,
    JsonPatchOperation,
    allowed_with,
    object_of,
    refused,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """`scheduler` is the default of jobs without one.

    With `strict_min_available`, a job is rejected if its minimum is not the sum of its tasks' (`job_minimums`);
    otherwise there is a warning.
    """

    scheduler: str
    strict_min_available: bool = True


_read = msgspec.json.Decoder(Job).decode

_OPEN: Final = "Open"
_MAX_RETRY: Final = 3
_HOST_NETWORK_DNS: Final = "ClusterFirstWithHostNet"
#: Plugins of frameworks with the other plugins that they need.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "mpi": ("ssh", "svc"),
    **dict.fromkeys(("pytorch", "ray", "tensorflow"), ("svc",)),
}


# ---- defaults


class _TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    host_network: bool = False
    dns_policy: str = ""


class _HostNetworkTemplate(msgspec.Struct, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


_read_template = msgspec.json.Decoder(_HostNetworkTemplate).decode


def mutate(request: AdmissionRequest, rules: JobRules) -> AdmissionResponse:
    job = object_of(request.object, _read)
    if request.operation != CREATE:
        return refused("expect operation to be 'CREATE' ")
    if not _has_spec(request.object):
        # Defaults cannot be added without a spec, and the validation reports what is missing.
        return ALLOWED
    spec, patch = job.spec, list[JsonPatchOperation]()
    tasks = spec.tasks or ()
    if not spec.queue:
        patch.append(JsonPatchOperation("add", "/spec/queue", DEFAULT_QUEUE))
    if not spec.scheduler_name:
        patch.append(JsonPatchOperation("add", "/spec/schedulerName", rules.scheduler))
    if spec.max_retry == 0:
        patch.append(JsonPatchOperation("add", "/spec/maxRetry", _MAX_RETRY))
    for index, task in enumerate(tasks):
        patch += _of_task(spec, index, task)
    if spec.min_available == 0:
        patch.append(JsonPatchOperation("add", "/spec/minAvailable", sum(task.minimum for task in tasks)))
    patch += _of_plugins(spec)
    if is_dependent(tasks):
        patch.append(_dependent(job))
    return allowed_with(patch)


def _has_spec(raw: msgspec.Raw) -> bool:
    return msgspec.json.decode(raw).get("spec") is not None


def _of_task(spec: JobSpec, index: int, task: TaskSpec) -> Iterator[JsonPatchOperation]:
    path = f"/spec/tasks/{index}"
    if not task.name:
        yield JsonPatchOperation("add", f"{path}/name", f"default{index}")
    template = object_of(task.template, _read_template).spec
    if template.host_network and not template.dns_policy:
        yield JsonPatchOperation("add", f"{path}/template/spec/dnsPolicy", _HOST_NETWORK_DNS)
    if task.min_available is None:
        yield JsonPatchOperation("add", f"{path}/minAvailable", minimum_of(spec, task))
    if task.max_retry == 0:
        yield JsonPatchOperation("add", f"{path}/maxRetry", _MAX_RETRY)


def _of_plugins(spec: JobSpec) -> Iterator[JsonPatchOperation]:
    plugins = spec.plugins or {}
    needed = {each for name in plugins for each in _NEEDED.get(name, ())}
    for name in sorted(needed - plugins.keys()):
        yield JsonPatchOperation("add", f"/spec/plugins/{name}", [])


def _dependent(job: Job) -> JsonPatchOperation:
    if job.metadata.annotations is None:
        return JsonPatchOperation("add", "/metadata/annotations", {DEPENDENT_JOB: "true"})
    return JsonPatchOperation("add", f"/metadata/annotations/{DEPENDENT_JOB}", "true")


# ---- what is allowed


def validate(
    request: AdmissionRequest, queues: Mapping[str, Queue], rules: JobRules, labels: LabelsByName = NO_LABELS
) -> AdmissionResponse:
    """Check the job. `queues` are the existing queues by name, `labels` those of namespaces.

    The response warns about a network topology, which has no effect.
    """
    job = object_of(request.object, _read)
    too_large = excess(job.spec)
    if request.operation == CREATE:
        found = [too_large] if too_large else first(chain(problems(job), _of_queue(job.spec.queue, queues)))
        namespace = job.metadata.namespace or request.namespace
        found += [f"spec.queue: {each}" for each in not_allowed(job.spec.queue, namespace, queues, labels)]
        # Without a minimum its defaults are not set yet.
        strict = strict_problem(job.spec) if job.spec.min_available and job.spec.tasks else ""
    elif request.operation == UPDATE:
        old = object_of(request.old_object, _read)
        found = first(changes(old.spec, job, _spec_of(request.old_object), _spec_of(request.object)))
        strict = strict_problem(job.spec) if _counts(old.spec) != _counts(job.spec) else ""
    else:
        return refused("expect operation to be 'CREATE' or 'UPDATE'")
    found += _of_gang(job)
    if strict and rules.strict_min_available and not too_large:
        found.append(strict)
    if found:
        return refused("; ".join(found))
    warnings = tuple(filter(None, (strict, _of_topology(job.spec))))
    return AdmissionResponse(True, warnings=warnings) if warnings else ALLOWED


def _of_topology(spec: JobSpec) -> str:
    """Return the warning about a network topology, which has no effect; empty if the job has none."""
    parts = (task.partition_policy for task in spec.tasks or ())
    found = (spec.network_topology, *(each.network_topology for each in parts if each is not None))
    return TOPOLOGY_IGNORED if any(each is not None for each in found) else ""


def _of_gang(job: Job) -> Iterator[str]:
    value = (job.metadata.annotations or {}).get(DEPENDS_ON_GANG, RESERVE)
    if value != RESERVE:
        yield f"metadata.annotations[{DEPENDS_ON_GANG}]: found {value!r}; allowed: {RESERVE}, or no such annotation"


def _spec_of(raw: msgspec.Raw) -> dict[str, Any]:
    return dict(msgspec.json.decode(raw).get("spec") or {})


def _counts(spec: JobSpec) -> tuple[int, list[tuple[int, int | None]]]:
    return spec.min_available, [(task.replicas, task.min_available) for task in spec.tasks or ()]


def _of_queue(name: str, queues: Mapping[str, Queue]) -> Iterator[str]:
    queue = queues.get(name)
    if queue is None:
        yield f'spec.queue: unable to find job queue: queue.scheduling.volcano.sh "{name}" not found'
        return
    if name == ROOT_QUEUE:
        yield "spec.queue: can not submit job to root queue"
        return
    if queue.status.state != _OPEN:
        yield (
            f"spec.queue: can only submit job to queue with state `{_OPEN}`, queue `{name}` status is "
            f"`{queue.status.state}`"
        )
    below = sum(each.spec.parent == name for each in queues.values())
    if below:
        yield f"spec.queue: can only submit job to leaf queue, queue `{name}` has {below} child queues"
