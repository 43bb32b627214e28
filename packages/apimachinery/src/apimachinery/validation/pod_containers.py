"""Checks the containers of a template: names, images, ports, environment, mounts, security.

The words are those of Kubernetes' `validateContainers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from apimachinery.wire import Wire

from . import names
from .field_problems import (
    between,
    descending,
    duplicate,
    forbidden,
    formatted,
    invalid,
    named,
    not_found,
    one_of,
    port_number,
    present,
    required,
)
from .pod_fields import FieldRef, ResourceFieldRef, field_problems, resource_field_problems
from .pod_hooks import Lifecycle, Probe, lifecycle_problems, probe_problems
from .pod_resources import Amounts, resource_problems

MOST_ID: Final = 2**31 - 1
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PULL: Final = ("Always", "IfNotPresent", "Never")
_MESSAGES: Final = ("File", "FallbackToLogsOnError")
_RESTART: Final = ("Always", "OnFailure", "Never")
_PROPAGATION: Final = ("Bidirectional", "HostToContainer", "None")
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_TWICE: Final = "may not have more than one field specified at a time"


class _KeyRef(Wire, frozen=True):
    name: str = ""
    key: str = ""


class _ValueFrom(Wire, frozen=True):
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: _KeyRef | None = None
    secret_key_ref: _KeyRef | None = None
    file_key_ref: dict[str, Any] | None = None


class _Env(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: _ValueFrom | None = None


class _LocalObjectReference(Wire, frozen=True):
    name: str = ""


class _EnvFrom(Wire, frozen=True):
    prefix: str = ""
    config_map_ref: _LocalObjectReference | None = None
    secret_ref: _LocalObjectReference | None = None


class _Port(Wire, frozen=True):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class _Mount(Wire, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str | None = None


class _Device(Wire, frozen=True):
    name: str = ""
    device_path: str = ""


class SecurityProfile(Wire, frozen=True):
    """A profile of seccomp or AppArmor."""

    type: str = ""
    localhost_profile: str | None = None


class _Capabilities(Wire, frozen=True):
    add: tuple[str, ...] = ()


class _SecurityContext(Wire, frozen=True):
    """A security context, with the fields in Kubernetes' display order."""

    capabilities: _Capabilities = _Capabilities()
    privileged: bool | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SecurityProfile | None = None
    app_armor_profile: SecurityProfile | None = None


