"""What a write to a pod's `resize` may change: cpu and memory of its containers (KEP-1287).

Follows `ValidatePodResize` and `dropNonResizeUpdates` of kube-apiserver 1.36. No kubelet here takes time over a
resize or puts it off, so the status says nothing of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from .causes import forbidden, invalid
from .pod_resources import qos_class

Spec = dict[str, Any]

_GROUPS = ("containers", "initContainers")
_RESIZED = ("resources", "resizePolicy")
_MUTABLE = ("cpu", "memory")


def resized(spec: Spec, before: Spec) -> Spec:
    """`before` with the amounts of `spec`; all other changes are dropped, but for a change of the containers
    themselves, which stays for `check_resize` to refuse."""
    result = dict(before)
    for group in _GROUPS:
        now, was = spec.get(group) or [], before.get(group) or []
        if [found.get("name") for found in now] != [found.get("name") for found in was]:
            result[group] = now
        elif was:
            result[group] = [_with_amounts(old, new) for old, new in zip(was, now, strict=True)]
    return result


def _with_amounts(old: Spec, new: Spec) -> Spec:
    found = dict(old)
    for field in _RESIZED:
        if new.get(field) is not None:
            found[field] = new[field]
        else:
            found.pop(field, None)
    return found


def check_resize(spec: Spec, before: Spec, qos: str | None) -> Iterator[Cause]:
    """`spec` is what `resized` made; `qos` is the pod's class, which a resize may not change."""
    ordering = [cause for group in _GROUPS for cause in _check_order(spec, before, group)]
    if ordering:
        yield from ordering
        return
    now = qos_class(spec)
    if qos and now != qos:
        yield invalid("spec", now, "Pod QOS Class may not change as a result of resizing")
    for group in _GROUPS:
        pairs = zip(spec.get(group) or (), before.get(group) or (), strict=True)
        for index, (container, old) in enumerate(pairs):
            at = f"spec.{group}[{index}].resources"
            if container == old:
                continue
            if group == "initContainers" and old.get("restartPolicy") != "Always":
                yield forbidden(at, "resources for non-sidecar init containers are immutable")
            yield from _check_removed(container, old, at)
            if _without_mutable(container) != _without_mutable(old):
                detail = f"only cpu and memory resources are mutable\nchanged: {group}[{index}]\n"
                yield forbidden("spec", detail)


def _check_order(spec: Spec, before: Spec, group: str) -> Iterator[Cause]:
    now, was = spec.get(group) or [], before.get(group) or []
    if len(now) != len(was):
        yield forbidden(f"spec.{group}", "containers may not be added or removed on resize")
        return
    yield from (
        forbidden(f"spec.{group}[{index}].name", "containers may not be renamed or reordered on resize")
        for index, (container, old) in enumerate(zip(now, was, strict=True))
        if container.get("name") != old.get("name")
    )


def _check_removed(container: Spec, old: Spec, at: str) -> list[Cause]:
    amounts, before = container.get("resources") or {}, old.get("resources") or {}
    return [
        forbidden(f"{at}.{field}", f"resource {field} cannot be removed")
        for field in ("requests", "limits")
        if any(name not in (amounts.get(field) or {}) for name in before.get(field) or {})
    ]


def _without_mutable(container: Spec) -> Spec:
    """A container less its cpu and memory, and less what is empty then."""
    found = dict(container)
    amounts = dict(found.pop("resources", None) or {})
    for field in ("requests", "limits"):
        kept = {
            name: value for name, value in (amounts.pop(field, None) or {}).items() if name not in _MUTABLE
        }
        if kept:
            amounts[field] = kept
    if amounts:
        found["resources"] = amounts
    return found
