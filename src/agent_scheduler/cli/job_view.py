"""Formats Jobs as text and as plain values for JSON and YAML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from agent_scheduler.objects.batch import TASK_SPEC, PodGroup
from agent_scheduler.objects.job import Job, LifecyclePolicy, TaskSpec
from agent_scheduler.objects.job_pod import JobPod
from apimachinery.visible import visible

from .amounts import of_quantities
from .job_reading import DecodedObject, Event, JobContext, last_seen
from .tables import age, table

#: The label with the job's framework; jobs without it are Batch.
_JOB_TYPE: Final = "volcano.sh/job-type"
_HEAD: Final = (
    "NAME",
    "CREATION",
    "PHASE",
    "JOBTYPE",
    "REPLICAS",
    "MIN",
    "PENDING",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "UNKNOWN",
    "RETRYCOUNT",
)
_WIDE: Final = ("TERMINATING", "VERSION", "QUEUE", "SCHEDULER", "AGE", "MESSAGE")
_PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_TASKS: Final = ("TASK", "REPLICAS", "MIN", *(phase.upper() for phase in _PHASES), "DEPENDS ON", "WAITS FOR")
#: Shown for unreadable values.
_UNREAD: Final = "?"


def jobs_table(jobs: Iterable[Job], *, now: datetime, wide: bool, namespaces: bool) -> str:
    head = (*(("NAMESPACE",) if namespaces else ()), *_HEAD, *(_WIDE if wide else ()))
    rows = []
    for job in jobs:
        metadata, status = job.metadata, job.status
        row = [
            *((metadata.namespace,) if namespaces else ()),
            metadata.name,
            (metadata.creation_timestamp or "")[:10],
            status.state.phase,
            _type(job),
            _replicas(job),
            status.min_available or job.spec.min_available,
            status.pending,
            status.running,
            status.succeeded,
            status.failed,
            status.unknown,
            status.retry_count,
        ]
        if wide:
            row += [
                status.terminating,
                status.version,
                job.spec.queue,
                job.spec.scheduler_name,
                age(metadata.creation_timestamp, now),
                status.state.message,
            ]
        rows.append(row)
    return table(head, rows)


def plain(job: Job) -> dict[str, Any]:
    """Return a line of the list for JSON and YAML; missing values are null."""
    metadata, spec, status = job.metadata, job.spec, job.status
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "creationTimestamp": metadata.creation_timestamp,
        "phase": status.state.phase or None,
        "message": status.state.message or None,
        "jobType": _type(job),
        "queue": spec.queue or None,
        "schedulerName": spec.scheduler_name or None,
        "replicas": _replicas(job),
        "minAvailable": status.min_available or spec.min_available,
        "pods": {
            phase: getattr(status, phase)
            for phase in ("pending", "running", "succeeded", "failed", "terminating", "unknown")
        },
        "retryCount": status.retry_count,
        "version": status.version,
    }


def plain_whole(job: DecodedObject[Job], around: JobContext) -> dict[str, Any]:
    """Return the objects and the task dependencies for JSON and YAML; missing and unreadable values are null."""
    waiting = around.waiting
    return {
        "job": job.body,
        "waiting": None
        if waiting is None
        else {
            task: {
                "anyOf": each.any_of,
                "on": [{"task": name, "ready": ready, "least": least} for name, ready, least in each.on],
            }
            for task, each in waiting.items()
        },
        "podGroup": None if around.group is None else around.group.body,
        "pods": None if around.pods is None else [each.body for each in around.pods],
        "events": None if around.events is None else [each.body for each in around.events],
    }


def text(job: DecodedObject[Job], around: JobContext, *, now: datetime) -> str:
    """Return the output of `describe`."""
    parts = [_lines(_facts(job.value, now)), _tasks(job.value, around), _templates(job)]
    if around.group is not None:
        parts.append(f"PodGroup:\n{_indented(_lines(_group(around.group.value)))}")
    if around.pods is not None:
        parts.append(_part("Pods", _pods(around.pods, now)))
    if around.events is not None:
        parts.append(_part("Events", _events(around.events, now)))
    return "".join(parts)


# ---- the job


def _facts(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    metadata, spec, status = job.metadata, job.spec, job.status
    yield "Name", metadata.name
    yield "Namespace", metadata.namespace
    yield "Labels", _pairs(metadata.labels)
    yield "Annotations", _pairs(metadata.annotations)
    yield "Created", _since(metadata.creation_timestamp, now)
    yield "Queue", spec.queue
    yield "Scheduler", spec.scheduler_name
    yield "Priority class", spec.priority_class_name
    yield "Min available", str(spec.min_available)
    yield "Min success", "" if spec.min_success is None else str(spec.min_success)
    yield ("Plugins", ", ".join(" ".join((name, *(words or ()))) for name, words in (spec.plugins or {}).items()))
    yield "Volumes", ", ".join(f"{each.mount_path}={each.volume_claim_name}" for each in spec.volumes or ())
    yield "Policies", _policies(spec.policies)
    yield "Phase", " ".join((status.state.phase, _since(status.state.last_transition_time, now))).strip()
    yield "Reason", status.state.reason
    yield "Message", status.state.message
    yield "Retries", f"{status.retry_count} of {spec.max_retry or 3}"
    yield "Version", str(status.version)
    yield "Running for", status.running_duration or ""
    yield "Controls", ", ".join(sorted((status.controlled_resources or {}).keys()))
    yield (
        "Was in",
        ", ".join(f"{each.status} {_since(each.last_transition_time, now)}" for each in status.conditions or ()),
    )


def _tasks(job: Job, around: JobContext) -> str:
    counts = job.status.task_status_count or {}
    rows = []
    for task in job.spec.tasks or ():
        phases = (counts[task.name].phase if task.name in counts else None) or {}
        rows.append(
            (
                task.name,
                task.replicas,
                task.minimum,
                *(phases.get(phase, 0) for phase in _PHASES),
                _depends(task),
                _waits(task, around),
            )
        )
    return _part("Tasks", table(_TASKS, rows))


def _waits(task: TaskSpec, around: JobContext) -> str:
    if around.waiting is None:
        return _UNREAD if task.depends_on is not None else ""
    waiting = around.waiting.get(task.name)
    return "" if waiting is None else str(waiting).removeprefix(f"{task.name} waits for ")


def _depends(task: TaskSpec) -> str:
    if task.depends_on is None:
        return ""
    names = task.depends_on.name or ()
    return (" or " if task.depends_on.iteration == "any" else ", ").join(names)


def _templates(job: DecodedObject[Job]) -> str:
    """Return the table of what the pods of each task run and request."""
    rows: list[Sequence[object]] = []
    for task, body in zip(job.value.spec.tasks or (), job.body["spec"].get("tasks") or (), strict=True):
        spec = (body.get("template") or {}).get("spec") or {}
        for container in spec.get("containers") or ():
            resources = container.get("resources") or {}
            command = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
            rows.append(
                (
                    task.name,
                    container.get("name"),
                    container.get("image"),
                    _pairs(resources.get("requests")),
                    _pairs(resources.get("limits")),
                    _policies(task.policies),
                    " ".join(command.split()),
                )
            )
    head = ("TASK", "CONTAINER", "IMAGE", "REQUESTS", "LIMITS", "POLICIES", "COMMAND")
    return _part("Templates", table(head, rows))


def _type(job: Job) -> str:
    return (job.metadata.labels or {}).get(_JOB_TYPE) or "Batch"


def _replicas(job: Job) -> int:
    return sum(task.replicas for task in job.spec.tasks or ())


def _policies(policies: tuple[LifecyclePolicy, ...] | None) -> str:
    shown = []
    for each in policies or ():
        when = ["exit code " + str(each.exit_code)] if each.exit_code is not None else []
        when += [name for name in (each.event, *(each.events or ())) if name]
        after = f" after {each.timeout}" if each.timeout else ""
        shown.append(f"{' or '.join(when)} → {each.action}{after}")
    return ", ".join(shown)


# ---- related objects


def _group(group: PodGroup) -> Iterator[tuple[str, str]]:
    spec, status = group.spec, group.status
    yield "Name", group.metadata.name
    yield "Phase", status.phase
    yield "Min member", str(spec.min_member)
    yield "Min task member", _pairs(spec.min_task_member)
    yield "Min resources", of_quantities(spec.min_resources)
    yield "Running", str(status.running)
    if status.conditions:
        last = status.conditions[-1]
        yield "Condition", " ".join(filter(None, (f"{last.type}={last.status}", last.reason, last.message)))


def _pods(pods: Iterable[DecodedObject[JobPod]], now: datetime) -> str:
    rows = []
    for each in pods:
        pod, metadata = each.value, each.metadata
        phase = "Terminating" if metadata.deletion_timestamp is not None else pod.status.phase
        reports = pod.status.container_statuses or ()
        rows.append(
            (
                metadata.name,
                pod.annotation(TASK_SPEC),
                phase,
                f"{sum(report.ready for report in reports)}/{len(each.body['spec'].get('containers') or ())}",
                sum(report.restart_count for report in reports),
                each.body["spec"].get("nodeName"),
                age(metadata.creation_timestamp, now),
                _why(each.body),
            )
        )
    return table(("POD", "TASK", "PHASE", "READY", "RESTARTS", "NODE", "AGE", "WHY"), rows)


def _why(pod: Mapping[str, Any]) -> str:
    """Return the scheduler's reason why the pod has no node."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            words = (each.get("reason"), each.get("message"))
            return " ".join(": ".join(filter(None, words)).split())
    return ""


