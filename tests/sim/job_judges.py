"""Judges Jobs by the API's own objects: at each commit (S35 to S37), and after the last fault (L19).

S35 no pod of a task is created, or begins in a reserved stage, before enough pods of the tasks that it depends on were
ready: at some moment since its Job was last restarted as a whole, or by the Job and the pods that the controller knew
when it decided. The watch of one kind may be far behind that of another, so it may use a combination that never
existed, such as a Job with fewer replicas and the current pods. Which versions it knew is taken from it, and their
content from the store. Pods of an earlier version of the Job are no longer ready, except those that have succeeded
since that restart: aborting and resuming a Job also increments its version, and keeps ended pods. They do not run
again, so tasks that depend on them would never begin if they did not count. A write that the server carries out late is
judged by the Job's version when it was sent: no later one could be known, and it cannot be withdrawn. A pod that is
created late in this way has run since the restart all the same, and counts when it has succeeded

S36 a pod that the controller creates is of a task and an index that its Job has or had, and has their name; there are
never two pods of one index

S37 the phase of a Job changes only as Volcano's does, its version and its retries never decrease, and it is not
restarted too often

L19 a Job rests in a phase that follows from its pods, and its status counts them; an ended Job runs nothing, has no
group and is deleted when its time is over; every pod that should exist does, except those of waiting tasks; its group
names the tasks that wait; no command is left
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_scheduler.controllers.jobs.controller import JobController
from embedded_kubernetes.store import Event
from embedded_kubernetes.times import parse

from . import gang_reading
from . import job_reading as read
from .api import PODS, Json, content, is_hostile, name_of, node_of, objects, uid_of
from .gangs import JOBS
from .judge import History, Judge
from .kinds import World
from .processes import GangController, Process

#: Phase of a Job -> the phases to which one write may change it (`pkg/controllers/job/state`).
_NEXT: Mapping[str, frozenset[str]] = {
    "": frozenset(("Pending", *read.UNDER_WAY)),
    # It ends if all remaining tasks wait in vain for others.
    "Pending": frozenset(("Running", "Completed", "Failed", *read.UNDER_WAY)),
    "Running": frozenset(("Pending", "Completed", "Failed", *read.UNDER_WAY)),
    "Restarting": frozenset(("Pending", "Failed", *read.UNDER_WAY)),
    "Aborting": frozenset(("Aborted", "Restarting")),
    "Aborted": frozenset(("Restarting",)),
    "Terminating": frozenset(("Terminated",)),
    "Completing": frozenset(("Completed",)),
    **dict.fromkeys(read.FINISHED, frozenset()),
}


@dataclass(slots=True)
class _Job:
    """One Job over time, by its UID."""

    now: Json
    #: Start time of each version, with that version; the last one is the current.
    versions: list[tuple[float, int]]
    #: Tasks -> the maximum number of pods that it ever requested.
    replicas: dict[str, int] = field(default_factory=dict)
    #: Its versions -> tasks that might have begun at some moment in that version.
    begun: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Its versions -> the version of its last restart as a whole.
    restarted: dict[int, int] = field(default_factory=dict)
    #: Its pods by name.
    pods: dict[str, Json] = field(default_factory=dict)
    #: The version that the Job had when a pod was created, by the UID of the pod.
    made_in: dict[str, int] = field(default_factory=dict)

    def comes_to(self, job: Json, time: float) -> None:
        """Record a change of the Job. After a restore of the store, a version may get a different history."""
        before, version = read.version(self.now), read.version(job)
        if version > before:
            self.begun[version].clear()
            self.restarted[version] = version if _is_restart(self.now, job) else self.restarted[before]
        elif version < before:
            self.begun[version] |= self.begun[before]
        if version != before:
            self.versions.append((time, version))
        self.now = job
        self.look()

    def version_at(self, time: float) -> int:
        """Return the Job's version at that time; the first one if it did not exist yet."""
        return next((each for since, each in reversed(self.versions) if since <= time), self.versions[0][1])

    def counting(self, pods: Iterable[Json], version: int) -> list[Json]:
        """Return the pods that count as ready in this version."""
        since = self.restarted[version]

        def counts(pod: Json) -> bool:
            if read.is_kept(pod):
                return max(read.version_of(pod), self.made_in.get(uid_of(pod), 0)) >= since
            return read.version_of(pod) >= version

        return list(filter(counts, pods))

    def look(self) -> None:
        of_now = self.counting(self.pods.values(), read.version(self.now))
        for task in self.now["spec"]["tasks"]:
            name = task["name"]
            self.replicas[name] = max(self.replicas.get(name, 0), task.get("replicas", 0))
            if read.may_begin(self.now, task, of_now):
                self.begun[read.version(self.now)].add(name)


