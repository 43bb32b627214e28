"""Checks of the pod templates of a job's tasks."""

from __future__ import annotations

from collections.abc import Iterator

from agent_scheduler.objects.job import TaskSpec
from apimachinery.validation import pod_templates
from apimachinery.validation.pod_resources import whole_cpus

from .review import object_of


def template_problems(task: TaskSpec, index: int) -> Iterator[str]:
    """Check the template of a task as the API server would check each pod of it. Raises UnreadableObject."""
    template = object_of(task.template, pod_templates.read_template)
    field = f"spec.tasks[{index}].template"
    yield from pod_templates.template_problems(template, field)
    if task.topology_policy in ("", "none"):
        return
    # A task with a topology policy must request whole CPUs.
    for number, container in enumerate(template.spec.containers):
        if not whole_cpus(container.resources):
            yield (
                f"{field}.spec.containers[{number}].resources.requests[cpu]: the cpu request "
                f"isn't an integer in spec.task[{index}] container[{number}]"
            )
