"""Checks of security contexts, of pods and of containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from .causes import check_choice, check_one_of, check_range, duplicate, invalid, required

_MAX_ID = 2**31 - 1
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")


def _check_profile(context: dict[str, Any], path: str, name: str) -> Iterator[Cause]:
    """`seccompProfile` or `appArmorProfile` of a context."""
    profile = context.get(name)
    if profile is None:
        return
    shown = "seccomp" if name == "seccompProfile" else "AppArmor"
    kind, local = profile.get("type"), profile.get("localhostProfile")
    if not kind:
        yield required(f"{path}.{name}.type", f"type is required when {name} is set")
    else:
        yield from check_one_of(f"{path}.{name}.type", kind, _PROFILES)
    if kind == "Localhost":
        if not local:
            yield required(f"{path}.{name}.localhostProfile", f"must be set when {shown} type is Localhost")
    elif local is not None and (kind in _PROFILES or shown == "seccomp"):
        detail = f"can only be set when {shown} type is Localhost"
        yield invalid(f"{path}.{name}.localhostProfile", local, detail)


def _check_ids(context: dict[str, Any], path: str, fields: tuple[str, ...]) -> Iterator[Cause]:
    for field in fields:
        if (number := context.get(field)) is not None:
            yield from check_range(f"{path}.{field}", number, low=0, high=_MAX_ID)


def check_pod_security(context: dict[str, Any], path: str, spec: dict[str, Any]) -> Iterator[Cause]:
    """A pod's `securityContext`, and the host namespaces that the spec asks for."""
    yield from _check_ids(context, path, ("fsGroup", "runAsUser", "runAsGroup"))
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from check_range(f"{path}.supplementalGroups[{index}]", group, low=0, high=_MAX_ID)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.shareProcessNamespace", True, detail)
    seen: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        at, name = f"{path}.sysctls[{index}].name", sysctl.get("name", "")
        if not name:
            yield required(at)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            yield invalid(at, name, f"must have at most 253 characters and match regex ^{_SYSCTL.pattern}$")
        elif name in seen:
            yield duplicate(at, name)
        seen.add(name)
    yield from _check_choice(context, path, "fsGroupChangePolicy", ("Always", "OnRootMismatch"))
    yield from _check_profile(context, path, "seccompProfile")
    yield from _check_profile(context, path, "appArmorProfile")
    yield from _check_choice(context, path, "supplementalGroupsPolicy", ("Merge", "Strict"))
    yield from _check_choice(context, path, "seLinuxChangePolicy", ("MountOption", "Recursive"))


def _check_choice(context: dict[str, Any], path: str, field: str, allowed: tuple[str, ...]) -> list[Cause]:
    return check_choice(f"{path}.{field}", context.get(field), allowed)


def check_container_security(context: dict[str, Any], path: str, *, host_users: bool) -> Iterator[Cause]:
    yield from _check_ids(context, path, ("runAsUser", "runAsGroup"))
    yield from _check_choice(context, path, "procMount", ("Default", "Unmasked"))
    if host_users and context.get("procMount") == "Unmasked":
        detail = "`hostUsers` must be false to use `Unmasked`"
        yield invalid(f"{path}.procMount", "Unmasked", detail)
    yield from _check_profile(context, path, "seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield invalid(path, context, detail)
        for capability in (context.get("capabilities") or {}).get("add") or ():
            if capability == "CAP_SYS_ADMIN":
                detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
                yield invalid(path, context, detail)
    yield from _check_profile(context, path, "appArmorProfile")
