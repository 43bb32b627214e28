"""The common parts of plugins: arguments, hosts of pods, and additions to containers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from agent_scheduler.objects.job import Job, TaskSpec
from apimachinery.wire import Wire

from ..pods import pod_name

Body = dict[str, Any]

#: The digits of a number that may exceed int32.
_DIGITS: Final = 10


class _Names(Wire, frozen=True):
    hostname: str | None = None
    subdomain: str | None = None


class _HostnameTemplate(Wire, frozen=True):
    spec: _Names | None = None


_decode = msgspec.json.Decoder(_HostnameTemplate).decode


def arguments(texts: Iterable[str]) -> dict[str, str]:
    """Parse `--name=value` and `--name value`; one without a value is `true`, as Go's flags are."""
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
    """Parse a number of at most nine digits, which every field of a pod accepts as int32."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else otherwise


@lru_cache(maxsize=1024)
def _names(template: bytes) -> _Names:
    """Parse a template. Raises msgspec.ValidationError if it is invalid."""
    return _decode(template).spec or _Names()


def hostname(job: Job, task: TaskSpec, index: int) -> str:
    """Return the host name in the template, which all pods of the task share; else the pod's name."""
    return _names(bytes(task.template)).hostname or pod_name(job, task, index)


def host(job: Job, task: TaskSpec, index: int) -> str:
    """Return the host by which others reach a pod of a Job with the plugin svc."""
    return f"{hostname(job, task, index)}.{_names(bytes(task.template)).subdomain or job.metadata.name}"


def indices(task: TaskSpec) -> range:
    """Return the indices of pods with different hosts: only the first if the template names one host for all."""
    return range(min(task.replicas, 1) if _names(bytes(task.template)).hostname else task.replicas)


def hosts(job: Job, task: TaskSpec) -> list[str]:
    return [host(job, task, index) for index in indices(task)]


def containers(pod: Body) -> list[Body]:
    return pod["spec"].get("containers") or []


def all_containers(pod: Body) -> Iterator[Body]:
    """Yield init containers and containers."""
    yield from pod["spec"].get("initContainers") or ()
    yield from containers(pod)


def add_env(container: Body, *entries: Body) -> None:
    container["env"] = [*(container.get("env") or ()), *entries]


def add_port(container: Body, name: str, port: int) -> None:
    """Add the port unless the container has one of that number."""
    ports = container.get("ports") or []
    if all(each.get("containerPort") != port for each in ports):
        container["ports"] = [*ports, {"name": name, "containerPort": port}]


def add_volume(pod: Body, volume: Body) -> None:
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), volume]


def add_mount(container: Body, mount: Body) -> None:
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
