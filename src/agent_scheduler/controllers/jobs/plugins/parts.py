"""What plugins have in common: their arguments, hosts of pods, and additions to containers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from agent_scheduler.objects.job import Job, TaskSpec
from agent_scheduler.objects.wire import Wire

from ..pods import pod_name

Body = dict[str, Any]


class _Names(Wire, frozen=True):
    hostname: str | None = None
    subdomain: str | None = None


class _Template(Wire, frozen=True):
    spec: _Names | None = None


_decode = msgspec.json.Decoder(_Template).decode


def arguments(texts: Iterable[str]) -> dict[str, str]:
    """Values by name: `--name=value` or `--name value`; one without a value is `true`, as Go's flags are."""
    found: dict[str, str] = {}
    name = ""
    for text in texts:
        if text.startswith("-"):
            name, sign, value = text.lstrip("-").partition("=")
            found[name] = value if sign else "true"
            name = "" if sign else name
        elif name:
            found[name], name = text, ""
    return found


def is_true(text: str) -> bool:
    return text.lower() in ("1", "t", "true")


def number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else otherwise


@lru_cache(maxsize=1024)
def _names(template: bytes) -> _Names:
    """Raises msgspec.ValidationError for a template of no pod."""
    return _decode(template).spec or _Names()


def hostname(job: Job, task: TaskSpec, index: int) -> str:
    """That of its template, which all pods of the task then have; else the name of the pod."""
    return _names(bytes(task.template)).hostname or pod_name(job, task, index)


def host(job: Job, task: TaskSpec, index: int) -> str:
    """By which the others find a pod of a Job with the plugin svc."""
    return f"{hostname(job, task, index)}.{_names(bytes(task.template)).subdomain or job.metadata.name}"


def indices(task: TaskSpec) -> range:
    """Of the pods of a task that differ in their host: the first alone where the template names one host for all."""
    return range(min(task.replicas, 1) if _names(bytes(task.template)).hostname else task.replicas)


def hosts(job: Job, task: TaskSpec) -> list[str]:
    return [host(job, task, index) for index in indices(task)]


def containers(pod: Body) -> list[Body]:
    return pod["spec"].get("containers") or []


def all_containers(pod: Body) -> Iterator[Body]:
    """Init containers are among them."""
    yield from pod["spec"].get("initContainers") or ()
    yield from containers(pod)


def add_env(container: Body, *entries: Body) -> None:
    container["env"] = [*(container.get("env") or ()), *entries]


def add_port(container: Body, name: str, port: int) -> None:
    """Unless it has one of that number."""
    ports = container.get("ports") or []
    if all(each.get("containerPort") != port for each in ports):
        container["ports"] = [*ports, {"name": name, "containerPort": port}]


def add_volume(pod: Body, volume: Body) -> None:
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), volume]


def add_mount(container: Body, mount: Body) -> None:
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
