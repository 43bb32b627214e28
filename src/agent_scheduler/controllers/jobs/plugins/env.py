"""The plugin `env`: sets each pod's index within its task."""

from __future__ import annotations

from typing import Final

from agent_scheduler.objects.job import Job, TaskSpec

from .parts import Body, add_env, all_containers

#: The second is the name in earlier versions.
_INDEX: Final = ("VC_TASK_INDEX", "VK_TASK_INDEX")


def change(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    add_env(all_containers(pod), *({"name": name, "value": str(index)} for name in _INDEX))


def objects(job: Job, given: dict[str, str]) -> list[Body]:
    return []
