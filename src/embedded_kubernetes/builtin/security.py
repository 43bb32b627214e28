"""Checks of security contexts, of pods and of containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from .causes import invalid
from .rules import check_part


def check_pod_security(context: dict[str, Any], path: str, spec: dict[str, Any]) -> Iterator[Cause]:
    """A pod's `securityContext`, and the host namespaces that the spec asks for."""
    yield from check_part("podIds", context, path)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.shareProcessNamespace", True, detail)
    yield from check_part("podSecurity", context, path)


def check_container_security(context: dict[str, Any], path: str, *, host_users: bool) -> Iterator[Cause]:
    yield from check_part("containerIds", context, path)
    if host_users and context.get("procMount") == "Unmasked":
        detail = "`hostUsers` must be false to use `Unmasked`"
        yield invalid(f"{path}.procMount", "Unmasked", detail)
    yield from check_part("containerSecurity", context, path)
