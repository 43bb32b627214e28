"""Checks the dependencies between a job's tasks: all named tasks exist, and there is no cycle.

A repeated name has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from agent_scheduler.objects.job import ALL, ANY, TaskSpec

from .answers import listed

_NO_DAG: Final = "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"
#: Empty means `all`.
_ITERATIONS: Final = ("", ANY, ALL)


def is_dependent(tasks: Sequence[TaskSpec]) -> bool:
    """Return whether the job's pods come in stages."""
    return any(_named(task) for task in tasks)


def problems(tasks: Sequence[TaskSpec]) -> Iterator[str]:
    numbers: dict[str, int] = {}
    for index, task in enumerate(tasks):
        numbers.setdefault(task.name, index)
    for index, task in enumerate(tasks):
        field = f"spec.tasks[{index}].dependsOn"
        for name in dict.fromkeys(_named(task)):
            if name not in numbers:
                others = listed([other for other in numbers if other != task.name]) or "none, as there is no other"
                yield f"{field}.name: {_NO_DAG}: there is no task {name!r}; allowed: names of other tasks: {others}"
        if task.depends_on is not None and task.depends_on.iteration not in _ITERATIONS:
            yield f"{field}.iteration: found {task.depends_on.iteration!r}; allowed: {ANY}, {ALL}"
    cycle = _cycle({task.name: [name for name in _named(task) if name in numbers] for task in tasks})
    if cycle:
        field = f"spec.tasks[{numbers[cycle[0]]}].dependsOn.name"
        yield f"{field}: {_NO_DAG}: {listed(cycle, ' -> ')}; allowed: tasks that do not wait for this one"


def _named(task: TaskSpec) -> tuple[str, ...]:
    return (task.depends_on.name if task.depends_on is not None else None) or ()


def _cycle(waits: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names on a path from a task to itself, which is first and last; empty if there is none."""
    done: set[str] = set()
    for start in waits:
        if start in done:
            continue
        # The path from `start`, with the unvisited dependencies of each task on it.
        way, rest = {start: None}, [iter(waits[start])]
        while way:
            found = next((name for name in rest[-1] if name not in done), None)
            if found is None:
                done.add(way.popitem()[0])
                rest.pop()
            elif found in way:
                names = list(way)
                return [*names[names.index(found) :], found]
            else:
                way[found] = None
                rest.append(iter(waits[found]))
    return []