class _Resize(Wire, frozen=True):
    resource_name: str = ""
    restart_policy: str = ""


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    env: tuple[_Env, ...] = ()
    env_from: tuple[_EnvFrom, ...] = ()
    ports: tuple[_Port, ...] = ()
    resources: Amounts = Amounts()
    volume_mounts: tuple[_Mount, ...] = ()
    volume_devices: tuple[_Device, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_policy: str = "File"
    image_pull_policy: str = ""
    restart_policy: str | None = None
    resize_policy: tuple[_Resize, ...] = ()
    security_context: _SecurityContext = _SecurityContext()


@dataclass(frozen=True, slots=True)
class PodContext:
    """The parts of a pod that containers refer to. `devices` are the volumes that may be block devices."""

    volumes: frozenset[str]
    devices: frozenset[str]
    claims: frozenset[str]
    grace: int
    restart_policy: str
    host_users: bool


def container_problems(containers: Sequence[Container], field: str, pod: PodContext) -> Iterator[str]:
    """Check the regular containers, of which there must be at least one."""
    if not containers:
        yield required(field)
    seen: set[str] = set()
    ports: set[str] = set()
    for index, container in enumerate(containers):
        at = f"{field}[{index}]"
        yield from _of_each(container, at, seen, pod)
        yield from _while_it_runs(container, at, pod)
        yield from one_of(f"{at}.restartPolicy", container.restart_policy, _RESTART)
        yield from _of_host_ports(container, at, ports)


def init_problems(
    containers: Sequence[Container], regular: Sequence[Container], field: str, pod: PodContext
) -> Iterator[str]:
    seen = {each.name for each in regular}
    for index, container in enumerate(containers):
        at = f"{field}[{index}]"
        yield from _of_each(container, at, seen, pod)
        yield from one_of(f"{at}.restartPolicy", container.restart_policy, _RESTART)
        # Kubernetes checks each one separately, always with the first one's path.
        yield from _of_host_ports(container, f"{field}[0]", set())
        if container.restart_policy == "Always":
            yield from _while_it_runs(container, at, pod)
            continue
        given = {
            "lifecycle": container.lifecycle,
            "livenessProbe": container.liveness_probe,
            "readinessProbe": container.readiness_probe,
            "startupProbe": container.startup_probe,
        }
        for name, said in given.items():
            if said is not None:
                detail = "may not be set for init containers without restartPolicy=Always"
                yield forbidden(f"{at}.{name}", detail)


def _of_each(container: Container, at: str, seen: set[str], pod: PodContext) -> Iterator[str]:
    yield from named(f"{at}.name", container.name, names.label)
    if container.name and container.name in seen:
        yield duplicate(f"{at}.name", container.name)
    seen.add(container.name)
    yield from present(f"{at}.image", container.image)
    yield from one_of(f"{at}.terminationMessagePolicy", container.termination_message_policy or None, _MESSAGES)
    yield from _of_ports(container.ports, f"{at}.ports")
    yield from _of_environment(container.env, f"{at}.env")
    yield from _of_sources(container.env_from, f"{at}.envFrom")
    yield from _of_mounts(container, f"{at}.volumeMounts", pod)
    yield from _of_devices(container, f"{at}.volumeDevices", pod)
    yield from one_of(f"{at}.imagePullPolicy", container.image_pull_policy or None, _PULL)
    yield from resource_problems(container.resources, f"{at}.resources", pod.claims)
    yield from _of_resizes(container.resize_policy, f"{at}.resizePolicy", pod)
    yield from _of_security(container.security_context, f"{at}.securityContext", pod)


def _of_ports(ports: Sequence[_Port], field: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, each in enumerate(ports):
        at = f"{field}[{index}]"
        if each.name and (problems := names.port(each.name)):
            for problem in problems:
                yield invalid(f"{at}.name", each.name, problem)
        elif each.name and each.name in seen:
            yield duplicate(f"{at}.name", each.name)
        seen.add(each.name)
        if each.container_port == 0:
            yield required(f"{at}.containerPort")
        else:
            yield from port_number(f"{at}.containerPort", each.container_port)
        if each.host_port:
            yield from port_number(f"{at}.hostPort", each.host_port)
        yield from one_of(f"{at}.protocol", each.protocol or None, _PROTOCOLS)


def _of_host_ports(container: Container, at: str, seen: set[str]) -> Iterator[str]:
    for index, each in enumerate(container.ports):
        if each.host_port:
            key = f"{each.protocol}/{each.host_ip}/{each.host_port}"
            if key in seen:
                yield duplicate(f"{at}.ports[{index}].hostPort", key)
            seen.add(key)


def _of_environment(variables: Sequence[_Env], field: str) -> Iterator[str]:
    for index, each in enumerate(variables):
        yield from named(f"{field}[{index}].name", each.name, names.environment)
        if each.value_from is not None:
            yield from _of_value(each, each.value_from, f"{field}[{index}].valueFrom")


def _of_value(variable: _Env, source: _ValueFrom, at: str) -> Iterator[str]:
    if source.field_ref is not None:
        yield from field_problems(source.field_ref, f"{at}.fieldRef")
    if source.resource_field_ref is not None:
        yield from resource_field_problems(source.resource_field_ref, f"{at}.resourceFieldRef")
    for name, ref in (("configMapKeyRef", source.config_map_key_ref), ("secretKeyRef", source.secret_key_ref)):
        if ref is not None:
            yield from formatted(f"{at}.{name}.name", ref.name, names.subdomain)
            yield from named(f"{at}.{name}.key", ref.key, names.config_key)
    given = sum(each is not None for each in msgspec.structs.astuple(source))
    if not given:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield invalid(at, "", detail)
    elif variable.value:
        yield invalid(at, "", "may not be specified when `value` is not empty")
    elif given > 1:
        yield invalid(at, "", _TWICE)


def _of_sources(sources: Sequence[_EnvFrom], field: str) -> Iterator[str]:
    for index, each in enumerate(sources):
        at = f"{field}[{index}]"
        if each.prefix:
            yield from formatted(f"{at}.prefix", each.prefix, names.environment)
        given = [
            (name, ref)
            for name, ref in (("configMapRef", each.config_map_ref), ("secretRef", each.secret_ref))
            if ref is not None
        ]
        for name, ref in given:
            yield from named(f"{at}.{name}.name", ref.name, names.subdomain)
        # Kubernetes does not include the index here.
        if not given:
            yield invalid(field, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(field, "", _TWICE)


def _of_mounts(container: Container, field: str, pod: PodContext) -> Iterator[str]:
    devices = {each.name: each.device_path for each in container.volume_devices}
    seen: set[str] = set()
    for index, each in enumerate(container.volume_mounts):
        at = f"{field}[{index}]"
        yield from present(f"{at}.name", each.name)
        if each.name not in pod.volumes:
            yield not_found(f"{at}.name", each.name)
        yield from present(f"{at}.mountPath", each.mount_path)
        if each.mount_path in seen:
            yield invalid(f"{at}.mountPath", each.mount_path, "must be unique")
        seen.add(each.mount_path)
        if each.name in devices:
            yield invalid(f"{at}.name", each.name, "must not already exist in volumeDevices")
        if each.mount_path in devices.values():
            detail = "must not already exist as a path in volumeDevices"
            yield invalid(f"{at}.mountPath", each.mount_path, detail)
        yield from descending(f"{field}.subPath", each.sub_path)
        yield from descending(f"{field}.subPathExpr", each.sub_path_expr)
        if each.sub_path and each.sub_path_expr:
            detail = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{at}.subPathExpr", each.sub_path_expr, detail)
        yield from one_of(f"{field}.mountPropagation", each.mount_propagation, _PROPAGATION)
        if each.mount_propagation == "Bidirectional" and not container.security_context.privileged:
            detail = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden(f"{field}.mountPropagation", detail)


def _of_devices(container: Container, field: str, pod: PodContext) -> Iterator[str]:
    mounts = {each.name for each in container.volume_mounts}
    seen: set[str] = set()
    for index, each in enumerate(container.volume_devices):
        at = f"{field}[{index}]"
        yield from present(f"{at}.name", each.name)
        if each.name in seen:
            yield invalid(f"{at}.name", each.name, "must be unique")
        seen.add(each.name)
        if each.name not in pod.volumes:
            yield not_found(f"{at}.name", each.name)
        elif each.name not in pod.devices:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(f"{at}.name", each.name, detail)
        yield from present(f"{at}.devicePath", each.device_path)
        if ".." in each.device_path.split("/"):
            yield invalid(f"{at}.devicePath", each.device_path, "can not contain backsteps ('..')")
        if each.name in mounts:
            yield invalid(f"{at}.name", each.name, "must not already exist in volumeMounts")


def _of_resizes(policies: Sequence[_Resize], field: str, pod: PodContext) -> Iterator[str]:
    seen: set[str] = set()
    for index, each in enumerate(policies):
        if each.resource_name in seen:
            yield duplicate(f"{field}[{index}]", each.resource_name)
        seen.add(each.resource_name)
        for said, allowed in (
            (each.resource_name, ("cpu", "memory")),
            (each.restart_policy, ("NotRequired", "RestartContainer")),
        ):
            yield from (one_of(field, said, allowed) if said else [required(field)])
        if pod.restart_policy == "Never" and each.restart_policy != "NotRequired":
            detail = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            yield invalid(field, each.restart_policy, detail)


def _of_security(context: _SecurityContext, field: str, pod: PodContext) -> Iterator[str]:
    yield from between(f"{field}.runAsUser", context.run_as_user, 0, MOST_ID)
    yield from between(f"{field}.runAsGroup", context.run_as_group, 0, MOST_ID)
    yield from one_of(f"{field}.procMount", context.proc_mount, ("Default", "Unmasked"))
    if pod.host_users and context.proc_mount == "Unmasked":
        yield invalid(f"{field}.procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`")
    yield from profile_problems(context.seccomp_profile, f"{field}.seccompProfile", "seccomp")
    if context.allow_privilege_escalation is False:
        if context.privileged:
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield invalid(field, context, detail)
        if "CAP_SYS_ADMIN" in context.capabilities.add:
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield invalid(field, context, detail)
    yield from profile_problems(context.app_armor_profile, f"{field}.appArmorProfile", "AppArmor")


def profile_problems(profile: SecurityProfile | None, field: str, what: str) -> Iterator[str]:
    """Check a profile. `what` is seccomp or AppArmor."""
    if profile is None:
        return
    if not profile.type:
        yield required(f"{field}.type", f"type is required when {field.rpartition('.')[2]} is set")
    else:
        yield from one_of(f"{field}.type", profile.type, _PROFILES)
    local, at = profile.localhost_profile, f"{field}.localhostProfile"
    if profile.type == "Localhost":
        yield from present(at, local or "", f"must be set when {what} type is Localhost")
    elif local is not None and (what == "seccomp" or profile.type in _PROFILES):
        yield invalid(at, local, f"can only be set when {what} type is Localhost")


def _while_it_runs(container: Container, at: str, pod: PodContext) -> Iterator[str]:
    if container.lifecycle is not None:
        yield from lifecycle_problems(container.lifecycle, f"{at}.lifecycle", pod.grace)
    probes = (
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
        ("startupProbe", container.startup_probe),
    )
    for name, probe in probes:
        if probe is not None:
            yield from probe_problems(probe, f"{at}.{name}", pod.grace)
