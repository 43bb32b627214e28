"""Checks templates of pods as the API server would check each pod created from them.

The words are those of Kubernetes' `ValidatePodTemplate`. Volume sources whose driver Kubernetes no longer has (iSCSI,
RBD, disks of clouds) and fields for Windows are not checked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apimachinery.wire import Resources, Wire

from . import names
from .field_problems import (
    annotation_problems,
    between,
    duplicate,
    forbidden,
    formatted,
    invalid,
    label_problems,
    one_of,
    required,
    unsupported,
)
from .pod_containers import (
    MOST_ID,
    Container,
    PodContext,
    SecurityProfile,
    container_problems,
    init_problems,
    profile_problems,
)
from .pod_placement import (
    Affinity,
    SchedulingGate,
    Toleration,
    TopologySpreadConstraint,
    affinity_problems,
    gate_problems,
    spread_problems,
    toleration_problems,
)
from .pod_resources import Amounts, nano_of, pod_resource_problems, resource_problems
from .pod_volumes import TemplateMetadata, Volume, block_devices, volume_problems

_ALWAYS: Final = "Always"
_RESTART: Final = (_ALWAYS, "OnFailure", "Never")
_NO_DNS: Final = "None"
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", _NO_DNS)
_PREEMPTION: Final = ("PreemptLowerPriority", "Never")
_SYSTEMS: Final = ("linux", "windows")
_DEFAULT_GRACE: Final = 30
_MOST_NAMESERVERS: Final = 3
_MOST_SEARCHES: Final = 32
_LONGEST_SEARCHES: Final = 2048
_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_LONGEST_SYSCTL: Final = 253


class _NamedEntry(Wire, frozen=True):
    name: str = ""


class _DnsConfig(Wire, frozen=True):
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[_NamedEntry, ...] = ()


class _PodSecurityContext(Wire, frozen=True):
    fs_group: int | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    sysctls: tuple[_NamedEntry, ...] = ()
    fs_group_change_policy: str | None = None
    seccomp_profile: SecurityProfile | None = None
    app_armor_profile: SecurityProfile | None = None
    supplemental_groups_policy: str | None = None
    se_linux_change_policy: str | None = msgspec.field(default=None, name="seLinuxChangePolicy")


class _PodResourceClaim(Wire, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Alias(Wire, frozen=True):
    ip: str = ""
    hostnames: tuple[str, ...] = ()


class _ReadinessGate(Wire, frozen=True):
    condition_type: str = ""


class _PodSpec(Wire, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[dict[str, Any], ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[_PodResourceClaim, ...] = ()
    resources: Amounts = Amounts()
    restart_policy: str = ""
    dns_policy: str = ""
    dns_config: _DnsConfig | None = None
    node_selector: dict[str, str] | None = None
    security_context: _PodSecurityContext = _PodSecurityContext()
    share_process_namespace: bool = False
    host_network: bool = False
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_users: bool = True
    affinity: Affinity = Affinity()
    readiness_gates: tuple[_ReadinessGate, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    service_account_name: str = ""
    node_name: str = ""
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    hostname: str = ""
    subdomain: str = ""
    host_aliases: tuple[_Alias, ...] = ()
    priority_class_name: str = ""
    runtime_class_name: str | None = None
    preemption_policy: str | None = None
    overhead: Resources | None = None
    os: _NamedEntry | None = None


class PodTemplate(Wire, frozen=True):
    """The metadata and the spec of pods, as far as they are checked."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: _PodSpec = _PodSpec()


def read_template(raw: msgspec.Raw) -> PodTemplate:
    """Decode a template. Raises msgspec.MsgspecError."""
    return msgspec.convert(_without_nulls(msgspec.json.decode(raw)) or {}, PodTemplate)


