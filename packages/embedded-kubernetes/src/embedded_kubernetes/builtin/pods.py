"""Pods: preparation, validation, field selectors and grace periods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..errors import Cause
from ..resource import Object, Resource
from .causes import forbidden
from .kind import Logic
from .metadata import USERS, carry_over, check, check_update, raise_generation, restore
from .placement import merge_label_keys
from .pod_defaults import default_pod
from .pod_resources import qos_class
from .pod_spec import check_pod_spec
from .pod_update import check_pod_status, check_resize, check_spec_update, resized


def _prepare_create(pod: Object) -> None:
    """Set the initial status: Pending, and for a gated pod the condition SchedulingGated (KEP-3521)."""
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["generation"] = 1
    status: dict[str, Any] = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": metadata.get("creationTimestamp"),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    status["qosClass"] = qos_class(spec)
    pod["status"] = status
    if "affinity" in spec or "topologySpreadConstraints" in spec:
        merge_label_keys(pod)


def _prepare_update(pod: Object, old: Object, subresource: str) -> None:
    carry_over(pod, old)
    if subresource == "status":
        pod["spec"] = old["spec"]
        restore(pod["metadata"], old["metadata"], ("ownerReferences",))
        status, before = pod.setdefault("status", {}), old.get("status") or {}
        for field in ("qosClass", "observedGeneration"):
            if not status.get(field) and field in before:
                status[field] = before[field]
        _keep_observed_generations(status, before)
        return
    if subresource == "ephemeralcontainers":
        added = (pod.get("spec") or {}).get("ephemeralContainers")
        pod["spec"] = dict(old["spec"])
        pod["spec"].pop("ephemeralContainers", None)
        if added:
            pod["spec"]["ephemeralContainers"] = added
    if subresource == "resize":
        pod["spec"] = resized(pod.get("spec") or {}, old["spec"])
        restore(pod["metadata"], old["metadata"], USERS)
    pod["status"] = old["status"]
    keep_priority(pod, old)
    if pod["spec"] != old["spec"]:
        raise_generation(pod)


def keep_priority(pod: Object, old: Object) -> None:
    """Keep the priority that the Priority admission plugin set, if an update omits it."""
    spec, before = pod["spec"], old["spec"]
    for field in ("priority", "preemptionPolicy"):
        if spec.get(field) is None and field in before:
            spec[field] = before[field]


def _keep_observed_generations(status: dict[str, Any], before: dict[str, Any]) -> None:
    known = {
        condition.get("type"): condition["observedGeneration"]
        for condition in before.get("conditions") or ()
        if condition.get("observedGeneration")
    }
    if known:
        for condition in status.get("conditions") or ():
            if not condition.get("observedGeneration") and condition.get("type") in known:
                condition["observedGeneration"] = known[condition["type"]]


def _validate(pod: Object, old: Object | None) -> Iterator[Cause]:
    metadata, spec = pod["metadata"], pod["spec"]
    if old is None:
        yield from check(metadata)
        yield from check_pod_spec(spec, "spec", is_pod=True)
        if spec.get("ephemeralContainers"):
            yield forbidden("spec.ephemeralContainers", "cannot be set on create")
        if spec.get("nodeName") and spec.get("schedulingGates"):
            yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
        return
    yield from check_update(metadata, old["metadata"])
    before = old["spec"]
    if spec != before:
        yield from check_pod_spec(spec, "spec", is_pod=True)
        yield from check_spec_update(spec, before)


def _validate_ephemeral(pod: Object, old: Object) -> Iterator[Cause]:
    """Check a write to ephemeralcontainers. `_prepare_update` has copied the rest of the stored spec."""
    spec, before = pod["spec"], old["spec"]
    yield from check_update(pod["metadata"], old["metadata"])
    if spec != before:
        yield from check_pod_spec(spec, "spec", is_pod=True)
        yield from _check_ephemeral_update(spec, before)


def _check_ephemeral_update(spec: dict[str, Any], before: dict[str, Any]) -> Iterator[Cause]:
    """Check that ephemeral containers are only added."""
    now = {container.get("name"): container for container in spec.get("ephemeralContainers") or ()}
    for container in before.get("ephemeralContainers") or ():
        name = container.get("name")
        if name not in now:
            detail = f'existing ephemeral containers "{name}" may not be removed\n'
            yield forbidden("spec.ephemeralContainers", detail)
        elif now[name] != container:
            detail = f'existing ephemeral containers "{name}" may not be changed\n'
            yield forbidden("spec.ephemeralContainers", detail)


def _validate_status(pod: Object, old: Object) -> Iterator[Cause]:
    yield from check_update(pod["metadata"], old["metadata"], rechecks="change")
    yield from check_pod_status(pod, old)


def _validate_resize(pod: Object, old: Object) -> Iterator[Cause]:
    yield from check_update(pod["metadata"], old["metadata"])
    yield from check_pod_spec(pod["spec"], "spec", is_pod=True)
    yield from check_resize(pod["spec"], old["spec"], old["status"].get("qosClass"))


def _fields(pod: Object) -> dict[str, str]:
    spec, status = pod["spec"], pod.get("status") or {}
    return {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"].get("namespace", ""),
        "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.restartPolicy": spec.get("restartPolicy", ""),
        "spec.schedulerName": spec.get("schedulerName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        "status.phase": status.get("phase", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
    }


#: `metadata.name` and `metadata.namespace` are selectable for all kinds.
_FIELDS = tuple(_fields({"metadata": {"name": ""}, "spec": {}}))[2:]


def grace(pod: Object) -> int:
    """Return the grace period in seconds of a delete without gracePeriodSeconds; 0 for a pod that is not running."""
    return effective_grace(pod, pod["spec"].get("terminationGracePeriodSeconds", 0))


def effective_grace(pod: Object, seconds: int) -> int:
    """Return `seconds`; 0 for a pod that is unscheduled or has ended, and 1 for a negative number."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return seconds if seconds >= 0 else 1


def _direct(resource: Resource) -> Resource:
    """Return the resource with direct functions, because pods are written far more often than all other kinds."""
    return replace(
        resource,
        default=default_pod,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_below={
            "status": _validate_status,
            "ephemeralcontainers": _validate_ephemeral,
            "resize": _validate_resize,
        },
        fields=_fields,
    )


LOGIC = {("", "Pod"): Logic(field_names=_FIELDS, grace=grace, direct=_direct)}
