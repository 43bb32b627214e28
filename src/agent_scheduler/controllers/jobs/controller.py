"""Runs Jobs (batch.volcano.sh/v1alpha1): creates their PodGroups, and their pods once a group is admitted.

It restarts, aborts and ends Jobs by their policies and by Commands. Decisions are in the modules beside it, which are
pure except for `carrying` and `writes`. All state is in the cluster, so a new leader continues every Job where the last
one stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from agent_scheduler.cluster.groups import pod_groups, queues
from agent_scheduler.controllers.reconciling import PATIENCE, CreationReceiver, KeyQueue, Reconciled
from agent_scheduler.objects.batch import COMMANDS, PRIORITY_CLASSES, TASK_SPEC, Command, PriorityClass, command_path
from agent_scheduler.objects.job import JOB_VERSION, JOBS, Job
from agent_scheduler.objects.job_pod import JOB_NAME, read_job_pod, read_job_pod_event
from apimachinery.durations import format_duration
from kube_client.informers import Kind
from kube_client.recorder import EventRecorder, ObjectReference
from kube_client.retry import Timing
from kube_client.transport import Transport, segment

from .belongings import Belongings
from .carrying import Carrying, has_partitions
from .cluster import PODS_OF_JOBS, JobsCluster
from .identity import job_key
from .plugins.registry import PLUGINS, SSH
from .policies import POD_PENDING, JobEvent, PolicyAction, answer, pending_limits
from .states import ACTIVE, FINISHED, PENDING, RESTART_PARTITION, RUNNING, SYNC_JOB, kill_for, next_phase, tasks_of
from .writes import JobWriter, Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The settings; `workers` is the number of Jobs that are reconciled concurrently.

    `ssh` is whether Jobs may use the plugin ssh, for which the controller writes Secrets.
    """

    workers: int = 4
    ssh: bool = False


#: Seconds between a change and its reconciliation.
_SETTLE: Final = 0.02