def _without_nulls(value: Any) -> Any:
    """Remove null fields, which mean the same as missing ones."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def template_problems(template: PodTemplate, field: str) -> Iterator[str]:
    """Yield what is wrong with a template; `field` is its path in the object that has it."""
    yield from label_problems(f"{field}.labels", template.metadata.labels)
    yield from annotation_problems(f"{field}.annotations", template.metadata.annotations)
    yield from _of_spec(template.spec, f"{field}.spec")
    if template.spec.ephemeral_containers:
        yield forbidden(f"{field}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")


def _of_spec(spec: _PodSpec, field: str) -> Iterator[str]:
    yield from volume_problems(spec.volumes, f"{field}.volumes")
    yield from _of_claims(spec, f"{field}.resourceClaims")
    grace = spec.termination_grace_period_seconds
    pod = PodContext(
        volumes=frozenset(volume.name for volume in spec.volumes),
        devices=block_devices(spec.volumes),
        claims=frozenset(claim.name for claim in spec.resource_claims),
        grace=_DEFAULT_GRACE if grace is None else grace,
        restart_policy=spec.restart_policy,
        host_users=spec.host_users,
    )
    yield from container_problems(spec.containers, f"{field}.containers", pod)
    yield from init_problems(spec.init_containers, spec.containers, f"{field}.initContainers", pod)
    containers = [each.resources for each in spec.containers]
    yield from pod_resource_problems(spec.resources, containers, _together(spec), f"{field}.resources")
    if spec.host_network:
        yield from _of_host_network(spec, field)
    yield from one_of(f"{field}.restartPolicy", spec.restart_policy or None, _RESTART)
    yield from one_of(f"{field}.dnsPolicy", spec.dns_policy or None, _DNS)
    yield from label_problems(f"{field}.nodeSelector", spec.node_selector)
    yield from _of_security(spec, f"{field}.securityContext")
    yield from affinity_problems(spec.affinity, f"{field}.affinity")
    yield from _of_dns(spec, f"{field}.dnsConfig")
    for index, gate in enumerate(spec.readiness_gates):
        at = f"{field}.readinessGates[{index}].conditionType"
        yield from formatted(at, gate.condition_type, names.qualified)
    yield from gate_problems(spec.scheduling_gates, f"{field}.schedulingGates")
    yield from spread_problems(spec.topology_spread_constraints, f"{field}.topologySpreadConstraints")
    yield from _of_users(spec, field)
    yield from _of_names(spec, field)
    yield from toleration_problems(spec.tolerations, f"{field}.tolerations")
    for index, alias in enumerate(spec.host_aliases):
        yield from formatted(f"{field}.hostAliases[{index}].ip", alias.ip, names.address)
        for number, name in enumerate(alias.hostnames):
            yield from formatted(f"{field}.hostAliases[{index}].hostnames[{number}]", name, names.subdomain)
    if spec.priority_class_name:
        yield from formatted(f"{field}.priorityClassName", spec.priority_class_name, names.subdomain)
    if spec.runtime_class_name:
        yield from formatted(f"{field}.runtimeClassName", spec.runtime_class_name, names.subdomain)
    yield from one_of(f"{field}.preemptionPolicy", spec.preemption_policy, _PREEMPTION)
    yield from resource_problems(Amounts(limits=spec.overhead), f"{field}.overhead")
    if spec.os is not None:
        if not spec.os.name:
            yield required(f"{field}.os.name", "cannot be empty")
        elif spec.os.name not in _SYSTEMS:
            yield unsupported(f"{field}.os", spec.os.name, _SYSTEMS)


def _of_claims(spec: _PodSpec, field: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, claim in enumerate(spec.resource_claims):
        at = f"{field}[{index}]"
        if not claim.name:
            yield required(f"{at}.name")
        elif claim.name in seen:
            yield duplicate(f"{at}.name", claim.name)
        else:
            yield from formatted(f"{at}.name", claim.name, names.label)
        seen.add(claim.name)
        given = {
            "resourceClaimName": claim.resource_claim_name,
            "resourceClaimTemplateName": claim.resource_claim_template_name,
        }
        said = {name: value for name, value in given.items() if value is not None}
        shown = {"name": claim.name, **said}
        if not said:
            yield invalid(at, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        elif len(said) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield invalid(at, shown, detail)
        for name, value in said.items():
            yield from formatted(f"{at}.{name}", value, names.subdomain)


def _together(spec: _PodSpec) -> dict[str, int]:
    """Return the simultaneous requests of the containers, in billionths.

    That is the maximum of the containers that run together, and of an init container with the sidecars before it.
    """
    running, sidecars, peak = Counter[str](), Counter[str](), Counter[str]()
    for container in spec.containers:
        running += _asked(container)
    for container in spec.init_containers:
        if container.restart_policy == _ALWAYS:
            sidecars += _asked(container)
        peak |= sidecars + (_asked(container) if container.restart_policy != _ALWAYS else Counter[str]())
    return (running + sidecars) | peak


def _asked(container: Container) -> Counter[str]:
    """Return the requests of a container, whose limits are the defaults."""
    resources = container.resources
    return Counter(
        {name: nano_of(said) for name, said in {**(resources.limits or {}), **(resources.requests or {})}.items()}
    )


def _of_host_network(spec: _PodSpec, field: str) -> Iterator[str]:
    for index, container in enumerate(spec.containers):
        for number, each in enumerate(container.ports):
            if each.host_port and each.host_port != each.container_port:
                at = f"{field}.containers[{index}].ports[{number}].hostPort"
                yield invalid(at, each.host_port, "must match `containerPort` when `hostNetwork` is true")


def _of_dns(spec: _PodSpec, field: str) -> Iterator[str]:
    config = spec.dns_config
    if spec.dns_policy == _NO_DNS:
        if config is None:
            yield required(field, "must provide `dnsConfig` when `dnsPolicy` is None")
        elif not config.nameservers:
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(f"{field}.nameservers", detail)
            return
    if config is None:
        return
    if len(config.nameservers) > _MOST_NAMESERVERS:
        detail = f"must not have more than {_MOST_NAMESERVERS} nameservers"
        yield invalid(f"{field}.nameservers", config.nameservers, detail)
    for index, server in enumerate(config.nameservers):
        yield from formatted(f"{field}.nameservers[{index}]", server, names.address)
    if len(config.searches) > _MOST_SEARCHES:
        detail = f"must not have more than {_MOST_SEARCHES} search paths"
        yield invalid(f"{field}.searches", config.searches, detail)
    if len(" ".join(config.searches)) > _LONGEST_SEARCHES:
        detail = f"must not have more than {_LONGEST_SEARCHES} characters (including spaces) in the search list"
        yield invalid(f"{field}.searches", config.searches, detail)
    for index, search in enumerate(config.searches):
        # A trailing dot makes it absolute, and a single dot is the root.
        if search != ".":
            name = search.removesuffix(".")
            for problem in names.search_path(name):
                yield invalid(f"{field}.searches[{index}]", search, problem)
    for index, option in enumerate(config.options):
        if not option.name:
            yield required(f"{field}.options[{index}]", "must not be empty")


def _of_security(spec: _PodSpec, field: str) -> Iterator[str]:
    context = spec.security_context
    numbers = {"fsGroup": context.fs_group, "runAsUser": context.run_as_user, "runAsGroup": context.run_as_group}
    for name, number in numbers.items():
        yield from between(f"{field}.{name}", number, 0, MOST_ID)
    for index, number in enumerate(context.supplemental_groups):
        yield from between(f"{field}.supplementalGroups[{index}]", number, 0, MOST_ID)
    if spec.share_process_namespace and spec.host_pid:
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{field}.shareProcessNamespace", True, detail)
    seen: set[str] = set()
    for index, sysctl in enumerate(context.sysctls):
        at = f"{field}.sysctls[{index}].name"
        if not sysctl.name:
            yield required(at)
        elif len(sysctl.name) > _LONGEST_SYSCTL or not re.fullmatch(_SYSCTL, sysctl.name):
            detail = f"must have at most {_LONGEST_SYSCTL} characters and match regex ^{_SYSCTL}$"
            yield invalid(at, sysctl.name, detail)
        elif sysctl.name in seen:
            yield duplicate(at, sysctl.name)
        seen.add(sysctl.name)
    yield from one_of(f"{field}.fsGroupChangePolicy", context.fs_group_change_policy, (_ALWAYS, "OnRootMismatch"))
    yield from profile_problems(context.seccomp_profile, f"{field}.seccompProfile", "seccomp")
    yield from profile_problems(context.app_armor_profile, f"{field}.appArmorProfile", "AppArmor")
    policy = context.supplemental_groups_policy
    yield from one_of(f"{field}.supplementalGroupsPolicy", policy, ("Merge", "Strict"))
    change = context.se_linux_change_policy
    yield from one_of(f"{field}.seLinuxChangePolicy", change, ("MountOption", "Recursive"))


def _of_users(spec: _PodSpec, field: str) -> Iterator[str]:
    """Check that user namespaces are not combined with the host's namespaces."""
    shared = (
        ("hostNetwork", spec.host_network),
        # Kubernetes spells these two like this.
        ("HostPID", spec.host_pid),
        ("HostIPC", spec.host_ipc),
    )
    if not spec.host_users:
        for name, is_shared in shared:
            if is_shared:
                yield forbidden(f"{field}.{name}", "when `hostUsers` is false")


def _of_names(spec: _PodSpec, field: str) -> Iterator[str]:
    for name, value in (("serviceAccountName", spec.service_account_name), ("nodeName", spec.node_name)):
        if value:
            yield from formatted(f"{field}.{name}", value, names.subdomain)
    yield from between(f"{field}.activeDeadlineSeconds", spec.active_deadline_seconds, 1, 2**31 - 1)
    for name, value in (("hostname", spec.hostname), ("subdomain", spec.subdomain)):
        if value:
            yield from formatted(f"{field}.{name}", value, names.label)
