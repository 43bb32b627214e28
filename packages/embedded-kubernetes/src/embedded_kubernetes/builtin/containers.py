"""Validation of containers: names, images, ports, environment, mounts, probes, resources and security context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from . import names
from .amounts import check_requirements
from .causes import check_name, check_one_of, duplicate, forbidden, invalid, not_found, required
from .environment import check_devices, check_env_from, check_mounts
from .rules import check_part

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
#: Fields that an ephemeral container may not have.
_NOT_EPHEMERAL = ("ports", "resources", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "resizePolicy")

Container = dict[str, Any]
#: Fields of a defaulted container that only `_check_common` validates.
_PLAIN = frozenset(
    {
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "resources",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "stdin",
        "stdinOnce",
        "tty",
    }
)


class PodParts:
    """The parts of a pod that its containers refer to: volumes, claims, grace period and restart policy."""

    def __init__(self, spec: dict[str, Any], volumes: dict[str, dict[str, Any]], *, is_pod: bool) -> None:
        self.volumes = volumes
        claims = spec.get("resourceClaims")
        self.claims = frozenset(claim.get("name", "") for claim in claims) if claims else frozenset()
        self.grace: int | None = spec.get("terminationGracePeriodSeconds")
        self.restart_policy: str = spec.get("restartPolicy", "")
        self.is_pod = is_pod
        self.host_users = spec.get("hostUsers") is not False


def check_containers(containers: list[Container], path: str, parts: PodParts) -> Iterator[Cause]:
    """Check the regular containers of a pod: at least one, unique names, and host ports without conflicts."""
    if not containers:
        yield required(path)
        return
    conflicts: list[Cause] = []
    seen: set[str] = set()
    ports: set[tuple[str, str, int]] = set()
    for index, container in enumerate(containers):
        at = f"{path}[{index}]"
        plain = container.keys() <= _PLAIN
        yield from _check_common(container, at, parts, plain=plain)
        name = container.get("name", "")
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        if not plain:
            yield from _check_runtime(container, at, parts)
            yield from check_part("restart", container, at)
            conflicts += _check_host_ports(container, at, ports)
    yield from conflicts


def check_image_spaces(containers: list[Container], path: str) -> Iterator[Cause]:
    """Check images of a pod for surrounding whitespace, which a template's images may have."""
    for index, container in enumerate(containers):
        image = container.get("image") or ""
        if image != image.strip():
            yield invalid(f"{path}[{index}].image", image, "must not have leading or trailing whitespace")


def check_init_containers(
    containers: list[Container], regular: list[Container], path: str, parts: PodParts
) -> Iterator[Cause]:
    seen = {container.get("name", "") for container in regular}
    for index, container in enumerate(containers):
        at = f"{path}[{index}]"
        yield from _check_common(container, at, parts)
        yield from check_part("initRestart", container, at)
        name = container.get("name", "")
        if name in seen:
            yield duplicate(f"{at}.name", name)
        elif name:
            seen.add(name)
        # kube-apiserver checks each one separately, so the path has index 0.
        yield from _check_host_ports(container, f"{path}[0]", set())
        if container.get("restartPolicy") == "Always":
            yield from _check_runtime(container, at, parts)
        else:
            detail = "may not be set for init containers without restartPolicy=Always"
            for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                if container.get(field) is not None:
                    yield forbidden(f"{at}.{field}", detail)


def check_ephemeral_containers(
    containers: list[Container], others: list[Container], path: str, parts: PodParts
) -> Iterator[Cause]:
    targets = {container.get("name", "") for container in others}
    seen = set(targets)
    for index, container in enumerate(containers):
        at = f"{path}[{index}]"
        yield from _check_common(container, at, parts)
        image = container.get("image") or ""
        if image != image.strip():
            yield invalid(f"{at}.image", image, "must not have leading or trailing whitespace")
        name, target = container.get("name", ""), container.get("targetContainerName", "")
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        if target and target not in targets:
            yield not_found(f"{at}.targetContainerName", target)
        for field in _NOT_EPHEMERAL:
            if container.get(field):
                yield forbidden(f"{at}.{field}", "cannot be set for an Ephemeral Container")
        for place, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    detail = "cannot be set for an Ephemeral Container"
                    yield forbidden(f"{at}.volumeMounts[{place}].{field}", detail)


