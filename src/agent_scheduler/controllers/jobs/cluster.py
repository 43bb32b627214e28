"""The watched state of Jobs, and the events of each that have not been handled yet.

A change of a pod or a group may be an event to which policies apply (`policies`). While this process leads, it records
these in order. Earlier ones are reconstructed from what they left: a failed pod, or a completed task, of the Job's
current version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from agent_scheduler.cluster.groups import POD_GROUP
from agent_scheduler.controllers.reconciling import CreationReceiver, KeyQueue
from agent_scheduler.objects.batch import NOT_LET_IN, TASK_SPEC, Command, PodGroup, PriorityClass, Queue
from agent_scheduler.objects.job import JOB_VERSION, Job, TaskSpec
from agent_scheduler.objects.job_pod import JOB_NAME, VERSION, JobPod
from agent_scheduler.objects.wire import Metadata
from kube_client.watch_events import is_older

from .identity import is_known, job_key, key_of, owner_key, owner_of
from .pods import group_name_of, place_of, places_of
from .policies import OF_THE_WHOLE, POD_EVICTED, POD_FAILED, TASK_COMPLETED, TASK_FAILED, UNKNOWN, JobEvent, answer
from .states import ACTIVE, ENDED, tasks_of

#: The name of the watch of these pods.
PODS_OF_JOBS: Final = "Pod.volcano.sh/job-name"
#: The limit of container restarts of a task that sets none.
_MAX_RESTARTS: Final = 3

#: The length of the end of a group's name: a hyphen and a UID.
_UID_LENGTH: Final = 37

#: Seconds between a change of counts alone and the reconciliation, which combines the changes of that time.
COUNTING: Final = 0.25
#: The same for a created pod: a scheduler with room for it takes about a second, after which its phase changes.
NEWS: Final = 1.5


class JobsCluster:
    """Owner of the last observed or written Jobs, pods, groups, commands, queues and priority classes.

    It also owns the unhandled events of each Job.
    """

    def __init__(self) -> None:
        self.put: KeyQueue = lambda _key, _seconds=None, /: None
        self.learn: CreationReceiver = lambda _kind, _made, /: True
        self.jobs: dict[str, Job] = {}
        #: Pods by UID of the Job and by name. An earlier Job of the same name may have left pods.
        self._pods: dict[str, dict[str, JobPod]] = {}
        #: Groups by namespace and name: those of Jobs, and those without a controller, which may have been a Job's.
        self._groups: dict[str, PodGroup] = {}
        self.commands: dict[str, Command] = {}
        self.queues: dict[str, Queue] = {}
        self.priorities: dict[str, int] = {}
        #: The number of changes of `priorities`.
        self.priority_changes = 0
        self._happened: dict[str, deque[JobEvent]] = {}
        #: UIDs of pods that this process has deleted, whose deletion the watch may not have delivered yet.
        self._leaving: set[str] = set()
        #: UIDs of existing pods that have succeeded or failed. An action on the whole Job may keep these.
        self._ended: set[str] = set()
        self._noting = False

    # ---- questions

    def pods(self, job: Job) -> dict[str, JobPod]:
        """Return the pods by name that this Job controls, without those of an earlier Job of its name."""
        return dict(self._pods.get(job.metadata.uid, {}))

    def group(self, job: Job) -> PodGroup | None:
        return self._groups.get(job_key(job.metadata.namespace, group_name_of(job)))

    def take(self, key: str) -> JobEvent | None:
        """Return the next unhandled event."""
        waiting = self._happened.get(key)
        if not waiting:
            self._happened.pop(key, None)
            return None
        return waiting.popleft()

    def give_back(self, key: str, happened: JobEvent) -> None:
        """Put back an event that was not handled."""
        self._happened.setdefault(key, deque()).appendleft(happened)

    def forget(self, key: str) -> None:
        self._happened.pop(key, None)

    # ---- Jobs

    def set_job(self, found: Job) -> None:
        key = key_of(found)
        known = self.jobs.get(key)
        if known is not None and is_known(found.metadata, known.metadata):
            return
        self.jobs[key] = found
        self.put(key)

    def learn_job(self, written: Job) -> None:
        """Apply a version of the Job from a response; no-op if the watch has delivered a newer one."""
        key = key_of(written)
        known = self.jobs.get(key)
        if known is None or known.metadata.uid != written.metadata.uid:
            return
        if not is_known(written.metadata, known.metadata):
            self.jobs[key] = written

    def delete_job(self, gone: Job) -> None:
        key = key_of(gone)
        known = self.jobs.get(key)
        if known is not None and known.metadata.uid == gone.metadata.uid:
            del self.jobs[key]
            self._happened.pop(key, None)

    # ---- pods

    def set_pod(self, found: JobPod) -> None:
        metadata = found.metadata
        owner = owner_of(metadata)
        if owner is None:
            self._disowned(metadata)
            return
        key = job_key(metadata.namespace, owner.name)
        pods = self._pods.setdefault(owner.uid, {})
        known = pods.get(metadata.name)
        if known is not None and is_known(metadata, known.metadata):
            return
        if metadata.uid in self._leaving:
            found = _leaving(found)
        if found.status.phase in ENDED:
            self._ended.add(metadata.uid)
        pods[metadata.name] = found
        if known is not None and _is_alike(known, found):
            # The Job does not depend on the other fields.
            return
        is_noted = self._noting and known is not None and self._note_change(key, known, found)
        if is_noted or found.metadata.deletion_timestamp is not None or self._has_stages(key):
            self.put(key)
        else:
            # Its phase is a count in the Job's status, and rarely changes alone.
            self.put(key, NEWS if known is None else COUNTING)

    def _disowned(self, metadata: Metadata) -> None:
        """Handle a pod with a Job's label and no controller. If the Job controlled it, the Job is reconciled."""
        key = job_key(metadata.namespace, (metadata.labels or {}).get(JOB_NAME, ""))
        job = self.jobs.get(key)
        pods = self._pods.get(job.metadata.uid, {}) if job is not None else {}
        if metadata.name in pods and pods[metadata.name].metadata.uid == metadata.uid:
            del pods[metadata.name]
            self.put(key)

    def delete_pod(self, gone: JobPod) -> None:
        metadata = gone.metadata
        self._leaving.discard(metadata.uid)
        self._ended.discard(metadata.uid)
        owner = owner_of(metadata)
        if owner is None:
            return
        key = job_key(metadata.namespace, owner.name)
        pods = self._pods.get(owner.uid, {})
        known = pods.get(metadata.name)
        if known is not None and known.metadata.uid == metadata.uid:
            del pods[metadata.name]
            if not pods:
                del self._pods[owner.uid]
            if self._noting and known.metadata.deletion_timestamp is None and self._is_wanted(key, known):
                self._note(key, _of_pod(POD_EVICTED, known))
        self.put(key)

    def learn_pod(self, made: JobPod) -> None:
        """Apply a pod from a response; no-op if the watch has delivered a newer version."""
        if not self.learn(PODS_OF_JOBS, made):
            return
        owner = owner_of(made.metadata)
        assert owner is not None, "it was created for a Job"
        pods = self._pods.setdefault(owner.uid, {})
        known = pods.get(made.metadata.name)
        if known is None or (
            known.metadata.uid == made.metadata.uid
            and is_older(known.metadata.resource_version, made.metadata.resource_version)
        ):
            pods[made.metadata.name] = made

    def pod_leaves(self, pod: JobPod) -> None:
        """Record that the API server has accepted the pod's deletion."""
        owner, name = owner_of(pod.metadata), pod.metadata.name
        pods = self._pods.get(owner.uid, {}) if owner is not None else {}
        known = pods.get(name)
        if known is not None and known.metadata.uid == pod.metadata.uid:
            self._leaving.add(pod.metadata.uid)
            pods[name] = _leaving(known)

    def is_late(self, job: Job, pod: JobPod) -> bool:
        """Return whether the pod was created for an earlier version of the Job, and has not ended.

        An action on the whole Job removes such pods. One that is left was created by a request that the API server
        carried out after the action. A pod that such an action kept, because it had ended, is never late.
        """
        if not job.status.version:
            return False
        is_earlier = pod.version < job.status.version and pod.annotation(VERSION) == str(pod.version)
        return is_earlier and pod.metadata.uid not in self._ended

    def _has_stages(self, key: str) -> bool:
        """Return whether pods of the Job may be created once others run."""
        job = self.jobs.get(key)
        return job is not None and any(task.depends_on is not None for task in tasks_of(job))

    def _is_wanted(self, key: str, pod: JobPod) -> bool:
        """Return whether the Job should have a pod of this name; the deletion of other pods is no event."""
        job = self.jobs.get(key)
        return job is not None and place_of(job, pod.metadata.name) is not None

    def _note_change(self, key: str, before: JobPod, now: JobPod) -> bool:
        """Record the event of a pod's change. Returns whether there is one."""
        if before.metadata.uid != now.metadata.uid:
            return False
        phase, job = now.status.phase, self.jobs.get(key)
        changed = phase != before.status.phase
        event = ""
        if now.metadata.deletion_timestamp is not None:
            is_new = before.metadata.deletion_timestamp is None and not now.is_marked
            event = POD_EVICTED if is_new and self._is_wanted(key, now) else ""
        elif phase == "Failed":
            event = POD_FAILED if changed else ""
        elif job is None:
            pass
        elif phase == "Succeeded" and changed:
            event = TASK_COMPLETED if self._is_completed(job, _task(job, now)) else ""
        elif phase in ("Pending", "Running") and _restarts(now):
            event = TASK_FAILED if self._is_failed(job, _task(job, now)) else ""
        if event:
            self._note(key, _of_pod(event, now))
        return event != ""

    def _is_completed(self, job: Job, task: TaskSpec | None) -> bool:
        if task is None:
            return False
        ended = [each for each in self.pods(job).values() if each.status.phase == "Succeeded"]
        # This runs at the end of each pod, and usually too few pods of all tasks have ended.
        if not 0 < task.replicas <= len(ended):
            return False
        return sum(each.annotation(TASK_SPEC) == task.name for each in ended) >= task.replicas

    def _is_failed(self, job: Job, task: TaskSpec | None) -> bool:
        """Return whether its containers reached the restart limit; -1 means unlimited."""
        if task is None:
            return False
        most = task.max_retry or _MAX_RESTARTS
        restarts = sum(_restarts(pod) for pod in self._of_task(job, task) if pod.status.phase in ("Pending", "Running"))
        return 0 < most <= restarts

    def _of_task(self, job: Job, task: TaskSpec) -> list[JobPod]:
        return [each for each in self.pods(job).values() if each.annotation(TASK_SPEC) == task.name]

    # ---- groups

    def set_group(self, found: PodGroup) -> None:
        metadata = found.metadata
        key, place = _job_of_group(metadata), job_key(metadata.namespace, metadata.name)
        if not key:
            return
        known = self._groups.get(place)
        if known is not None and (
            known.metadata.resource_version == metadata.resource_version
            or is_older(metadata.resource_version, known.metadata.resource_version)
        ):
            return
        self._groups[place] = found
        before = None if known is None else known.status.phase
        is_alike = known is not None and _is_group_alike(known, found)
        is_noted = self._noting and before is not None and found.status.phase == UNKNOWN != before
        if is_noted and metadata.deletion_timestamp is None:
            self._note(key, JobEvent(UNKNOWN))
        if is_noted or before is None or (before in NOT_LET_IN) != (found.status.phase in NOT_LET_IN):
            self.put(key)
        elif not is_alike:
            # The other fields only affect the Job's events.
            self.put(key, COUNTING)

    def learn_group(self, made: PodGroup) -> None:
        """Apply a group from a response; no-op if the watch has delivered a newer version."""
        if not self.learn(POD_GROUP, made):
            return
        place = job_key(made.metadata.namespace, made.metadata.name)
        known = self._groups.get(place)
        if known is None or is_older(known.metadata.resource_version, made.metadata.resource_version):
            self._groups[place] = made

    def delete_group(self, gone: PodGroup) -> None:
        if self.group_leaves(gone):
            self.put(_job_of_group(gone.metadata))

    def group_leaves(self, gone: PodGroup) -> bool:
        """Record that the group is deleted or about to be. Returns whether that was unknown."""
        metadata = gone.metadata
        place = job_key(metadata.namespace, metadata.name)
        known = self._groups.get(place)
        if known is None or known.metadata.uid != metadata.uid:
            return False
        del self._groups[place]
        return True

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
        self.priority_changes += 1

    def delete_priority(self, gone: PriorityClass) -> None:
        self.priorities.pop(gone.metadata.name, None)
        self.priority_changes += 1

    # ---- what has happened

    def begin(self) -> None:
        """Record events from now on, and reconstruct earlier events of each Job."""
        self._noting = True
        self._happened.clear()
        for key, job in self.jobs.items():
            for each in self._left_of(job):
                # An action on the whole Job changes its phase or version. Any other removes the pods that have ended;
                # for events of other pods, nothing reveals whether they were handled.
                pod = self.pods(job).get(each.pod)
                is_there = pod is not None and pod.metadata.deletion_timestamp is None and not pod.is_marked
                if is_there or answer(job, each).action in OF_THE_WHOLE:
                    self._note(key, each)

    def _left_of(self, job: Job) -> Iterable[JobEvent]:
        if job.status.state.phase not in ACTIVE:
            return
        pods, places = self.pods(job).values(), places_of(job, self.pods(job))
        yield from (_of_pod(POD_FAILED, each) for each in pods if each.status.phase == "Failed")
        for each in pods:
            is_leaving = each.metadata.deletion_timestamp is not None and not each.is_marked
            if is_leaving and each.metadata.name in places:
                yield _of_pod(POD_EVICTED, each)
        of_tasks: dict[str, list[JobPod]] = {}
        for each in pods:
            of_tasks.setdefault(each.annotation(TASK_SPEC), []).append(each)
        for task in tasks_of(job):
            of_task = of_tasks.get(task.name, [])
            ended = sum(each.status.phase == "Succeeded" for each in of_task)
            if 0 < task.replicas <= ended:
                yield _of_pod(TASK_COMPLETED, of_task[-1])
        group = self.group(job)
        if group is not None and group.status.phase == UNKNOWN:
            yield JobEvent(UNKNOWN)

    def _note(self, key: str, happened: JobEvent) -> None:
        self._happened.setdefault(key, deque()).append(happened)


