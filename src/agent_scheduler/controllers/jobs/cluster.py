"""What the watches tell of Jobs, and what has happened to each that nobody has answered yet.

A change of a pod or a group may be an event that policies answer (`policies`). While this process leads it notes them,
in their order. What happened before is found again by what is left of it: a pod that has failed, or a task that is
completed, of the Job's present version.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from agent_scheduler.kube.watch_events import is_older
from agent_scheduler.objects.batch import TASK_SPEC, Command, PodGroup, PriorityClass, Queue
from agent_scheduler.objects.job import JOB_VERSION, Job, TaskSpec
from agent_scheduler.objects.job_pod import JobPod
from agent_scheduler.objects.wire import Metadata, OwnerReference

from .pods import group_name_of, wanted_pods
from .policies import (
    OF_THE_WHOLE,
    POD_EVICTED,
    POD_FAILED,
    TASK_COMPLETED,
    TASK_FAILED,
    UNKNOWN,
    Happened,
    answer,
)
from .states import ACTIVE, tasks_of

#: UIDs of pods that are gone, so that the late answer of a request brings none of them back.
_GONE: Final = 4096
#: How often the containers of a task may be restarted that does not say it.
_MAX_RESTARTS: Final = 3

_Put = Callable[[str], None]


def job_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def key_of(job: Job) -> str:
    return job_key(job.metadata.namespace, job.metadata.name)


def owner_key(namespace: str, references: Iterable[OwnerReference] | None) -> str:
    """The key of the Job that controls something; empty where none does."""
    for each in references or ():
        if each.controller and (each.api_version, each.kind) == (JOB_VERSION, "Job"):
            return job_key(namespace, each.name)
    return ""


class JobsCluster:
    """Owner of Jobs, their pods and groups, commands, queues and priority classes as last seen or written, and of what
    has happened to each Job and is not answered."""

    def __init__(self) -> None:
        self.put: _Put = lambda _key: None
        self.jobs: dict[str, Job] = {}
        #: By key of the Job, and by name.
        self._pods: dict[str, dict[str, JobPod]] = {}
        #: By key of the Job, and by name.
        self._groups: dict[str, dict[str, PodGroup]] = {}
        self.commands: dict[str, Command] = {}
        self.queues: dict[str, Queue] = {}
        self.priorities: dict[str, int] = {}
        self._happened: dict[str, deque[Happened]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        #: UIDs of pods that this process has deleted, and that may not be seen to go yet.
        self._leaving: set[str] = set()
        self._noting = False

    # ---- questions

    def pods(self, job: Job) -> dict[str, JobPod]:
        """Those that this Job controls, and not an earlier one of its name, by name."""
        found = self._pods.get(key_of(job), {})
        return {name: pod for name, pod in found.items() if _is_of(job, pod.metadata.owner_references)}

    def group(self, job: Job) -> PodGroup | None:
        return self._groups.get(key_of(job), {}).get(group_name_of(job))

    def take(self, key: str) -> Happened | None:
        """The next that nobody has answered."""
        waiting = self._happened.get(key)
        if not waiting:
            self._happened.pop(key, None)
            return None
        return waiting.popleft()

    def give_back(self, key: str, happened: Happened) -> None:
        """It is not answered yet."""
        self._happened.setdefault(key, deque()).appendleft(happened)

    def forget(self, key: str) -> None:
        self._happened.pop(key, None)

    # ---- Jobs

    def set_job(self, found: Job) -> None:
        key = key_of(found)
        known = self.jobs.get(key)
        if known is not None and _is_overtaken(found.metadata, known.metadata):
            return
        self.jobs[key] = found
        self.put(key)

    def delete_job(self, gone: Job) -> None:
        key = key_of(gone)
        known = self.jobs.get(key)
        if known is not None and known.metadata.uid == gone.metadata.uid:
            del self.jobs[key]
            self._happened.pop(key, None)

    # ---- pods

    def set_pod(self, found: JobPod) -> None:
        key = owner_key(found.metadata.namespace, found.metadata.owner_references)
        if not key:
            return
        pods = self._pods.setdefault(key, {})
        known = pods.get(found.metadata.name)
        if known is not None and _is_overtaken(found.metadata, known.metadata):
            return
        if found.metadata.uid in self._leaving:
            found = _leaving(found)
        pods[found.metadata.name] = found
        if self._noting and known is not None:
            self._note_change(key, known, found)
        self.put(key)

    def delete_pod(self, gone: JobPod) -> None:
        metadata = gone.metadata
        key = owner_key(metadata.namespace, metadata.owner_references)
        if not key:
            return
        self._leaving.discard(metadata.uid)
        self._gone[metadata.uid] = None
        if len(self._gone) > _GONE:
            self._gone.popitem(last=False)
        pods = self._pods.get(key, {})
        known = pods.get(metadata.name)
        if known is not None and known.metadata.uid == metadata.uid:
            del pods[metadata.name]
            if not pods:
                del self._pods[key]
            if self._noting and known.metadata.deletion_timestamp is None and self._is_wanted(key, known):
                self._note(key, _of_pod(POD_EVICTED, known))
        self.put(key)

    def learn_pod(self, made: JobPod) -> None:
        """What the API server has answered; the watch may have told more since."""
        key = owner_key(made.metadata.namespace, made.metadata.owner_references)
        pods = self._pods.setdefault(key, {})
        known = pods.get(made.metadata.name)
        if made.metadata.uid in self._gone or (
            known is not None
            and (
                known.metadata.uid != made.metadata.uid
                or not is_older(known.metadata.resource_version, made.metadata.resource_version)
            )
        ):
            return
        pods[made.metadata.name] = made

    def pod_leaves(self, pod: JobPod) -> None:
        """The API server has taken its deletion."""
        key, name = owner_key(pod.metadata.namespace, pod.metadata.owner_references), pod.metadata.name
        known = self._pods.get(key, {}).get(name)
        if known is not None and known.metadata.uid == pod.metadata.uid:
            self._leaving.add(pod.metadata.uid)
            self._pods[key][name] = _leaving(known)

    def _is_wanted(self, key: str, pod: JobPod) -> bool:
        """Whether there should be a pod of its name: that others go is no event."""
        job = self.jobs.get(key)
        return job is not None and pod.metadata.name in wanted_pods(job)

    def _note_change(self, key: str, before: JobPod, now: JobPod) -> None:
        if before.metadata.uid != now.metadata.uid:
            return
        if now.metadata.deletion_timestamp is not None:
            is_new = before.metadata.deletion_timestamp is None and not now.is_marked
            if is_new and self._is_wanted(key, now):
                self._note(key, _of_pod(POD_EVICTED, now))
            return
        phase, job = now.status.phase, self.jobs.get(key)
        changed = phase != before.status.phase
        task = _task(job, now)
        if phase == "Failed" and changed:
            self._note(key, _of_pod(POD_FAILED, now))
        elif job is None or task is None:
            return
        elif phase == "Succeeded" and changed and self._is_completed(job, task):
            self._note(key, _of_pod(TASK_COMPLETED, now))
        elif phase in ("Pending", "Running") and self._is_failed(job, task):
            self._note(key, _of_pod(TASK_FAILED, now))

    def _is_completed(self, job: Job, task: TaskSpec) -> bool:
        ended = sum(each.status.phase == "Succeeded" for each in self._of_task(job, task))
        return 0 < task.replicas <= ended

    def _is_failed(self, job: Job, task: TaskSpec) -> bool:
        """Whether its containers were restarted as often as they may be; -1 is that they may be always."""
        most = task.max_retry or _MAX_RESTARTS
        restarts = sum(
            report.restart_count
            for pod in self._of_task(job, task)
            if pod.status.phase in ("Pending", "Running")
            for report in (
                *(pod.status.init_container_statuses or ()),
                *(pod.status.container_statuses or ()),
            )
        )
        return 0 < most <= restarts

    def _of_task(self, job: Job, task: TaskSpec) -> list[JobPod]:
        return [each for each in self.pods(job).values() if each.annotation(TASK_SPEC) == task.name]

    # ---- groups

    def set_group(self, found: PodGroup) -> None:
        metadata = found.metadata
        key = owner_key(metadata.namespace, metadata.owner_references)
        if not key:
            return
        groups = self._groups.setdefault(key, {})
        known = groups.get(metadata.name)
        if known is not None and is_older(metadata.resource_version, known.metadata.resource_version):
            return
        groups[metadata.name] = found
        if (
            self._noting
            and known is not None
            and found.status.phase == UNKNOWN != known.status.phase
            and metadata.deletion_timestamp is None
        ):
            self._note(key, Happened(UNKNOWN))
        self.put(key)

    def delete_group(self, gone: PodGroup) -> None:
        metadata = gone.metadata
        key = owner_key(metadata.namespace, metadata.owner_references)
        groups = self._groups.get(key, {})
        known = groups.get(metadata.name)
        if known is not None and known.metadata.uid == metadata.uid:
            del groups[metadata.name]
            if not groups:
                del self._groups[key]
            self.put(key)

    # ---- the rest

    def set_command(self, found: Command) -> None:
        target = found.target
        if target is not None and (target.api_version, target.kind) == (JOB_VERSION, "Job"):
            self.commands[found.metadata.uid] = found
            self.put(job_key(found.metadata.namespace, target.name))

    def delete_command(self, gone: Command) -> None:
        self.commands.pop(gone.metadata.uid, None)

    def set_queue(self, found: Queue) -> None:
        is_new = found.name not in self.queues
        self.queues[found.name] = found
        if is_new:
            for key, job in self.jobs.items():
                if job.spec.queue == found.name:
                    self.put(key)

    def delete_queue(self, gone: Queue) -> None:
        self.queues.pop(gone.name, None)

    def set_priority(self, found: PriorityClass) -> None:
        self.priorities[found.metadata.name] = found.value

    def delete_priority(self, gone: PriorityClass) -> None:
        self.priorities.pop(gone.metadata.name, None)

    # ---- what has happened

    def begin(self) -> None:
        """From now on what happens is noted; and what happened to each Job before, by what is left of it."""
        self._noting = True
        self._happened.clear()
        for key, job in self.jobs.items():
            for each in self._left_of(job):
                # What only takes away some pods has taken those away, or nothing tells whether it has.
                if answer(job, each).action in OF_THE_WHOLE:
                    self._note(key, each)

    def _left_of(self, job: Job) -> Iterable[Happened]:
        if job.status.state.phase not in ACTIVE:
            return
        pods = self.pods(job).values()
        yield from (_of_pod(POD_FAILED, each) for each in pods if each.status.phase == "Failed")
        for each in pods:
            is_leaving = each.metadata.deletion_timestamp is not None and not each.is_marked
            if is_leaving and each.metadata.name in wanted_pods(job):
                yield _of_pod(POD_EVICTED, each)
        for task in tasks_of(job):
            of_task = self._of_task(job, task)
            if of_task and self._is_completed(job, task):
                yield _of_pod(TASK_COMPLETED, of_task[-1])
        group = self.group(job)
        if group is not None and group.status.phase == UNKNOWN:
            yield Happened(UNKNOWN)

    def _note(self, key: str, happened: Happened) -> None:
        self._happened.setdefault(key, deque()).append(happened)


def _is_of(job: Job, references: Iterable[OwnerReference] | None) -> bool:
    return any(each.controller and each.uid == job.metadata.uid for each in references or ())


def _is_overtaken(found: Metadata, known: Metadata) -> bool:
    """Whether a later version of the same object is known."""
    return known.uid == found.uid and is_older(found.resource_version, known.resource_version)


def _leaving(pod: JobPod) -> JobPod:
    """As the API server will show it, or shows it, while it goes."""
    metadata = pod.metadata
    stamp = metadata.deletion_timestamp or metadata.creation_timestamp or "now"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(metadata, deletion_timestamp=stamp))


def _task(job: Job | None, pod: JobPod) -> TaskSpec | None:
    name = pod.annotation(TASK_SPEC)
    return next((task for task in (tasks_of(job) if job is not None else ()) if task.name == name), None)


def _of_pod(event: str, pod: JobPod) -> Happened:
    first = next(iter(pod.status.container_statuses or ()), None)
    ended = first.state.terminated if first is not None else None
    code = ended.exit_code if ended is not None and event == POD_FAILED else 0
    metadata = pod.metadata
    return Happened(event, pod.annotation(TASK_SPEC), metadata.name, metadata.uid, code, pod.version)
