"""Nodes: defaults and validation."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import Cause
from ..resource import Object
from . import names
from .amounts import check_amount
from .causes import check_format, duplicate, forbidden
from .kind import Logic
from .placement import check_taints


def _default(node: Object) -> None:
    spec = node.setdefault("spec", {})
    # `podCIDR` is the first item of `podCIDRs`.
    if cidr := spec.get("podCIDR"):
        if not spec.get("podCIDRs"):
            spec["podCIDRs"] = [cidr]
    elif cidrs := spec.get("podCIDRs"):
        spec["podCIDR"] = cidrs[0]
    status = node.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _check_spec(node: Object) -> Iterator[Cause]:
    spec = node.get("spec") or {}
    yield from check_taints(spec.get("taints") or [])
    yield from _check_amounts(node)
    for index, cidr in enumerate(spec.get("podCIDRs") or ()):
        yield from check_format(f"spec.podCIDRs[{index}]", cidr, names.cidr)


def _check_amounts(node: Object) -> list[Cause]:
    status = node.get("status") or {}
    return [
        cause
        for field in ("capacity", "allocatable")
        for name, amount in (status.get(field) or {}).items()
        for cause in check_amount(name, amount, f"status.{field}.{name}")
    ]


def _check(node: Object, old: Object | None) -> Iterator[Cause]:
    yield from _check_spec(node)
    if old is not None:
        yield from _check_update(node, old)


def _check_update(node: Object, old: Object) -> Iterator[Cause]:
    spec, before = node.get("spec") or {}, old.get("spec") or {}
    yield from _check_amounts(node)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate((node.get("status") or {}).get("addresses") or ()):
        key = (address.get("type", ""), address.get("address", ""))
        if key in seen:
            yield duplicate(f"status.addresses[{index}]", address)
        seen.add(key)
    now, then = spec.get("podCIDRs") or [], before.get("podCIDRs") or []
    if then and now != then:
        detail = 'node updates may not change podCIDR except from "" to valid'
        changed = 1 if len(now) != len(then) else sum(a != b for a, b in zip(now, then, strict=True))
        yield from [forbidden("spec.podCIDRs", detail)] * changed
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        yield forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
    yield from check_taints(spec.get("taints") or [])


LOGIC = {("", "Node"): Logic(default=_default, check=_check, check_status=_check_update)}
