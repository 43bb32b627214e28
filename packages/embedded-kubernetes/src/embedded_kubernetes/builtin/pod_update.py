"""Mutable fields of a pod.

An update may change images and the deadline, add tolerations and remove gates. While the pod is gated, it may also
tighten node selection (KEP-3521, KEP-3838). The subresource resize changes cpu and memory of containers (KEP-1287)
and of the pod (KEP-5419). It follows `ValidatePodResize` and `dropNonResizeUpdates` of kube-apiserver 1.36; the
kubelet reports its progress.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from . import names
from .causes import check_format, check_name, check_range, duplicate, forbidden, immutable, invalid, required
from .containers import check_image_spaces
from .placement import check_tolerations
from .pod_resources import qos_class

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ALLOWED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
#: Fields that are compared separately.
_JUDGED_APART = ("containers", "initContainers", "activeDeadlineSeconds", "schedulingGates", "tolerations")


def _same(left: Any, right: Any) -> bool:
    """Return whether values are semantically equal as in Go: absent, null and empty lists or maps are equal."""
    return left == right or (not left and not right and not isinstance(left or right, bool | int | str))


def check_spec_update(spec: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """Check the update of a defaulted spec."""
    if spec == old:
        return
    for field in ("containers", "initContainers"):
        now, before = spec.get(field) or [], old.get(field) or []
        if len(now) != len(before):
            yield forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
        for index, container in enumerate(now):
            if not container.get("image"):
                yield required(f"spec.{field}[{index}].image")
        yield from check_image_spaces(now, f"spec.{field}")
    deadline = _check_deadline(spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    if deadline:
        yield from deadline
        return
    yield from _check_tolerations(spec.get("tolerations") or [], old.get("tolerations") or [])
    gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in gates:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", detail)
    apart = {*_JUDGED_APART}
    before_grace = old.get("terminationGracePeriodSeconds")
    if before_grace is not None and before_grace < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        apart.add("terminationGracePeriodSeconds")
    affinity, old_affinity = spec.get("affinity") or {}, old.get("affinity") or {}
    if gates:
        apart |= {"nodeSelector", "affinity"}
        yield from _check_node_selector(spec.get("nodeSelector") or {}, old.get("nodeSelector") or {})
        yield from _check_node_affinity(affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity"))
    changed = [
        field
        for field in sorted(spec.keys() | old.keys())
        if field not in apart and not _same(spec.get(field), old.get(field))
    ]
    if gates:
        changed += [
            f"affinity.{field}"
            for field in ("podAffinity", "podAntiAffinity")
            if not _same(affinity.get(field), old_affinity.get(field))
        ]
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            before = (old.get(field) or [])[index]
            changed += [
                f"{field}[{index}].{name}"
                for name in sorted(container.keys() | before.keys())
                if name != "image" and not _same(container.get(name), before.get(name))
            ]
    if changed:
        yield forbidden("spec", f"{_ALLOWED}\nchanged: {', '.join(changed)}\n")


def _check_deadline(now: int | None, before: int | None) -> list[Cause]:
    path = "spec.activeDeadlineSeconds"
    if now is not None:
        if causes := check_range(path, now, low=0, high=2**31 - 1):
            return causes
        if before is not None and before < now:
            return [invalid(path, now, "must be less than or equal to previous value")]
    elif before is not None:
        return [invalid(path, None, "must not update from a positive integer to nil value")]
    return []


def _check_tolerations(now: list[dict[str, Any]], before: list[dict[str, Any]]) -> Iterator[Cause]:
    if now == before:
        return
    kept = [_without_seconds(toleration) for toleration in now]
    if any(_without_seconds(toleration) not in kept for toleration in before):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", detail)
        return
    yield from check_tolerations(now, "spec.tolerations")


def _without_seconds(toleration: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds" and value != ""}


def _check_node_selector(now: dict[str, Any], before: dict[str, Any]) -> Iterator[Cause]:
    if all(key in now and now[key] == value for key, value in before.items()):
        return
    yield invalid(
        "spec.nodeSelector", now, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    )


def _check_node_affinity(now: dict[str, Any] | None, before: dict[str, Any] | None) -> Iterator[Cause]:
    """Check that required terms only become narrower: as many terms, each with its old requirements at least."""
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}"
    required_now, required_before = (now or {}).get(_REQUIRED), (before or {}).get(_REQUIRED)
    if not required_before:
        return
    if not required_now:
        yield invalid(path, None, "no deletions or mutations are allowed")
        return
    terms, old_terms = required_now.get("nodeSelectorTerms") or [], required_before["nodeSelectorTerms"]
    if len(terms) != len(old_terms):
        yield invalid(
            f"{path}.nodeSelectorTerms", terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        )
        return
    for index, (term, old_term) in enumerate(zip(terms, old_terms, strict=True)):
        for field in ("matchExpressions", "matchFields"):
            kept = old_term.get(field) or []
            found = term.get(field) or []
            narrowed = found[: len(kept)] == kept and (
                bool(old_term.get("matchExpressions") or old_term.get("matchFields")) or not found
            )
            if not narrowed:
                detail = "only additions are allowed (no mutations or deletions)"
                yield invalid(f"{path}.nodeSelectorTerms[{index}].{field}", found, detail)


def check_pod_status(pod: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """Check a write to the subresource status."""
    status, before = pod.get("status") or {}, old.get("status") or {}
    for index, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type", "")
        if kind not in ("PodScheduled", "Ready", "Initialized"):
            yield from check_format(f"metadata.conditions[{index}].Type", kind, names.qualified)
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName"):
        yield from check_format("status.nominatedNodeName", nominated, names.subdomain)
    if status.get("qosClass") != before.get("qosClass"):
        yield immutable("status.qosClass", status.get("qosClass"))
    spec = old["spec"]
    restart = spec.get("restartPolicy")
    stays = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    for field, policy in (
        ("containerStatuses", restart),
        ("initContainerStatuses", restart),
        ("ephemeralContainerStatuses", "Never"),
    ):
        keep = stays if field == "initContainerStatuses" else set()
        yield from _check_transitions(status.get(field) or [], before.get(field) or [], f"status.{field}", policy, keep)
    yield from _check_claim_statuses(status.get("resourceClaimStatuses") or [], spec)
    if (extended := status.get("extendedResourceClaimStatus")) is not None:
        yield from _check_extended_claim(extended, spec)
    for field in ("podIPs", "hostIPs"):
        for index, entry in enumerate(status.get(field) or ()):
            ip = entry.get("ip", "")
            yield from check_format(f"status.{field}[{index}]", ip, names.ip)


def _check_transitions(
    now: list[dict[str, Any]], before: list[dict[str, Any]], path: str, restart: str | None, stays: set[Any]
) -> Iterator[Cause]:
    """Check that terminated containers that may not restart are not reported as running."""
    if restart == "Always":
        return
    by_name = {container.get("name"): container for container in now}
    for index, container in enumerate(before):
        ended = (container.get("state") or {}).get("terminated")
        if ended is None or container.get("name") in stays:
            continue
        if ended.get("exitCode", 0) != 0 and restart == "OnFailure":
            continue
        current = by_name.get(container.get("name"))
        if current is not None and (current.get("state") or {}).get("terminated") is None:
            yield forbidden(f"{path}[{index}].state", "may not be transitioned to non-terminated state")


def _check_claim_statuses(statuses: list[dict[str, Any]], spec: dict[str, Any]) -> Iterator[Cause]:
    known = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for index, status in enumerate(statuses):
        at, name = f"status.resourceClaimStatuses[{index}].name", status.get("name", "")
        if name not in known:
            yield invalid(at, name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            yield duplicate(at, name)
        seen.add(name)
        if claim := status.get("resourceClaimName"):
            yield from check_format(at, claim, names.subdomain)


def _check_extended_claim(status: dict[str, Any], spec: dict[str, Any]) -> Iterator[Cause]:
    """Check the claim for a pod's extended resources and its mapping to containers' requests (KEP-5004)."""
    at = "status.extendedResourceClaimStatus"
    asked = {
        container.get("name"): (container.get("resources") or {}).get("requests") or {}
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    }
    mappings = status.get("requestMappings") or []
    if not mappings:
        yield required(f"{at}.requestMappings", "at least one request mapping is required")
    seen: set[tuple[str, str, str]] = set()
    for index, mapping in enumerate(mappings):
        here = f"{at}.requestMappings[{index}]"
        container, resource = mapping.get("containerName", ""), mapping.get("resourceName", "")
        request = mapping.get("requestName", "")
        if container not in asked:
            yield invalid(f"{here}.containerName", container, "must be the name of a container")
        elif resource not in asked[container]:
            yield invalid(f"{here}.resourceName", resource, "must be requested by the container")
        yield from check_format(f"{here}.requestName", request, names.label)
        if (container, resource, request) in seen:
            yield duplicate(here, mapping)
        seen.add((container, resource, request))
    claim = status.get("resourceClaimName", "")
    yield from check_name(f"{at}.resourceClaimName", claim, names.subdomain)


Spec = dict[str, Any]

_GROUPS = ("containers", "initContainers")
_RESIZED = ("resources", "resizePolicy")
_MUTABLE = ("cpu", "memory")


def resized(spec: Spec, before: Spec) -> Spec:
    """Return `before` with the resources of `spec`, without other changes.

    A change of the list of containers is kept, so that `check_resize` reports it.
    """
    result = dict(before)
    for group in _GROUPS:
        now, was = spec.get(group) or [], before.get(group) or []
        if [found.get("name") for found in now] != [found.get("name") for found in was]:
            result[group] = now
        elif was:
            result[group] = [_with_amounts(old, new) for old, new in zip(was, now, strict=True)]
    if before.get("resources") and spec.get("resources"):
        result["resources"] = spec["resources"]
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
    """Check a resize. `spec` is the result of `resized`; `qos` is the pod's class, which may not change."""
    ordering = [cause for group in _GROUPS for cause in _check_order(spec, before, group)]
    if ordering:
        yield from ordering
        return
    if qos and qos_class(spec) != qos:
        yield invalid("spec", qos, "Pod QOS Class may not change as a result of resizing")
    yield from _check_removed(spec, before, "spec.resources")
    whole, was = ({"resources": each.get("resources") or {}} for each in (spec, before))
    if _without_mutable(whole) != _without_mutable(was):
        yield forbidden("spec", "only cpu and memory resources are mutable\nchanged: resources\n")
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
    """Return the container without cpu and memory, and without maps that are then empty."""
    found = dict(container)
    amounts = dict(found.pop("resources", None) or {})
    for field in ("requests", "limits"):
        kept = {name: value for name, value in (amounts.pop(field, None) or {}).items() if name not in _MUTABLE}
        if kept:
            amounts[field] = kept
    if amounts:
        found["resources"] = amounts
    return found