class JobController:
    """A `Reconciler`, keyed by namespace and name of Jobs.

    Owner of the actions that wait for a timeout. All other state is in `JobsCluster`.
    """

    name = "job"
    settle = _SETTLE
    patience = PATIENCE
    needs: tuple[str, ...] = ("Job", "PodGroup", "Queue")

    def __init__(self, settings: JobSettings, *, transport: Transport, events: EventRecorder, timing: Timing) -> None:
        self.workers = settings.workers
        self._ssh = settings.ssh
        self._timing = timing
        self._cluster = JobsCluster()
        self._writes = JobWriter(self._cluster, transport=transport, timing=timing)
        self._belongings = Belongings(self._writes, transport=transport, timing=timing)
        self._carrying = Carrying(
            self._cluster,
            self._writes,
            self._belongings,
            plugins=[name for name in PLUGINS if settings.ssh or name != SSH],
            events=events,
            timing=timing,
        )
        self._put: KeyQueue = _nothing
        #: Events that wait for their policy's timeout, with their times on the clock, by key of the Job.
        self._delayed: dict[str, list[tuple[float, JobEvent]]] = {}
        #: UIDs of commands that are executed and not yet deleted.
        self._obeyed: set[str] = set()
        #: UIDs of pods with a limit on their pending time, and of those whose limit has passed.
        self._known_pending: dict[str, set[str]] = {}
        self._overdue: dict[str, set[str]] = {}

    # ---- watches

    def kinds(self, put: KeyQueue, learn: CreationReceiver, _absent: Set[str]) -> list[Kind]:
        known = self._cluster
        self._put = known.put = put
        known.learn = learn
        return [
            Kind("Job", JOBS, msgspec.json.Decoder(Job).decode, known.set_job, known.delete_job),
            pod_groups(known.set_group, known.delete_group),
            queues(known.set_queue, known.delete_queue),
            Kind(
                PODS_OF_JOBS,
                "/api/v1/pods",
                read_job_pod,
                known.set_pod,
                known.delete_pod,
                query={"labelSelector": JOB_NAME},
                read_event=read_job_pod_event,
            ),
            Kind(
                "PriorityClass",
                PRIORITY_CLASSES,
                msgspec.json.Decoder(PriorityClass).decode,
                known.set_priority,
                known.delete_priority,
            ),
            Kind(
                "Command",
                COMMANDS,
                msgspec.json.Decoder(Command).decode,
                known.set_command,
                known.delete_command,
                optional=True,
            ),
            *self._belongings.kinds(put, learn, ssh=self._ssh),
        ]

    def all_keys(self) -> Iterable[str]:
        self._cluster.begin()
        return [*self._cluster.jobs, *map(_target_key, self._cluster.commands.values())]

    def about(self, key: str) -> Reconciled | None:
        job = self._cluster.jobs.get(key)
        if job is None:
            return None
        of = job.metadata
        return Reconciled(ObjectReference("Job", of.namespace, of.name, of.uid, JOB_VERSION), of)

    # ---- what is done

    async def reconcile(self, key: str, wanted: Wanted) -> bool:
        while wanted():
            job = self._cluster.jobs.get(key)
            if job is None or job.metadata.deletion_timestamp is not None:
                return await self._leave(key, wanted)
            self._await_pending(key, job)
            if (command := self._next_command(key)) is not None:
                if not await self._obey(job, command, wanted):
                    return False
                continue
            happened = self._cluster.take(key) or self._due(key)
            if happened is not None:
                if not await self._answer(key, job, happened, wanted):
                    self._cluster.give_back(key, happened)
                    return False
                continue
            if not await self._carrying.sync(job, wanted, is_answered=not self._delayed.get(key)):
                return False
            now = self._cluster.jobs.get(key)
            if now is None or _is_settled(job, now):
                return now is None or await self._expire(key, now, wanted)
        return False

    async def _expire(self, key: str, job: Job, wanted: Wanted) -> bool:
        """Delete a finished Job when its TTL has passed; otherwise requeue it for that time."""
        seconds = job.spec.ttl_seconds_after_finished
        if seconds is None or job.status.state.phase not in FINISHED:
            return True
        left = seconds - self._age(job.status.state.last_transition_time)
        if left > 0:
            self._put(key, left)
            return True
        return await self._writes.delete_job(job, wanted)

    async def _leave(self, key: str, wanted: Wanted) -> bool:
        """Forget a Job that is gone or being deleted; the garbage collector deletes what it owns."""
        self._cluster.forget(key)
        self._carrying.forget(key)
        self._delayed.pop(key, None)
        self._forget_pending(key)
        while (command := self._next_command(key)) is not None:
            if not await self._drop(command, wanted):
                return False
        return True

    async def _answer(self, key: str, job: Job, happened: JobEvent, wanted: Wanted) -> bool:
        """Apply the policy for the event. Returns whether it is applied, or waits for its timeout."""
        found = answer(job, happened)
        if found.after and not happened.waited:
            self._delay(key, job, happened, found)
            return True
        return await self._act(job, found.action, happened, wanted)

    async def _act(self, job: Job, action: str, happened: JobEvent, wanted: Wanted) -> bool:
        kill = kill_for(job, action)
        if action == RESTART_PARTITION and not has_partitions(job, happened):
            kill = None
        if kill is not None and not await self._carrying.kill(job, kill, happened, wanted):
            return False
        if action != SYNC_JOB:
            self._carrying.say(job, "ExecuteAction", f"Start to execute action {action} ")
        return True

    # ---- commands

    def _next_command(self, key: str) -> Command | None:
        """Return the oldest command for this Job."""
        found = [each for each in self._cluster.commands.values() if _target_key(each) == key]
        return min(found, key=_given, default=None)

    async def _obey(self, job: Job, command: Command, wanted: Wanted) -> bool:
        """Execute the command, and then delete it, so that none is lost."""
        if command.metadata.uid not in self._obeyed:
            if not await self._act(job, command.action, JobEvent(action=command.action), wanted):
                return False
            self._obeyed.add(command.metadata.uid)
            self._carrying.say(
                job,
                "CommandIssued",
                f"Start to execute command {command.action}, and clean it up to make sure executed not more than once.",
            )
        return await self._drop(command, wanted)

    async def _drop(self, command: Command, wanted: Wanted) -> bool:
        metadata = command.metadata
        path = command_path(segment(metadata.namespace), segment(metadata.name))
        if not await self._writes.delete(path, metadata, wanted):
            return False
        self._cluster.delete_command(command)
        self._obeyed.discard(metadata.uid)
        return True

    # ---- timeouts

    def _delay(self, key: str, job: Job, happened: JobEvent, found: PolicyAction) -> None:
        due = self._timing.clock() + found.after
        self._delayed.setdefault(key, []).append((due, happened._replace(waited=True)))
        self._put(key, found.after)
        self._tell_delay(job, found)

    def _tell_delay(self, job: Job, found: PolicyAction) -> None:
        note = f"Execute action {found.action} after {format_duration(found.after)}"
        self._carrying.say(job, "ExecuteAction", note)

    def _due(self, key: str) -> JobEvent | None:
        """Return the next event whose timeout has passed.

        If there is none, the key is queued again for the first timeout: it may have been queued for an earlier reason,
        and the queue keeps only one time per key.
        """
        waiting, now = self._delayed.get(key, []), self._timing.clock()
        for index, (due, happened) in enumerate(waiting):
            if due <= now:
                del waiting[index]
                return happened
        if waiting:
            self._put(key, min(due for due, _ in waiting) - now)
        return None

    def _await_pending(self, key: str, job: Job) -> None:
        """Record the pods that are pending for longer than their limit, and requeue the key for the next one."""
        if job.status.state.phase not in ACTIVE:
            self._forget_pending(key)
            return
        limits = pending_limits(job)
        if not limits:
            return
        known, overdue = self._known_pending.setdefault(key, set()), self._overdue.setdefault(key, set())
        for name, pod in self._cluster.pods(job).items():
            metadata, task = pod.metadata, pod.annotation(TASK_SPEC)
            limit = limits.get(task)
            is_waiting = pod.status.phase == "Pending" and metadata.deletion_timestamp is None
            if limit is None or not is_waiting or pod.stands_by or metadata.uid in overdue:
                continue
            left = limit.after - self._age(metadata.creation_timestamp)
            if left > 0:
                if metadata.uid not in known:
                    known.add(metadata.uid)
                    self._tell_delay(job, limit)
                self._put(key, left)
                continue
            overdue.add(metadata.uid)
            happened = JobEvent(POD_PENDING, task, name, metadata.uid, version=pod.version, waited=True)
            self._cluster.give_back(key, happened)

    def _forget_pending(self, key: str) -> None:
        self._known_pending.pop(key, None)
        self._overdue.pop(key, None)

    def _age(self, since: str | None) -> float:
        """Return the seconds since a timestamp of the API server."""
        return (self._timing.now() - datetime.fromisoformat(since)).total_seconds() if since else 0.0


def _is_settled(job: Job, now: Job) -> bool:
    """Return whether no reconciliation need follow that of `job`: its phase is the same, or it has begun to run.

    Any other phase needs another one, and so does a Job whose tasks depend on each other, as some may wait in vain.
    """
    before, phase = job.status.state.phase, now.status.state.phase
    if phase == before:
        return True
    has_stages = any(task.depends_on is not None for task in tasks_of(now))
    return (before, phase) == (PENDING, RUNNING) and not has_stages and next_phase(now, now.status) == RUNNING


def _nothing(_key: str, _seconds: float | None = None, /) -> None: ...


def _target_key(command: Command) -> str:
    assert command.target is not None, "only those with a target are kept"
    return job_key(command.metadata.namespace, command.target.name)


def _given(command: Command) -> tuple[str, int, str]:
    """Return the sort key for the order of creation; versions of one store increase."""
    metadata = command.metadata
    version: Any = metadata.resource_version
    return metadata.creation_timestamp or "", int(version) if version.isdecimal() else 0, metadata.uid