def _is_restart(before: Json, now: Json) -> bool:
    """Return whether this change removes all pods of the Job, also those that have succeeded."""
    return read.phase_of(now) == "Restarting" and read.phase_of(before) not in ("Aborting", "Aborted")


class JobSafety(Judge):
    """Owner of the history of Jobs and of their pods."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._jobs: dict[str, _Job] = {}
        #: All versions of Jobs and pods.
        self._known = History(world, (JOBS, PODS)).known
        #: (Identity of a controller, UID of a Job) -> tasks that could begin by what the controller knew when it
        #: decided, and the newest version of the Job for which this held.
        self._by_what_it_knew: dict[tuple[str, str], dict[str, int]] = {}
        for table, changed in ((JOBS, self._job_changed), (PODS, self._pod_changed)):
            world.store.tables[table].subscribers.append(changed)

    def went_back(self) -> None:
        """Reset the pods, because the store went back. Processes may use what they knew until they start over."""
        for job in self._jobs.values():
            job.pods.clear()
        for table, note in ((JOBS, self._note_job), (PODS, self._note_pod)):
            for job_or_pod in objects(self.world.store, table):
                note(job_or_pod)

    def begun(self, uid: str) -> set[str]:
        """Return tasks of the Job that might have begun since it was last restarted as a whole, or resumed."""
        job = self._jobs[uid]
        return job.begun[read.version(job.now)]

    # -- decisions

    def watch_controllers(self, process: Process) -> None:
        """Record what the controllers use to decide about pods. Idempotent."""
        for controller in _controllers(process):
            carrying: Any = controller._carrying
            if "_sync_pods" not in vars(carrying):
                carrying._sync_pods = self._hearing(process, controller, carrying._sync_pods)

    def _hearing(self, process: Process, controller: JobController, sync_pods: Any) -> Any:
        async def synced(job: Any, wanted: Any, **more: Any) -> Any:
            pods = controller._cluster.pods(job).values()
            self._note_known(process, self._known(job), map(self._known, pods))
            return await sync_pods(job, wanted, **more)

        return synced

    def _note_known(self, process: Process, job: Json, pods: Iterable[Json]) -> None:
        version, uid = read.version(job), uid_of(job)
        if uid not in self._jobs:
            # It is hostile.
            return
        of_now = self._jobs[uid].counting(pods, version)
        turns = self._by_what_it_knew.setdefault((process.identity, uid), {})
        turns |= {task["name"]: version for task in job["spec"]["tasks"] if read.may_begin(job, task, of_now)}

    # -- commits

    def _job_changed(self, event: Event) -> None:
        if self.world.backups.restoring or is_hostile(event.record):
            return
        job = content(event.record)
        if event.type == "DELETED":
            return
        if event.previous is not None and event.previous.uid == event.record.uid:
            self._judge_status(content(event.previous), job)
        self._note_job(job)

    def _note_job(self, job: Json) -> None:
        uid, version, time = uid_of(job), read.version(job), self.world.loop.time()
        known = self._jobs.get(uid)
        if known is None:
            known = self._jobs[uid] = _Job(job, [(time, version)], restarted={version: version})
        known.comes_to(job, time)

    def _judge_status(self, before: Json, now: Json) -> None:
        self._look("S37")
        was, phase, name = read.phase_of(before), read.phase_of(now), name_of(now)
        if phase != was:
            self._reached(f"job {phase}")
            if phase not in _NEXT.get(was, frozenset()):
                self._violated("S37", f"{name} goes from {was or 'no phase'} to {phase}")
        for key in ("version", "retryCount"):
            old, new = (int((each.get("status") or {}).get(key, 0)) for each in (before, now))
            if new < old:
                self._violated("S37", f"{key} of {name} goes from {old} to {new}")
            # Resuming counts as a retry, after which the Job ends at once.
            is_resumed = was in ("Aborting", "Aborted")
            if key == "retryCount" and new > old and new > now["spec"].get("maxRetry", 3) and not is_resumed:
                self._violated("S37", f"{name} is tried again for the {new}th time")

    def _pod_changed(self, event: Event) -> None:
        if self.world.backups.restoring:
            return
        pod = content(event.record)
        job = self._jobs.get(read.owner(pod))
        if job is None:
            return
        if event.type == "DELETED":
            known = job.pods.get(event.record.name)
            if known is not None and uid_of(known) == event.record.uid:
                del job.pods[event.record.name]
            return
        begins = not read.stands_by(pod)
        stood_by = event.previous is not None and read.stands_by(content(event.previous))
        if event.type == "ADDED":
            self._judge_made(job, pod)
        if begins and (event.type == "ADDED" or stood_by):
            self._judge_begun(job, pod)
        elif event.type == "ADDED":
            self._reached("pod of a later stage stands by")
        self._note_pod(pod)

    def _note_pod(self, pod: Json) -> None:
        job = self._jobs.get(read.owner(pod))
        if job is not None:
            job.pods[name_of(pod)] = pod
            job.made_in.setdefault(uid_of(pod), read.version(job.now))
            job.look()

    def _judge_made(self, job: _Job, pod: Json) -> None:
        actor, may = self.world.safety.author()
        if not isinstance(actor, GangController) or not may or self._is_unaware(actor):
            return
        self._look("S36")
        task, index, name = read.task_of(pod), read.index_of(pod), name_of(pod)
        if name != f"{name_of(job.now)}-{task}-{index}":
            self._violated("S36", f"{name} is pod {index} of {task}")
        if int(index) >= job.replicas.get(task, 0):
            self._violated("S36", f"{name} is one of {job.replicas.get(task, 0)}")
        for other in job.pods.values():
            if (read.task_of(other), read.index_of(other)) == (task, index):
                self._violated("S36", f"{name} is there twice: {name_of(other)}")

    def _judge_begun(self, job: _Job, pod: Json) -> None:
        actor, may = self.world.safety.author()
        # A late write of a process that has died used the state of its time.
        if not isinstance(actor, GangController) or not may or self._is_unaware(actor):
            return
        task = read.task_of(pod)
        dependent = any(each["name"] == task and each.get("dependsOn") for each in job.now["spec"]["tasks"])
        if not dependent:
            return
        self._look("S35")
        self._reached("pod of a later stage begins")
        version = job.version_at(self.world.safety.sent_at)
        if version != read.version(job.now):
            self._reached("pod of a later stage begins after its job has another version")
        if task in job.begun[version]:
            return
        known = self._by_what_it_knew.get((actor.identity, read.owner(pod)), {})
        if known.get(task, -1) < version:
            self._violated("S35", f"{name_of(pod)} begins before its turn")
            return
        self._reached("pod of a later stage begins by what never was at a time")
        job.begun[version].add(task)


def _controllers(process: Process) -> Iterator[JobController]:
    program = process.program if isinstance(process, GangController) else None
    for controller in program._running if program is not None else ():
        for running in getattr(controller, "_running", ()):
            if isinstance(running.reconciler, JobController):
                yield running.reconciler


_COMMANDS = ("bus.volcano.sh", "commands")
#: Seconds until a rejected deletion was sent again.
_GRACE = 40.0


def unsettled(world: World) -> list[str]:
    """Return what has not settled yet."""
    assert world.gangs is not None, "Jobs have groups"
    jobs, pods, groups = world.gangs.jobs(), world.gangs.pods(), world.gangs.groups().values()
    queues = world.gangs.queues()
    found = [f"command {record.name} is left" for record in world.store.tables[_COMMANDS].scan("")]
    owners = {uid_of(job) for job in jobs}
    found += [
        f"{name_of(each)} is left of a job that is gone"
        for each in (*pods, *groups)
        if (owner := read.owner(each)) and owner not in owners
    ]
    for job in jobs:
        uid = uid_of(job)
        own = [pod for pod in pods if read.owner(pod) == uid]
        group = next((each for each in groups if read.owner(each) == uid), None)
        if job["spec"].get("queue", "default") in queues:
            found += [f"{name_of(job)} {problem}" for problem in _untrue(world, job, own, group)]
    return found


def _is_over(world: World, job: Json) -> bool:
    """Return whether an ended Job should be deleted by now, including some seconds for a rejected deletion."""
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    # A process whose clock was set back waits until its clock reaches that time.
    if seconds is None or world.plan.fired["clock_jump"]:
        return False
    ended = parse(job["status"]["state"]["lastTransitionTime"]).timestamp()
    return bool(ended + seconds + _GRACE < world.time_of_day().timestamp())


def may_stand_by(world: World) -> int:
    """Return how many pods may be assumed at rest: those of reserved stages while others of their Job run.

    If no pod of the Job runs, no capacity is reserved for its later stages.
    """
    if world.gangs is None:
        return 0
    pods = world.gangs.pods()
    here = [pod for pod in pods if node_of(pod) and not gang_reading.has_ended(pod)]
    run = {read.owner(pod) for pod in here if not read.stands_by(pod)} - {""}
    return sum(read.owner(pod) in run for pod in pods if read.stands_by(pod) and gang_reading.waits(pod))


def check_jobs(world: World) -> None:
    """Check all Jobs at rest."""
    world.safety.look("L19")
    for problem in unsettled(world)[:3]:
        world.safety.violated("L19", problem)


def _untrue(world: World, job: Json, pods: list[Json], group: Json | None) -> list[str]:
    status, spec, phase = job.get("status") or {}, job["spec"], read.phase_of(job)
    found = []
    counted = Counter(gang_reading.phase(pod) for pod in pods if not gang_reading.is_leaving(pod))
    for name in ("Pending", "Running", "Succeeded", "Failed"):
        said = status.get(name.lower(), 0)
        if said != counted[name]:
            found.append(f"says {said} {name.lower()}; {counted[name]} are")
    if not phase or phase in read.UNDER_WAY:
        found.append(f"is {phase or 'in no phase'}")
    conditions = status.get("conditions") or ()
    if not conditions or conditions[-1]["status"] != phase:
        found.append(f"is {phase}, and its last condition says {conditions[-1:]}")
    if phase in read.CLOSED:
        if group is not None:
            found.append(f"is {phase} and has a group")
        if counted["Pending"] or counted["Running"]:
            found.append(f"is {phase}, and {dict(counted)} of its pods are there")
        if phase in read.FINISHED and _is_over(world, job):
            found.append(f"is {phase}, and was to go {spec['ttlSecondsAfterFinished']} s later")
        return found
    if group is None:
        return [*found, f"is {phase} without a group"]
    if group["spec"].get("minMember", 0) != spec["minAvailable"]:
        found.append(f"needs {spec['minAvailable']}, and its group {group['spec'].get('minMember')}")
    begun = world.job_safety.begun(uid_of(job)) if world.job_safety is not None else set()
    named = gang_reading.annotation(group, gang_reading.WAITING_ROLES).split(",")
    found += [
        f"has no {task['name']} yet, and its group waits for them"
        for task in spec["tasks"]
        if task["name"] not in begun and read.minimum_of(task) and task["name"] not in named
    ]
    if gang_reading.phase(group) in ("", "Pending"):
        return found
    return [*found, *_lacking(job, pods, phase, counted)]


def _lacking(job: Json, pods: list[Json], phase: str, counted: Counter[str]) -> list[str]:
    """Return what is missing of a Job whose group is admitted."""
    name, spec, found = name_of(job), job["spec"], []
    there = {name_of(pod) for pod in pods}
    waiting = set()
    stand_by = Counter(read.task_of(pod) for pod in pods if read.stands_by(pod))
    for task in spec["tasks"]:
        wanted = {f"{name}-{task['name']}-{index}" for index in range(task.get("replicas", 0))}
        lacking, standing = wanted - there, stand_by[task["name"]]
        there -= wanted
        if not read.may_begin(job, task, pods):
            waiting |= {task["name"]} if lacking or standing else set()
            continue
        if lacking:
            found.append(f"lacks {sorted(lacking)}")
        if standing:
            found.append(f"has {standing} of {task['name']} stand by, whose turn it is")
    if there:
        found.append(f"has {sorted(there)} besides")
    reason = ((job.get("status") or {}).get("state") or {}).get("reason")
    if (reason == "TasksWaiting") != bool(waiting):
        found.append(f"says {reason!r} while {sorted(waiting)} wait")
    started = counted["Running"] + counted["Succeeded"] + counted["Failed"]
    if phase == "Pending" and started >= spec["minAvailable"]:
        found.append(f"is Pending, and {started} of {spec['minAvailable']} have started")
    total = sum(task.get("replicas", 0) for task in spec["tasks"])
    if phase == "Running" and total and counted["Succeeded"] + counted["Failed"] == total:
        found.append(f"is Running, and all {total} have ended")
    return found
