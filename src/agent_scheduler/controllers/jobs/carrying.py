"""Reconciles one Job: its pods, group and other objects, and its status.

Before pods of a Job are removed, those pods and the group are marked by an annotation, and then the status gets the new
phase. Any process deletes marked objects, so the removal is completed even if this process is killed in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from agent_scheduler.objects.batch import NOT_LET_IN, TASK_SPEC, PodGroup
from agent_scheduler.objects.job import JOB_VERSION, Job, JobSpec, JobStatus, TaskSpec, excess
from agent_scheduler.objects.job_pod import OUT_OF_SYNC, JobPod, read_job_pod
from agent_scheduler.objects.wire import Metadata
from apimachinery.quantity import QuantityError
from apimachinery.times import time_text
from kube_client.errors import FailureClass
from kube_client.recorder import NORMAL, WARNING, EventRecorder, ObjectReference
from kube_client.retry import Timing

from .belongings import Belongings
from .cluster import NEWS, JobsCluster, unschedulable
from .depends import REASON, WaitingTask, attainable_minimum, pods_in_vain, reserves, waiting_roles, waiting_tasks
from .group import group_for, renewal
from .identity import key_of
from .plugins.registry import changed, unknown
from .pods import (
    correction,
    desired,
    is_lost,
    partition_of,
    place_of,
    places_of,
    pod_for,
    pod_name,
    stand_by,
    with_index,
)
from .policies import JobEvent
from .states import CLOSED, ENDED, FAILED, FINISHED, PENDING, PHASES, RESTARTING, Kill, Scope, next_phase, tasks_of
from .status import controlled_by, counted, explained, found_again, moved, without_others, without_plugins
from .volumes import mounted
from .writes import JobWriter, Wanted

#: The reportingController of its events.
REPORTER: Final = "agent-scheduler-job"
#: The reason in the state of a Job that is too large.
TOO_LARGE: Final = "TooLarge"
#: The maximum number of pods that are created in one reconciliation; another one follows.
_PORTION: Final = 500


class Carrying:
    """Reconciles one Job at a time, from the state in `JobsCluster` only."""

    def __init__(
        self,
        cluster: JobsCluster,
        writes: JobWriter,
        belongings: Belongings,
        *,
        plugins: Collection[str],
        events: EventRecorder,
        timing: Timing,
    ) -> None:
        self._cluster = cluster
        self._writes = writes
        self._belongings = belongings
        self._plugins = plugins
        self._events = events
        self._timing = timing
        #: Key of a Job -> its spec and version for which its pods were last checked, and these pods by UID.
        self._correct: dict[str, tuple[tuple[JobSpec, int], dict[str, Metadata]]] = {}
        #: Key of a Job -> the state in which its group was as desired.
        self._kept: dict[str, tuple[object, ...]] = {}

    def say(self, job: Job, reason: str, note: str, *, warning: bool = False) -> None:
        metadata = job.metadata
        self._events.event(
            ObjectReference("Job", metadata.namespace, metadata.name, metadata.uid, JOB_VERSION),
            type=WARNING if warning else NORMAL,
            reason=reason,
            action=reason,
            note=note,
            controller=REPORTER,
        )

    # ---- taking pods away

    async def kill(self, job: Job, kill: Kill, happened: JobEvent, wanted: Wanted) -> bool:
        """Mark the pods to remove and write the new phase. Returns whether the status is written.

        Later calls of `sync` delete marked objects that are left.
        """
        pods = self._cluster.pods(job)
        targets = {
            name: pod
            for name, pod in _targets(job, kill.scope, happened, pods).items()
            if pod.metadata.deletion_timestamp is None and pod.status.phase not in kill.retain
        }
        if not await self._writes.mark_pods(targets.values(), wanted):
            return False
        group, whole = self._cluster.group(job), kill.scope is Scope.JOB
        if whole and group is not None and not await self._writes.mark_group(group, wanted):
            return False
        status = msgspec.structs.replace(
            job.status, version=job.status.version + whole, retry_count=job.status.retry_count + kill.restarts
        )
        status = counted(status, _after(pods, targets))
        if whole:
            status = without_plugins(job, status)
        if not await self._writes.status(job, moved(status, kill.to, self._now()), wanted):
            return False
        # Pods that are not deleted now are marked.
        await self._writes.delete_pods(targets.values(), wanted)
        if whole and group is not None:
            await self._writes.delete_group(group, wanted)
        return True

    async def _sweep(self, job: Job, wanted: Wanted) -> bool:
        """Delete the marked objects, and pods of an earlier version of the Job that were created late."""
        pods = [
            pod
            for pod in self._cluster.pods(job).values()
            if (pod.is_marked or self._cluster.is_late(job, pod)) and pod.metadata.deletion_timestamp is None
        ]
        group = self._cluster.group(job)
        if not await self._writes.delete_pods(pods, wanted):
            return False
        if group is not None and (group.metadata.annotations or {}).get(OUT_OF_SYNC) == "true":
            return await self._writes.delete_group(group, wanted)
        return True

    # ---- bringing everything up to date

    async def sync(self, job: Job, wanted: Wanted, *, is_answered: bool = True) -> bool:
        """Reconcile the Job. Returns whether it is in its desired state, as far as is known.

        `is_answered` is whether no event of the Job waits for its policy's timeout.
        """
        try:
            return await self._sync(job, wanted, is_answered=is_answered)
        except (QuantityError, msgspec.DecodeError) as error:
            # The Job cannot be reconciled until its spec changes.
            self.say(job, "PodGroupError", f"invalid pod template: {error}", warning=True)
            return True

    async def _sync(self, job: Job, wanted: Wanted, *, is_answered: bool) -> bool:
        if not await self._sweep(job, wanted):
            return False
        if job.status.state.phase in CLOSED:
            return await self._close(job, wanted)
        if job.spec.queue not in self._cluster.queues:
            self._writes.complain(job.metadata.name, f"queue {job.spec.queue!r} does not exist")
            return True
        if job.status.state.phase not in PHASES:
            status = found_again(job.status, self._cluster.pods(job).values())
            status = msgspec.structs.replace(status, min_available=job.spec.min_available)
            return await self._writes.status(job, moved(status, PENDING, self._now()), wanted)
        if problem := excess(job.spec):
            self.say(job, TOO_LARGE, f"{problem}; no pod is created for it", warning=True)
            state = msgspec.structs.replace(job.status.state, reason=TOO_LARGE, message=problem)
            return await self._writes.status(job, msgspec.structs.replace(job.status, state=state), wanted)
        if job.status.state.phase == RESTARTING and next_phase(job, job.status) == FAILED:
            # No pod is created for a Job that is not retried.
            return await self._writes.status(job, moved(job.status, FAILED, self._now()), wanted)
        if not await self._keep_belongings(job, wanted) or not await self._keep_group(job, wanted):
            return False
        group = self._cluster.group(job)
        if group is not None:
            self._say_unschedulable(job, group)
        if group is None or group.status.phase in NOT_LET_IN:
            return await self._write_status(job, {}, wanted, without_others(job, job.status), let_in=False)
        if not await self._correct_pods(job, wanted):
            return False
        return await self._sync_pods(job, wanted, is_answered=is_answered)

    async def _sync_pods(self, job: Job, wanted: Wanted, *, is_answered: bool) -> bool:
        pods = self._cluster.pods(job)
        wish, waiting = places_of(job, pods), waiting_tasks(job, pods)
        standing_by = [pod for pod in pods.values() if pod.stands_by and pod.metadata.deletion_timestamp is None]
        in_vain = {each.task for each in waiting.values() if each.in_vain}
        begin = [pod for pod in standing_by if pod.annotation(TASK_SPEC) not in waiting]
        held_back = in_vain if reserves(job) else waiting.keys()
        missing = (
            (task, index) for name, task, index in desired(job) if name not in pods and task.name not in held_back
        )
        make = list(islice(missing, _PORTION))
        if len(make) == _PORTION:
            self._cluster.put(key_of(job))
        made = await self._writes.begin_pods(begin, wanted)
        made = await self._make_pods(job, make, waiting, wanted) and made
        surplus = [pod for name, pod in pods.items() if name not in wish and pod.metadata.deletion_timestamp is None]
        # Pods whose turn never comes keep no room; their removal is no eviction for policies.
        leave = [pod for pod in standing_by if pod.annotation(TASK_SPEC) in in_vain]
        marked = await self._writes.mark_pods(leave, wanted)
        deleted = await self._writes.delete_pods(surplus + leave if marked else surplus, wanted) and marked
        if make and made and deleted and not waiting:
            # The counts change again once the pods run, so these need not be written.
            self._cluster.put(key_of(job), NEWS)
            return True
        status = msgspec.structs.replace(job.status, controlled_resources=controlled_by(job) or None)
        # A pending policy action may recreate the failed pods.
        never = pods_in_vain(job, pods, waiting) if is_answered else 0
        done = await self._write_status(job, waiting, wanted, status, in_vain=never)
        return done and made and deleted

    async def _make_pods(
        self, job: Job, missing: Collection[tuple[TaskSpec, int]], waiting: Collection[str], wanted: Wanted
    ) -> bool:
        """Create the missing pods; those of `waiting` tasks get the stage gate."""
        places = list(missing)
        failed = await self._writes.make_pods(job.metadata.namespace, bodies(job, places, waiting), wanted)
        problems, done = [], True
        for index, made in failed.items():
            if made.found and await self._take_back(job, *places[index], made.found, wanted):
                # The watch delivers it.
                continue
            done = False
            if made.failure is not None and made.failure.kind is not FailureClass.GONE:
                problems.append(f"failed to create pod {pod_name(job, *places[index])}, err: {made.failure}")
        if problems:
            self.say(job, "FailedCreate", f"Error creating pods: [{', '.join(sorted(problems))}]", warning=True)
        return done

    async def _take_back(self, job: Job, task: TaskSpec, index: int, found: bytes, wanted: Wanted) -> bool:
        """Restore the assignment of an existing pod. Returns whether it was created for the Job."""
        pod = read_job_pod(found)
        if not is_lost(job, task, pod):
            return False
        patch = correction(job, task, index, pod)
        return patch is None or await self._writes.correct_pod(pod, patch, wanted)

    async def _correct_pods(self, job: Job, wanted: Wanted) -> bool:
        """Restore the assignment of existing pods; each is checked again after a change of it or of the Job."""
        pods, known, facts = self._cluster.pods(job), self._correct.get(key_of(job)), (job.spec, job.status.version)
        before = known[1] if known is not None and known[0] == facts else {}
        seen = {pod.metadata.uid: pod.metadata for pod in pods.values()}
        self._correct[key_of(job)] = facts, seen
        again = {
            name: pod
            for name, pod in pods.items()
            if (last := before.get(pod.metadata.uid)) is None or not _is_assigned_as(pod.metadata, last)
        }
        wish = places_of(job, again)
        for name, pod in again.items():
            metadata = pod.metadata
            if name not in wish:
                continue
            patch = correction(job, *wish[name], pod) if metadata.deletion_timestamp is None else None
            if patch is not None and not await self._writes.correct_pod(pod, patch, wanted):
                del seen[metadata.uid]
                return False
        return True

    def forget(self, key: str) -> None:
        """Forget the Job of this key, which is gone or being deleted."""
        self._correct.pop(key, None)
        self._kept.pop(key, None)
        self._belongings.forget(key)

    async def _close(self, job: Job, wanted: Wanted) -> bool:
        """Remove the living pods, the group and the other objects of a Job that has ended or is to end."""
        alive = [
            pod
            for pod in self._cluster.pods(job).values()
            if pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED
        ]
        group = self._cluster.group(job)
        if not await self._writes.mark_pods(alive, wanted) or not await self._writes.delete_pods(alive, wanted):
            return False
        if group is not None and not await self._writes.delete_group(group, wanted):
            return False
        if not await self._belongings.remove(job, wanted):
            return False
        return await self._write_status(job, {}, wanted)

    async def _keep_belongings(self, job: Job, wanted: Wanted) -> bool:
        """Ensure the objects that its pods need besides the group; no pod is created without them."""
        if names := unknown(job, self._plugins):
            self.say(job, "PluginError", f"unable to find job plugin: {', '.join(names)}", warning=True)
            return False
        if not await self._belongings.keep(job, wanted):
            return False
        problem = await self._belongings.claim(job, wanted)
        if problem:
            self.say(job, "PVCError", f"Failed to create PVC, err: {problem}", warning=True)
        return problem == ""

    async def _keep_group(self, job: Job, wanted: Wanted) -> bool:
        group, pods = self._cluster.group(job), self._cluster.pods(job)
        waiting, attainable = waiting_roles(job, group, pods), attainable_minimum(job, group, pods)
        key, state = key_of(job), _group_state(job, group, self._cluster.priority_changes, waiting, attainable)
        if group is not None and self._kept.get(key) == state:
            return True
        body = group_for(job, self._cluster.priorities, waiting, attainable)
        if group is None:
            return await self._writes.make_group(body, wanted)
        patch = renewal(group, body)
        if patch is not None:
            return await self._writes.renew_group(group, patch, wanted)
        self._kept[key] = state
        return True

    async def _write_status(
        self,
        job: Job,
        waiting: Mapping[str, WaitingTask],
        wanted: Wanted,
        status: JobStatus | None = None,
        *,
        let_in: bool = True,
        in_vain: int = 0,
    ) -> bool:
        status = counted(status or job.status, self._cluster.pods(job).values())
        status = msgspec.structs.replace(status, min_available=job.spec.min_available)
        if status.state.phase in CLOSED:
            status = without_plugins(job, status)
        status = moved(status, next_phase(job, status, let_in=let_in, in_vain=in_vain), self._now())
        if not await self._writes.status(job, explained(status, waiting), wanted):
            return False
        if in_vain and status.state.phase in FINISHED:
            self.say(job, REASON, "; ".join(map(str, waiting.values())), warning=True)
        return True

    def _say_unschedulable(self, job: Job, group: PodGroup) -> None:
        why = unschedulable(group)
        if why is not None:
            place = f"{job.metadata.namespace}:{job.metadata.name}"
            note = f"PodGroup {place} unschedulable, reason: {why}"
            self.say(job, "PodGroupPending", note, warning=True)

    def _now(self) -> str:
        return time_text(self._timing.now())


def bodies(
    job: Job, places: Iterable[tuple[TaskSpec, int]], waiting: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and body of pods to create; those of `waiting` tasks have the stage gate.

    Without plugins, pods of a task have the same spec, which is encoded once.
    """
    of: TaskSpec | None = None
    first: dict[str, Any] = {}
    for task, index in places:
        if task is of:
            body = with_index(first, job, task, index)
        else:
            body = changed(job, task, index, mounted(job, pod_for(job, task, index)))
            if task.name in waiting:
                stand_by(body)
            if not job.spec.plugins:
                body["spec"] = msgspec.Raw(msgspec.json.encode(body["spec"]))
                of, first = task, body
        yield body["metadata"]["name"], body