def _check_common(container: Container, at: str, parts: PodParts, *, plain: bool = False) -> Iterator[Cause]:
    """Check the fields that all kinds of containers have."""
    name, image = container.get("name"), container.get("image")
    yield from check_name(f"{at}.name", name or "", names.label)
    if not image:
        yield required(f"{at}.image")
    if container.get("terminationMessagePolicy") not in _MESSAGE_POLICIES:
        value = container.get("terminationMessagePolicy")
        yield from check_one_of(f"{at}.terminationMessagePolicy", value, _MESSAGE_POLICIES)
    if not plain:
        yield from _check_inside(container, at, parts)
    if container.get("imagePullPolicy") not in _PULL_POLICIES:
        yield from check_one_of(f"{at}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    if resources := container.get("resources"):
        yield from check_requirements(resources, f"{at}.resources", parts.claims)
    if plain:
        return
    if policies := container.get("resizePolicy"):
        yield from _check_resize(policies, f"{at}.resizePolicy", parts.restart_policy)
    if security := container.get("securityContext"):
        yield from _check_security(security, f"{at}.securityContext", host_users=parts.host_users)


def _check_inside(container: Container, at: str, parts: PodParts) -> Iterator[Cause]:
    """Check ports, environment and volumes."""
    if ports := container.get("ports"):
        yield from check_part("containerPorts", {"ports": ports}, at)
    if env := container.get("env"):
        yield from check_part("containerEnv", {"env": env}, at)
    if sources := container.get("envFrom"):
        yield from check_env_from(sources, f"{at}.envFrom")
    if mounts := container.get("volumeMounts"):
        yield from check_mounts(mounts, f"{at}.volumeMounts", container, parts.volumes)
    if devices := container.get("volumeDevices"):
        yield from check_devices(devices, f"{at}.volumeDevices", container, parts.volumes)


def _check_host_ports(container: Container, at: str, seen: set[tuple[str, str, int]]) -> Iterator[Cause]:
    for index, port in enumerate(container.get("ports") or ()):
        if number := port.get("hostPort"):
            key = (port.get("protocol", ""), port.get("hostIP", ""), number)
            if key in seen:
                yield duplicate(f"{at}.ports[{index}].hostPort", "/".join(map(str, key)))
            seen.add(key)


def _check_resize(policies: list[dict[str, Any]], path: str, restart: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, action = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
        yield from check_one_of(path, name, ("cpu", "memory"))
        yield from check_one_of(path, action, ("NotRequired", "RestartContainer"))
        if restart == "Never" and action != "NotRequired":
            yield invalid(path, action, "must be 'NotRequired' when `restartPolicy` is 'Never'")


def _check_runtime(container: Container, at: str, parts: PodParts) -> Iterator[Cause]:
    """Check lifecycle hooks and probes, of regular containers and of restartable init containers."""
    for name in ("postStart", "preStop"):
        if (hook := (container.get("lifecycle") or {}).get(name)) is not None:
            yield from _check_handler(hook, f"{at}.lifecycle.{name}", parts.grace)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            yield from _check_handler(probe, f"{at}.{name}", parts.grace)
            yield from check_part("readiness" if name == "readinessProbe" else "liveness", probe, f"{at}.{name}")


def _check_handler(handler: dict[str, Any], at: str, grace: int | None) -> Iterator[Cause]:
    yield from check_part("handler", handler, at)
    seconds = (handler.get("sleep") or {}).get("seconds", 0)
    only = not handler.keys() & {"exec", "httpGet", "tcpSocket", "grpc"}
    if only and grace is not None and not 0 <= seconds <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(f"{at}.sleep", seconds, detail)


def _check_security(context: dict[str, Any], path: str, *, host_users: bool) -> Iterator[Cause]:
    yield from check_part("containerIds", context, path)
    if host_users and context.get("procMount") == "Unmasked":
        detail = "`hostUsers` must be false to use `Unmasked`"
        yield invalid(f"{path}.procMount", "Unmasked", detail)
    yield from check_part("containerSecurity", context, path)
