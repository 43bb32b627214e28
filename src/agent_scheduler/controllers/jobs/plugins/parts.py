"""The common parts of plugins: arguments, hosts of pods, and additions to containers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from agent_scheduler.objects.job import Job, TaskSpec
from apimachinery.wire import Wire

from ..pods import check_additions, pod_name
from ..templates import remembered

Body = dict[str, Any]
#: The digits of a number that may exceed int32.
_DIGITS: Final = 10
#: About the bytes of a variable besides its name and its value.
_OF_VARIABLE: Final = 24


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
    """Return a number of at most nine digits, which every field of a pod accepts as int32; else `otherwise`."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else otherwise


@remembered
def _names(template: bytes) -> _Names:
    """Parse a template. Raises msgspec.ValidationError if it is invalid."""
    return _decode(template).spec or _Names()


def host(job: Job, task: TaskSpec, index: int) -> str:
    """Return the host by which others reach a pod of a Job with the plugin svc."""
    return next(hosts_of(job, task, (index,)))[1]


def indices(task: TaskSpec) -> range:
    """Return the indices of pods with different hosts: only the first if the template names one host for all."""
    return _indices(task, _names(bytes(task.template)))


def _indices(task: TaskSpec, names: _Names) -> range:
    return range(min(task.replicas, 1) if names.hostname else task.replicas)


def hosts_of(job: Job, task: TaskSpec, some: Iterable[int] | None = None) -> Iterator[tuple[str, str]]:
    """Yield host name and host of the pods with these indices; by default of all that have different hosts."""
    names = _names(bytes(task.template))
    for index in _indices(task, names) if some is None else some:
        name = names.hostname or pod_name(job, task, index)
        yield name, f"{name}.{names.subdomain or job.metadata.name}"


def hosts(job: Job, task: TaskSpec) -> list[str]:
    return [found for _, found in hosts_of(job, task)]


def containers(pod: Body) -> list[Body]:
    return pod["spec"].get("containers") or []


def all_containers(pod: Body) -> Iterator[Body]:
    """Yield init containers and containers."""
    yield from pod["spec"].get("initContainers") or ()
    yield from containers(pod)


def add_env(some: Iterable[Body], *entries: Body) -> None:
    """Add variables to each of some containers of a pod. Raises msgspec.ValidationError if that makes it too large."""
    found = list(some)
    size = sum(_OF_VARIABLE + len(each["name"]) + len(each.get("value") or each["name"]) for each in entries)
    check_additions("spec.plugins", size, len(found))
    for container in found:
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
