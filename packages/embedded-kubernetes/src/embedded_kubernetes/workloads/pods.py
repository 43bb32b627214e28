"""Pods as their controllers see them. Pure."""

from __future__ import annotations

from typing import NamedTuple

from .. import nesting
from ..conditions import find
from ..resource import Object
from ..store import Record
from ..times import parse

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
FINAL = ("Succeeded", "Failed")


class Pod(NamedTuple):
    """One pod. Times are seconds since 1970. `ready_since` is None if the pod is not ready."""

    record: Record
    obj: Object
    phase: str
    deleting: bool
    ready_since: float | None
    restarts: int

    @property
    def is_active(self) -> bool:
        """Whether it counts as running or starting (`IsPodActive`)."""
        return self.phase not in FINAL and not self.deleting

    def is_available(self, now: float, seconds: float) -> bool:
        """Return whether it has been ready for `seconds`."""
        return self.ready_since is not None and self.ready_since + seconds <= now


def read(record: Record) -> Pod:
    obj = nesting.loads(record.data)
    status = obj.get("status") or {}
    ready = find(status.get("conditions") or (), "Ready")
    since = None
    if ready is not None and ready["status"] == "True":
        changed = ready.get("lastTransitionTime")
        since = parse(changed).timestamp() if changed else 0.0
    reports = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    restarts = sum(each.get("restartCount", 0) for each in reports)
    return Pod(record, obj, status.get("phase") or "Pending", record.deleting, since, restarts)


def surplus(pods: list[Pod], count: int) -> list[Pod]:
    """Return the `count` active pods to delete first (`ActivePodsWithRanks` in pkg/controller/controller_utils.go).

    The order is: without a node, not running, not ready, lower deletion cost, ready more recently, more
    restarts, younger.
    """

    def rank(pod: Pod) -> tuple[bool, int, bool, int, float, int, int]:
        annotations = pod.obj["metadata"].get("annotations") or {}
        text = annotations.get(DELETION_COST, "")
        cost = int(text) if text.removeprefix("-").isdecimal() else 0
        running = {"Pending": 0, "Unknown": 1}.get(pod.phase, 2)
        since = pod.ready_since
        return (
            bool(pod.obj["spec"].get("nodeName")),
            running,
            since is not None,
            cost,
            0.0 if since is None else -since,
            -pod.restarts,
            -_age(pod),
        )

    return sorted(pods, key=rank)[:count]


def _age(pod: Pod) -> int:
    return int(parse(pod.obj["metadata"]["creationTimestamp"]).timestamp())


def from_template(template: Object, owner: Object, generate: str) -> Object:
    """Return a pod to create from the template."""
    metadata = template.get("metadata") or {}
    made: Object = {"generateName": generate, "ownerReferences": [owner]}
    for key in ("labels", "annotations"):
        if metadata.get(key):
            made[key] = dict(metadata[key])
    if metadata.get("finalizers"):
        made["finalizers"] = list(metadata["finalizers"])
    return {"metadata": made, "spec": dict(template["spec"])}
