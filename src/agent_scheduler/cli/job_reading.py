"""Reads Jobs and their PodGroups, pods and events. Nothing is written.

An unreadable Job raises `ReadError` with a complete message. Unreadable related objects are left out and reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from agent_scheduler.controllers.jobs.depends import WaitingTask, waiting_tasks
from agent_scheduler.controllers.jobs.pods import places_of
from agent_scheduler.controllers.jobs.states import CLOSED
from agent_scheduler.objects.batch import PodGroup, pod_groups
from agent_scheduler.objects.job import JOBS, Job
from agent_scheduler.objects.job import jobs as jobs_of
from agent_scheduler.objects.job_pod import JOB_NAME, JobPod
from agent_scheduler.objects.wire import Metadata
from apimachinery.wire import Wire
from kube_client.transport import Transport, segment
from kube_client.watch_events import Decode

from .listing import ReadError, list_all
from .program import program


class Event(Wire, frozen=True):
    metadata: Metadata = Metadata()


T = TypeVar("T", Job, PodGroup, JobPod, Event)


@dataclass(frozen=True, slots=True)
class DecodedObject(Generic[T]):
    """A decoded object with its complete JSON."""

    value: T
    body: dict[str, Any]

    @property
    def metadata(self) -> Metadata:
        return self.value.metadata


@dataclass(frozen=True, slots=True)
class JobContext:
    """The objects related to a Job. None means unreadable; `problems` has the reasons."""

    group: DecodedObject[PodGroup] | None
    pods: list[DecodedObject[JobPod]] | None
    events: list[DecodedObject[Event]] | None
    #: For each task; None if unknown because the pods are unreadable.
    waiting: Mapping[str, WaitingTask] | None
    problems: list[str]


def _seen(kind: type[T]) -> Decode[DecodedObject[T]]:
    decode, whole = msgspec.json.Decoder(kind).decode, msgspec.json.Decoder(dict[str, Any]).decode
    return lambda raw: DecodedObject(decode(raw), whole(raw))


async def jobs(transport: Transport, namespace: str, selector: str = "", *, say: Callable[[str], None]) -> list[Job]:
    """Return the jobs sorted by namespace and name; an empty namespace means all. Raises ReadError.

    Jobs that cannot be read are left out, and `say` receives a line.
    """
    path = jobs_of(segment(namespace)) if namespace else JOBS
    query = {"labelSelector": selector} if selector else {}
    found = await list_all(transport, path, msgspec.json.Decoder(Job).decode, query, say=say)
    return sorted(found, key=lambda each: (each.metadata.namespace, each.metadata.name))


async def job(transport: Transport, namespace: str, name: str) -> DecodedObject[Job]:
    """Return the job of this name. Raises ReadError, also if there is none."""
    query = {"fieldSelector": f"metadata.name={name}"}
    found = await list_all(transport, jobs_of(segment(namespace)), _seen(Job), query)
    if not found:
        raise ReadError(
            f"there is no job {name} in namespace {namespace}; list the jobs with: "
            f"{program()} job list --namespace {namespace}"
        )
    return found[0]


async def around(transport: Transport, job: Job) -> JobContext:
    namespace = segment(job.metadata.namespace)
    problems: list[str] = []

    async def tried(what: str, found: Awaitable[list[DecodedObject[T]]]) -> list[DecodedObject[T]] | None:
        try:
            return await found
        except ReadError as error:
            problems.append(f"{what} cannot be read: {error}")
            return None

    labels = {"labelSelector": f"{JOB_NAME}={job.metadata.name}"}
    pods_path, say = f"/api/v1/namespaces/{namespace}/pods", problems.append
    pods, groups = await asyncio.gather(
        tried("pods", list_all(transport, pods_path, _seen(JobPod), labels, say=say)),
        tried("the PodGroup", list_all(transport, pod_groups(namespace), _seen(PodGroup), say=say)),
    )
    # A deleted job of the same name may have left pods.
    pods = None if pods is None else _in_order(job, [each for each in pods if _is_of(job, each.metadata)])
    group = next((each for each in groups or () if _is_of(job, each.metadata)), None)
    events = await tried("events", _events(transport, namespace, job, group, say))
    return JobContext(group, pods, events, _waiting(job, pods), problems)


def _is_of(job: Job, metadata: Metadata) -> bool:
    return any(each.uid == job.metadata.uid for each in metadata.owner_references or ())


def _in_order(job: Job, pods: list[DecodedObject[JobPod]]) -> list[DecodedObject[JobPod]]:
    """Sort pods by task and number; surplus pods go last."""
    tasks = {task.name: number for number, task in enumerate(job.spec.tasks or ())}
    places = {
        name: (tasks[task.name], index)
        for name, (task, index) in places_of(job, [each.metadata.name for each in pods]).items()
    }
    last = len(tasks), 0
    return sorted(pods, key=lambda each: (places.get(each.metadata.name, last), each.metadata.name))


def _waiting(job: Job, pods: list[DecodedObject[JobPod]] | None) -> Mapping[str, WaitingTask] | None:
    if job.status.state.phase in CLOSED:
        return {}
    if pods is None:
        return None
    return waiting_tasks(job, {each.metadata.name: each.value for each in pods})


async def _events(
    transport: Transport, namespace: str, job: Job, group: DecodedObject[PodGroup] | None, say: Callable[[str], None]
) -> list[DecodedObject[Event]]:
    """Return the events of the job and its group, the newest last."""
    found: list[DecodedObject[Event]] = []
    for uid in (job.metadata.uid, group.metadata.uid if group is not None else ""):
        if uid:
            query = {"fieldSelector": f"involvedObject.uid={uid}"}
            path = f"/api/v1/namespaces/{namespace}/events"
            found += await list_all(transport, path, _seen(Event), query, say=say)
    return sorted(found, key=lambda each: last_seen(each.body))


def last_seen(event: Mapping[str, Any]) -> str:
    """Return the last time of an event; empty if it has none."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )
