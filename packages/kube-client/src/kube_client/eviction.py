"""Evicts a pod for another one: sets a condition in its status, then deletes it by name and UID.

The condition comes first, as in kube-scheduler, so that a Job's podFailurePolicy can distinguish the eviction from a
failure of the pod. The UID in both requests protects a new pod of the same name. PodDisruptionBudgets are not checked
here; the caller has taken them into account.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from apimachinery.times import time_text
from kube_client.answers import RequestInfo, Verb
from kube_client.budget import UNLIMITED, Budget
from kube_client.create import DELETE_ATTEMPTS, deletion, is_gone
from kube_client.driver import Driver, Send, repeat
from kube_client.errors import Failure
from kube_client.patch import CALLED_OFF, STRATEGIC, called_off, is_about_another_pod, is_conflict
from kube_client.retry import REAL, Timing
from kube_client.transport import PodIdentifier, Transport, pod_path

_encode = msgspec.json.Encoder().encode


class Evicted(enum.Enum):
    """The outcome of an eviction."""

    #: The API server accepted the deletion.
    DELETED = "deleted"
    #: The API server reports the pod as missing.
    GONE = "gone"
    #: `wanted` returned false before the deletion was sent.
    CALLED_OFF = "called off"
    #: The outcome is unknown.
    FAILED = "failed"


async def evict(
    transport: Transport,
    pod: PodIdentifier,
    *,
    message: str,
    wanted: Callable[[], bool],
    budget: Budget = UNLIMITED,
    timing: Timing = REAL,
) -> tuple[Evicted, Failure | None]:
    """Evict `pod`. `wanted` is called right before each request. Never raises for errors of network or server."""
    path = pod_path(pod)
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": time_text(timing.now()),
    }
    patch = _encode({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})
    asked = RequestInfo(Verb.PATCH, "pods", pod.name, pod.uid)
    driver = Driver(transport=transport, budget=budget, timing=timing, attempts=DELETE_ATTEMPTS)
    refuse = called_off(wanted)
    # A patch has no version, so a conflict comes from the server itself, which lost too many races for the pod.
    failure = await driver.run(
        repeat(Send("PATCH", f"{path}/status", asked, patch, STRATEGIC), also=is_conflict), refuse=refuse
    )
    gone = failure is not None and is_about_another_pod(failure)
    if failure is None:
        failure = await driver.run(repeat(deletion(path, pod.uid)), refuse=refuse)
        gone = failure is not None and is_gone(failure)
    if failure is None:
        return Evicted.DELETED, None
    if gone:
        return Evicted.GONE, None
    return (Evicted.CALLED_OFF, None) if failure is CALLED_OFF else (Evicted.FAILED, failure)