def _job_of_group(metadata: Metadata) -> str:
    """Return the key of a group's Job: by its owner, or by its name if it has no controller; empty for other groups."""
    if any(each.controller for each in metadata.owner_references or ()):
        return owner_key(metadata)
    return job_key(metadata.namespace, metadata.name[:-_UID_LENGTH])


def _is_alike(before: JobPod, now: JobPod) -> bool:
    """Return whether two versions of a pod differ only in fields that are not read, such as its node."""
    old, new = before.metadata, now.metadata
    return (
        before.status == now.status
        and old.uid == new.uid
        and before.spec == now.spec
        and old.deletion_timestamp == new.deletion_timestamp
        and (old.labels, old.annotations, old.owner_references) == (new.labels, new.annotations, new.owner_references)
    )


def _is_group_alike(before: PodGroup, now: PodGroup) -> bool:
    """Return whether two versions of a group differ only in a status that has nothing to report about the Job."""
    old, new = before.metadata, now.metadata
    return (
        unschedulable(now) is None
        and before.spec == now.spec
        and (old.uid, old.deletion_timestamp) == (new.uid, new.deletion_timestamp)
        and (old.labels, old.annotations, old.owner_references) == (new.labels, new.annotations, new.owner_references)
    )


def unschedulable(group: PodGroup) -> str | None:
    """Return why the group cannot be scheduled, by its last condition; None if that says something else."""
    conditions = [each for each in group.status.conditions or () if each.status != "False"]
    return conditions[-1].message if conditions and conditions[-1].type == "Unschedulable" else None


def _leaving(pod: JobPod) -> JobPod:
    """Return the pod as the API server reports it while it is being deleted."""
    metadata = pod.metadata
    stamp = metadata.deletion_timestamp or metadata.creation_timestamp or "now"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(metadata, deletion_timestamp=stamp))


def _task(job: Job, pod: JobPod) -> TaskSpec | None:
    name = pod.annotation(TASK_SPEC)
    return next((task for task in tasks_of(job) if task.name == name), None)


def _restarts(pod: JobPod) -> int:
    """Return the restarts of all containers of the pod."""
    status = pod.status
    reports = (status.init_container_statuses or ()) + (status.container_statuses or ())
    return sum([each.restart_count for each in reports])


def _of_pod(event: str, pod: JobPod) -> JobEvent:
    first = next(iter(pod.status.container_statuses or ()), None)
    ended = first.state.terminated if first is not None else None
    code = ended.exit_code if ended is not None and event == POD_FAILED else 0
    metadata = pod.metadata
    return JobEvent(event, pod.annotation(TASK_SPEC), metadata.name, metadata.uid, code, pod.version)
