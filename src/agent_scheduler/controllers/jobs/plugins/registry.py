"""The plugins by their names in Jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from agent_scheduler.objects.job import Job, TaskSpec

from . import env, ray, ssh, svc
from .distributed import change_hcclrank, change_mpi, change_pytorch, change_tensorflow, no_objects
from .parts import Body, arguments

SSH: Final = "ssh"

Change = Callable[[Job, TaskSpec, int, Body, dict[str, str]], None]
Objects = Callable[[Job, dict[str, str]], list[Body]]


class JobPlugin(NamedTuple):
    """A plugin: `change` modifies a pod to create, `objects` returns the complete objects that the Job's pods need."""

    change: Change
    objects: Objects


PLUGINS: Final[dict[str, JobPlugin]] = {
    "pytorch": JobPlugin(change_pytorch, no_objects),
    "tensorflow": JobPlugin(change_tensorflow, no_objects),
    "mpi": JobPlugin(change_mpi, no_objects),
    "hcclrank": JobPlugin(change_hcclrank, no_objects),
    "ray": JobPlugin(ray.change, ray.objects),
    SSH: JobPlugin(ssh.change, ssh.objects),
    "env": JobPlugin(env.change, env.objects),
    "svc": JobPlugin(svc.change, svc.objects),
}


def of_job(job: Job) -> list[tuple[str, JobPlugin, dict[str, str]]]:
    """Return the Job's plugins with their arguments, in the order in which they change pods."""
    asked = job.spec.plugins or {}
    return [(name, each, arguments(asked[name] or ())) for name, each in PLUGINS.items() if name in asked]


def unknown(job: Job, known: Collection[str]) -> list[str]:
    """Return the Job's plugins that are not in `known`."""
    return sorted((job.spec.plugins or {}).keys() - set(known))


def changed(job: Job, task: TaskSpec, index: int, pod: dict[str, Any]) -> dict[str, Any]:
    """Apply the Job's plugins to a pod."""
    for _, plugin, given in of_job(job):
        plugin.change(job, task, index, pod, given)
    return pod


def objects_of(job: Job) -> list[Body]:
    return [body for _, plugin, given in of_job(job) for body in plugin.objects(job, given)]
