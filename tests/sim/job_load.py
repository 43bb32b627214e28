"""Jobs of Volcano's, and what their users do with them in time; all drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .gang_load import NAME, Gangs

Body = dict[str, Any]

JOB_VERSION = "batch.volcano.sh/v1alpha1"
JOBS = f"/apis/{JOB_VERSION}/namespaces/default/jobs"
#: Makes pods of tasks that wait stand by, so that room is kept for them.
DEPENDS_ON_GANG = "agent-scheduler.io/depends-on-gang"
_EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted", "TaskFailed", "Unknown", "*")
_ACTIONS = (
    *("RestartJob", "RestartTask", "RestartPod"),
    *("AbortJob", "TerminateJob", "CompleteJob"),
)
#: Seconds after which a Job is deleted that has ended, where it says so.
_KEPT = (0, 1, 10)


@dataclass
class Jobs:
    """Those that are there or will be, by name."""

    bodies: dict[str, Body] = field(default_factory=dict)


def employ(
    rng: random.Random,
    gangs: Gangs,
    acts: list[tuple[float, str, str, Body | None]],
    pod: Callable[..., Body],
) -> Jobs:
    """Adds Jobs in the queues of `gangs`, whose controllers see to them."""
    jobs = Jobs()
    gangs.controllers = rng.choice((1, 1, 2))
    queues = [each["metadata"]["name"] for each in gangs.queues]
    leaves = [name for name in queues if not name.startswith(("root", "above"))]
    for number in range(rng.randrange(1, 7)):
        body = jobs.bodies[f"j{number}"] = _job(rng, f"j{number}", rng.choice(("default", *leaves)), pod)
        at = rng.choice((0.1, 0.1, 4.0, 9.0)) + rng.uniform(0, 2.0)
        acts.append((at, "POST", JOBS, body))
        if rng.random() < 0.15:
            acts.append((at + rng.uniform(0.01, 15.0), "DELETE", f"{JOBS}/j{number}", None))
    return jobs


def _job(rng: random.Random, name: str, queue: str, pod: Callable[..., Body]) -> Body:
    tasks = _tasks(rng, pod)
    least = sum(task.get("minAvailable", task["replicas"]) for task in tasks)
    most = sum(task["replicas"] for task in tasks)
    spec: Body = {
        "schedulerName": NAME,
        "queue": queue,
        "minAvailable": rng.choice((least, least, most, rng.randint(1, most))),
        "maxRetry": rng.randint(1, 4),
        "tasks": tasks,
        "policies": _policies(rng, rng.choice((0, 1, 2))),
    }
    if rng.random() < 0.3:
        spec["ttlSecondsAfterFinished"] = rng.choice(_KEPT)
    if rng.random() < 0.2:
        spec["minSuccess"] = rng.randint(1, most)
    if rng.random() < 0.3:
        spec["plugins"] = rng.choice(({"env": []}, {"svc": []}, {"svc": [], "env": []}))
    metadata: Body = {"name": name}
    if rng.random() < 0.2:
        metadata["annotations"] = {DEPENDS_ON_GANG: "reserve"}
    return {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": metadata,
        "spec": spec,
    }


def _tasks(rng: random.Random, pod: Callable[..., Body]) -> list[Body]:
    """Each may depend on earlier ones."""
    tasks: list[Body] = []
    for name in ("a", "b", "c")[: rng.choice((1, 1, 2, 2, 3))]:
        replicas = rng.choice((1, 1, 2, 3))
        lives = rng.choice((None, 1.0, 3.0, 8.0))
        template = pod("unnamed", cpu=rng.choice((100, 500, 1000)), lives=lives, restartPolicy="Never")
        del template["metadata"]["name"], template["spec"]["schedulerName"]
        template["spec"]["terminationGracePeriodSeconds"] = rng.choice((0, 1, 30))
        task: Body = {"name": name, "replicas": replicas, "template": template}
        if rng.random() < 0.7:
            task["minAvailable"] = rng.randint(0 if tasks else 1, replicas)
        if tasks and rng.random() < 0.7:
            earlier = [each["name"] for each in tasks]
            on = rng.sample(earlier, rng.randint(1, len(earlier)))
            task["dependsOn"] = {"name": on, "iteration": rng.choice(("any", "all"))}
        if rng.random() < 0.4:
            task["policies"] = _policies(rng, 1)
        tasks.append(task)
    return tasks


def _policies(rng: random.Random, count: int) -> list[Body]:
    """For an event each: the webhook lets no event have two."""
    events = rng.sample(_EVENTS[:-1], count) if rng.random() < 0.8 else [_EVENTS[-1]] * min(count, 1)
    return [{"event": event, "action": rng.choice(_ACTIONS)} for event in events]
