"""Templates of pods: what the API server would refuse of each pod that is made of one, where that is easily told.

Only what makes every pod of a task fail: names, ports, amounts, mounts, probes and gates. The words are those of
Kubernetes' `ValidatePodTemplate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from agent_scheduler.objects.job import TaskSpec
from agent_scheduler.objects.wire import SchedulingGate, Wire

from . import names
from .pod_resources import Amounts, resource_problems, whole_cpus
from .review import object_of

_RESTART: Final = ("Always", "OnFailure", "Never")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_SECONDS: Final = (
    *("initialDelaySeconds", "timeoutSeconds", "periodSeconds"),
    *("successThreshold", "failureThreshold"),
)
_MOST_PORT: Final = 65535


class _Env(Wire, frozen=True):
    name: str = ""


class _Port(Wire, frozen=True):
    container_port: int = 0
    host_port: int = 0


class _Mount(Wire, frozen=True):
    name: str = ""
    mount_path: str = ""


class _Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    env: tuple[_Env, ...] | None = None
    ports: tuple[_Port, ...] | None = None
    resources: Amounts | None = None
    volume_mounts: tuple[_Mount, ...] | None = None
    liveness_probe: dict[str, Any] | None = None
    readiness_probe: dict[str, Any] | None = None
    startup_probe: dict[str, Any] | None = None


class _Volume(Wire, frozen=True):
    name: str = ""


class _Spec(Wire, frozen=True):
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    volumes: tuple[_Volume, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    host_network: bool = False
    restart_policy: str = ""


class _Template(Wire, frozen=True):
    spec: _Spec = _Spec()


_read = msgspec.json.Decoder(_Template).decode


def template_problems(task: TaskSpec, index: int) -> Iterator[str]:
    """Raises UnreadableObject."""
    spec = object_of(task.template, _read).spec
    field = f"spec.tasks[{index}].template.spec"
    if not spec.containers:
        yield f"{field}.containers: Required value"
    used: set[str] = set()
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for number, container in enumerate(containers or ()):
            at = f"{field}.{kind}[{number}]"
            yield from _named(container.name, at, used)
            yield from _of_container(container, at, spec)
    gates: set[str] = set()
    for number, gate in enumerate(spec.scheduling_gates or ()):
        if gate.name in gates:
            yield f'{field}.schedulingGates[{number}]: Duplicate value: "{gate.name}"'
        gates.add(gate.name)
    if spec.restart_policy and spec.restart_policy not in _RESTART:
        known = ", ".join(f'"{each}"' for each in sorted(_RESTART))
        yield f'{field}.restartPolicy: Unsupported value: "{spec.restart_policy}": supported values: {known}'
    yield from _of_numa(task, index, spec)


def _named(name: str, at: str, used: set[str]) -> Iterator[str]:
    if not name:
        yield f"{at}.name: Required value"
    elif problem := names.label(name):
        yield f'{at}.name: Invalid value: "{name}": {problem}'
    elif name in used:
        yield f'{at}.name: Duplicate value: "{name}"'
    used.add(name)


def _of_container(container: _Container, at: str, spec: _Spec) -> Iterator[str]:
    if not container.image:
        yield f"{at}.image: Required value"
    for number, variable in enumerate(container.env or ()):
        if not variable.name:
            yield f"{at}.env[{number}].name: Required value"
        elif problem := names.environment(variable.name):
            yield f'{at}.env[{number}].name: Invalid value: "{variable.name}": {problem}'
    for number, port in enumerate(container.ports or ()):
        yield from _of_port(port, f"{at}.ports[{number}]", host_network=spec.host_network)
    if container.resources is not None:
        yield from resource_problems(container.resources, f"{at}.resources")
    volumes = {volume.name for volume in spec.volumes or ()}
    for number, mount in enumerate(container.volume_mounts or ()):
        if not mount.name:
            yield f"{at}.volumeMounts[{number}].name: Required value"
        elif mount.name not in volumes:
            yield f'{at}.volumeMounts[{number}].name: Not found: "{mount.name}"'
        if not mount.mount_path:
            yield f"{at}.volumeMounts[{number}].mountPath: Required value"
    probes = (container.liveness_probe, container.readiness_probe, container.startup_probe)
    for probe, said in zip(_PROBES, probes, strict=True):
        for key in _SECONDS:
            seconds = (said or {}).get(key)
            if isinstance(seconds, int) and seconds < 0:
                yield f"{at}.{probe}.{key}: Invalid value: {seconds}: must be greater than or equal to 0"


def _of_port(port: _Port, at: str, *, host_network: bool) -> Iterator[str]:
    between = f"must be between 1 and {_MOST_PORT}, inclusive"
    if port.container_port == 0:
        yield f"{at}.containerPort: Required value"
    elif not 0 < port.container_port <= _MOST_PORT:
        yield f"{at}.containerPort: Invalid value: {port.container_port}: {between}"
    if port.host_port == 0:
        return
    if not 0 < port.host_port <= _MOST_PORT:
        yield f"{at}.hostPort: Invalid value: {port.host_port}: {between}"
    elif host_network and port.host_port != port.container_port:
        yield (
            f"{at}.hostPort: Invalid value: {port.host_port}: must match `containerPort` when `hostNetwork` is true"
        )


def _of_numa(task: TaskSpec, index: int, spec: _Spec) -> Iterator[str]:
    """A task with a topology policy has CPUs of its own, which are whole."""
    if task.topology_policy in ("", "none"):
        return
    for number, container in enumerate(spec.containers or ()):
        if not whole_cpus(container.resources):
            yield (
                f"spec.tasks[{index}].template.spec.containers[{number}].resources.requests[cpu]: the cpu request "
                f"isn't an integer in spec.task[{index}] container[{number}]"
            )
