"""What must become true of Jobs once the faults have ended.

L19 a Job rests in a phase that follows from its pods, and its status counts them; one that has ended runs nothing, has
    no group and goes when its time is over; every pod that should be there is, but for those of tasks that wait; its
    group names the tasks whose turn has not come; no command is left
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from embedded_kubernetes.times import parse

from . import gang_reading, job_reading

if TYPE_CHECKING:
    from .world import World

Json = dict[str, Any]

_COMMANDS = ("bus.volcano.sh", "commands")
#: Seconds in which a deletion is sent again that was refused.
_GRACE = 40.0
_COUNTED = {"Pending": "pending", "Running": "running", "Succeeded": "succeeded", "Failed": "failed"}


def unsettled(world: World) -> list[str]:
    """What is not so yet."""
    assert world.gangs is not None, "Jobs have groups"
    jobs, pods, groups = world.gangs.jobs(), world.gangs.pods(), world.gangs.groups().values()
    queues = world.gangs.queues()
    found = [f"command {record.name} is left" for record in world.store.tables[_COMMANDS].scan("")]
    owners = {job["metadata"]["uid"] for job in jobs}
    found += [
        f"{each['metadata']['name']} is left of a job that is gone"
        for each in (*pods, *groups)
        if (owner := job_reading.owner(each)) and owner not in owners
    ]
    for job in jobs:
        uid = job["metadata"]["uid"]
        own = [pod for pod in pods if job_reading.owner(pod) == uid]
        group = next((each for each in groups if job_reading.owner(each) == uid), None)
        if job["spec"].get("queue", "default") in queues:
            found += [f"{job['metadata']['name']} {problem}" for problem in _untrue(world, job, own, group)]
    return found


def _is_over(world: World, job: Json) -> bool:
    """Whether a Job that has ended should be gone by now, some seconds for a refused deletion included."""
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    # A process whose clock was set back waits until that says so.
    if seconds is None or world.plan.fired["clock_jump"]:
        return False
    ended = parse(job["status"]["state"]["lastTransitionTime"]).timestamp()
    return bool(ended + seconds + _GRACE < world.time_of_day().timestamp())


def may_stand_by(world: World) -> int:
    """How many pods may have room and not be bound though all is at rest: those that stand by while others of their Job
    run before them, for as long as these do. Where nobody of the Job runs, nobody keeps room for later either."""
    if world.gangs is None:
        return 0
    pods = world.gangs.pods()
    run = {
        job_reading.owner(pod)
        for pod in pods
        if pod["spec"].get("nodeName") and not gang_reading.has_ended(pod) and not job_reading.stands_by(pod)
    }
    return sum(
        job_reading.owner(pod) in run - {""}
        for pod in pods
        if job_reading.stands_by(pod) and gang_reading.waits(pod)
    )


def check_jobs(world: World) -> None:
    """At rest."""
    world.safety.checked["L19"] += 1
    for problem in unsettled(world)[:3]:
        world.safety.violated("L19", problem)


def _untrue(world: World, job: Json, pods: list[Json], group: Json | None) -> list[str]:
    status, spec, phase = job.get("status") or {}, job["spec"], job_reading.phase_of(job)
    found = []
    counted = Counter(gang_reading.phase(pod) for pod in pods if not gang_reading.is_leaving(pod))
    for name, key in _COUNTED.items():
        if status.get(key, 0) != counted[name]:
            found.append(f"says {status.get(key, 0)} {key}; {counted[name]} are")
    if not phase or phase in job_reading.UNDER_WAY:
        found.append(f"is {phase or 'in no phase'}")
    conditions = status.get("conditions") or ()
    if not conditions or conditions[-1]["status"] != phase:
        found.append(f"is {phase}, and its last condition says {conditions[-1:]}")
    if phase in job_reading.CLOSED:
        if group is not None:
            found.append(f"is {phase} and has a group")
        if counted["Pending"] or counted["Running"]:
            found.append(f"is {phase}, and {dict(counted)} of its pods are there")
        if phase in job_reading.FINISHED and _is_over(world, job):
            found.append(f"is {phase}, and was to go {spec['ttlSecondsAfterFinished']} s later")
        return found
    if group is None:
        return [*found, f"is {phase} without a group"]
    if group["spec"].get("minMember", 0) != spec["minAvailable"]:
        found.append(f"needs {spec['minAvailable']}, and its group {group['spec'].get('minMember')}")
    begun = world.job_safety.begun(job["metadata"]["uid"]) if world.job_safety is not None else set()
    named = gang_reading.annotation(group, gang_reading.WAITING_ROLES).split(",")
    found += [
        f"has no {task['name']} yet, and its group waits for them"
        for task in spec["tasks"]
        if task["name"] not in begun and job_reading.minimum_of(task) and task["name"] not in named
    ]
    if gang_reading.phase(group) in ("", "Pending"):
        return found
    return [*found, *_lacking(job, pods, phase, counted)]


def _lacking(job: Json, pods: list[Json], phase: str, counted: Counter[str]) -> list[str]:
    """Of a Job whose group is let into its queue."""
    name, spec, found = job["metadata"]["name"], job["spec"], []
    there = {pod["metadata"]["name"] for pod in pods}
    waiting = set()
    for task in spec["tasks"]:
        wanted = {f"{name}-{task['name']}-{index}" for index in range(task.get("replicas", 0))}
        lacking = wanted - there
        if lacking and job_reading.may_begin(job, task, pods):
            found.append(f"lacks {sorted(lacking)}")
        elif lacking:
            waiting.add(task["name"])
        there -= wanted
    if there:
        found.append(f"has {sorted(there)} besides")
    stand_by = [pod for pod in pods if job_reading.stands_by(pod)]
    for task in spec["tasks"]:
        of_task = [pod for pod in stand_by if job_reading.task_of(pod) == task["name"]]
        if of_task and job_reading.may_begin(job, task, pods):
            found.append(f"has {len(of_task)} of {task['name']} stand by, whose turn it is")
        elif of_task:
            waiting.add(task["name"])
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