def _events(events: Iterable[DecodedObject[Event]], now: datetime) -> str:
    rows = []
    for each in events:
        event = each.body
        count = (event.get("series") or {}).get("count") or event.get("count") or 1
        since = age(last_seen(event), now)
        rows.append(
            (
                event.get("type"),
                event.get("reason"),
                f"{since} (x{count})" if count > 1 else since,
                event.get("reportingComponent") or (event.get("source") or {}).get("component"),
                f"{event['involvedObject'].get('kind', '')}: {' '.join(str(event.get('message', '')).split())}",
            )
        )
    return table(("TYPE", "REASON", "AGE", "FROM", "MESSAGE"), rows)


# ---- layout


def _part(title: str, shown: str) -> str:
    """Return a table with a title, or `none` if it has no rows."""
    return f"{title}:\n{_indented(shown)}" if shown.count("\n") > 1 else f"{title}: none\n"


def _indented(shown: str) -> str:
    return "".join(f"  {line}\n" for line in shown.splitlines())


def _lines(facts: Iterable[tuple[str, str]]) -> str:
    """Format the facts that have a value, one per line."""
    said = [(name, visible(" ".join(fact.split()))) for name, fact in facts if fact]
    width = max(len(name) for name, _ in said) + 2
    return "".join(f"{name + ':':{width}} {fact}\n" for name, fact in said)


def _pairs(values: Mapping[str, Any] | None) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted((values or {}).items()))


def _since(stamp: str | None, now: datetime) -> str:
    return f"{stamp} ({age(stamp, now)})" if stamp else ""