def _is_assigned_as(metadata: Metadata, last: Metadata) -> bool:
    """Return whether a version of a pod has the assignment to its Job, and the other marks, of an earlier version."""
    return metadata.resource_version == last.resource_version or (
        metadata.labels == last.labels
        and metadata.annotations == last.annotations
        and metadata.owner_references == last.owner_references
        and metadata.deletion_timestamp == last.deletion_timestamp
    )


def _group_state(job: Job, group: PodGroup | None, *others: object) -> tuple[object, ...]:
    """Return the state on which the desired group and its difference from `group` depend."""
    of, own = job.metadata, None if group is None else group.metadata
    there = None if own is None or group is None else (own.uid, group.spec, own.annotations, own.owner_references)
    return of.uid, job.spec, of.annotations, of.labels, there, *others


def _targets(job: Job, scope: Scope, happened: JobEvent, pods: Mapping[str, JobPod]) -> dict[str, JobPod]:
    """Return the pods to which an action applies."""
    if scope is Scope.JOB:
        return dict(pods)
    if scope is Scope.POD:
        return {name: pod for name, pod in pods.items() if name == happened.pod}
    of_task = {name: pod for name, pod in pods.items() if pod.annotation(TASK_SPEC) == happened.task}
    if scope is Scope.TASK:
        return of_task
    place, wish = place_of(job, happened.pod), places_of(job, of_task)
    if place is None:
        return {}
    part = partition_of(*place)
    return {name: pod for name, pod in of_task.items() if name in wish and partition_of(*wish[name]) == part}


def has_partitions(job: Job, happened: JobEvent) -> bool:
    return any(task.name == happened.task and task.partition_policy is not None for task in tasks_of(job))


def _after(pods: Mapping[str, JobPod], targets: Mapping[str, Any]) -> list[JobPod]:
    """Return the pods of a Job after the targets are marked as being deleted."""
    found = []
    for name, pod in pods.items():
        if name in targets:
            metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="now")
            pod = msgspec.structs.replace(pod, metadata=metadata)
        found.append(pod)
    return found
