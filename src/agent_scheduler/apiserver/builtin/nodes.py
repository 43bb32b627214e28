"""Nodes."""

from __future__ import annotations

from typing import Any

from ..errors import Cause
from ..resource import Object
from . import names
from .amounts import check_amount, check_node_amounts
from .causes import duplicate, forbidden, invalid
from .kind import builtin
from .metadata import check_annotations
from .placement import check_taints


def _default(node: Object) -> None:
    spec = node.setdefault("spec", {})
    # Two forms of one field: the first of the list is also answered alone.
    if cidr := spec.get("podCIDR"):
        if not spec.get("podCIDRs"):
            spec["podCIDRs"] = [cidr]
    elif cidrs := spec.get("podCIDRs"):
        spec["podCIDR"] = cidrs[0]
    status = node.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    # A decoder of Go structs writes these whole.
    info = status.setdefault("nodeInfo", {})
    for field in (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ):
        info.setdefault(field, "")
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {}).setdefault("Port", 0)


def _check_spec(spec: dict[str, Any]) -> list[Cause]:
    # The path says metadata for a field of the spec; so does a real server.
    causes = check_taints(spec["taints"], "metadata.taints") if spec.get("taints") else []
    for index, cidr in enumerate(spec.get("podCIDRs") or ()):
        causes += [invalid(f"spec.podCIDRs[{index}]", cidr, problem) for problem in names.cidr(cidr)]
    return causes


def _check(node: Object, old: Object | None) -> list[Cause]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    causes = _check_spec(spec)
    if old is None:
        for field in ("capacity", "allocatable"):
            causes += check_node_amounts(status.get(field) or {}, f"status.{field}")
        return causes
    return causes + _check_update(node, old)


def _check_update(node: Object, old: Object) -> list[Cause]:
    spec, before = node.get("spec") or {}, old.get("spec") or {}
    status = node.get("status") or {}
    causes: list[Cause] = []
    for field in ("capacity", "allocatable"):
        for name, amount in (status.get(field) or {}).items():
            causes += check_amount(name, amount, f"status.{field}.{name}")
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(status.get("addresses") or ()):
        key = (address.get("type", ""), address.get("address", ""))
        if key in seen:
            causes.append(duplicate(f"status.addresses[{index}]", address))
        seen.add(key)
    if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
        detail = 'node updates may not change podCIDR except from "" to valid'
        causes.append(forbidden("spec.podCIDRs", detail))
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        detail = 'node updates may not change providerID except from "" to valid'
        causes.append(forbidden("spec.providerID", detail))
    if spec.get("taints"):
        causes += check_taints(spec["taints"], "metadata.taints")
    annotations = node["metadata"].get("annotations")
    return causes + (check_annotations(annotations, "metadata.annotations") if annotations else [])


def _fields(node: Object) -> dict[str, str]:
    return {"spec.unschedulable": "true" if (node.get("spec") or {}).get("unschedulable") else "false"}


NODES = builtin(
    group="",
    version="v1",
    kind="Node",
    plural="nodes",
    namespaced=False,
    short_names=("no",),
    default=_default,
    check=_check,
    status=True,
    check_status=_check_update,
    field_names=("spec.unschedulable",),
    fields=_fields,
)
