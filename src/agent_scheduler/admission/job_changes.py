"""Allows changes of a job only in its numbers of pods, its minimums and its priority class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from agent_scheduler.objects.job import Job, JobSpec, excess
from apimachinery.quantity import QuantityError, parse

from .job_checks import partition_problems, topology_problems

_FIXED: Final = (
    "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and "
    "`PriorityClassName`"
)
_OF_JOB: Final = frozenset({"minAvailable", "priorityClassName", "tasks"})
_OF_TASK: Final = frozenset({"replicas", "minAvailable"})
_AMOUNTS: Final = frozenset({"requests", "limits"})
#: Fields that Go clients write empty and others omit.
_SAME_AS_NONE: Final = frozenset({"metadata", "resources"})


def changes(old: JobSpec, job: Job, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of a change. `before` and `after` are the specs with all their fields.

    A job with an unchanged spec may violate newer rules: otherwise its finalizers could never be removed.
    """
    if not _differing(before, after):
        return
    if too_large := excess(job.spec):
        yield too_large
        return
    tasks = job.spec.tasks or ()
    for index, task in enumerate(tasks):
        field, named = f"spec.tasks[{index}]", f"in task: {task.name}"
        if task.replicas < 0:
            yield f"{field}.replicas: 'replicas' must be >= 0 {named}"
        if task.min_available is not None and task.min_available < 0:
            yield f"{field}.minAvailable: 'minAvailable' must be >= 0 {named}"
        elif task.replicas >= 0 and task.min_available is not None and task.min_available > task.replicas:
            yield f"{field}.minAvailable: 'minAvailable' must be <= 'replicas' {named}; allowed: 0 to {task.replicas}"
        yield from partition_problems(job, index, task)
    total = max(sum(task.replicas for task in tasks), 0)
    if job.spec.min_available > total:
        yield f"spec.minAvailable: job 'minAvailable' must not be greater than total replicas; allowed: 0 to {total}"
    if job.spec.min_available < 0:
        yield "spec.minAvailable: job 'minAvailable' must be >= 0"
    yield from topology_problems(job.spec.network_topology, "spec.networkTopology")
    if len(tasks) != len(old.tasks or ()):
        yield "spec.tasks: job updates may not add or remove tasks"
        return
    fixed = _changed(before, after)
    if fixed:
        yield f"{', '.join(fixed)}: {_FIXED}"


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the changed fields that must not change."""
    found = [f"spec.{key}" for key in _differing(before, after) if key not in _OF_JOB]
    pairs = zip(before.get("tasks") or (), after.get("tasks") or (), strict=True)
    for index, (old, new) in enumerate(pairs):
        found += [f"spec.tasks[{index}].{key}" for key in _differing(old, new) if key not in _OF_TASK]
    return found


def _differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    keys = sorted({**before, **after})
    return [key for key in keys if before.get(key) != after.get(key) and not _is_same(before, after, key)]


def _is_same(before: dict[str, Any], after: dict[str, Any], key: str) -> bool:
    """Return whether fields that are written differently mean the same. Tasks are compared one by one."""
    old, new = before.get(key), after.get(key)
    if key == "tasks" and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return all(one == other or _plain(one) == _plain(other) for one, other in zip(old, new, strict=True))
    return bool(_value(before, key) == _value(after, key))


def _value(fields: dict[str, Any], key: str) -> Any:
    if key == "volumes":
        # The controller names the claims that it creates, and clients need not repeat the name.
        return [_plain(_unnamed(each)) for each in fields.get(key) or ()] or None
    if key == "plugins":
        # A plugin without arguments exists nevertheless.
        return {name: arguments or [] for name, arguments in (fields.get(key) or {}).items()}
    return _plain(fields.get(key))


def _unnamed(volume: Any) -> Any:
    if not isinstance(volume, dict) or volume.get("volumeClaim") is None:
        return volume
    return {**volume, "volumeClaimName": None}


def _amounts(value: Any) -> Any:
    """Normalize amounts, which can be written in several ways."""
    if not isinstance(value, dict):
        return _plain(value)
    try:
        return {name: parse(str(amount)).nano for name, amount in value.items()}
    except QuantityError:
        return _plain(value)


def _plain(value: Any) -> Any:
    """Remove values that mean the same as a missing one."""
    if isinstance(value, dict):
        kept = {key: _amounts(each) if key in _AMOUNTS else _plain(each) for key, each in value.items()}
        return {
            key: each for key, each in kept.items() if each is not None and not (each == {} and key in _SAME_AS_NONE)
        }
    if isinstance(value, list):
        return [_plain(each) for each in value] or None
    return value
