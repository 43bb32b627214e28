"""Has a pod leave its node for another one: says so in its status, then deletes it, by name and UID.

The condition comes first, as kube-scheduler writes it, so that a Job's podFailurePolicy can tell such an end from a
fault of the pod. The UID in both requests keeps a pod that was made again under the same name from harm. PodDisruption-
Budgets are not asked: who evicts has weighed them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from agent_scheduler.kube.answers import Asked, Verb
from agent_scheduler.kube.budget import UNLIMITED, Budget
from agent_scheduler.kube.create import DELETE_ATTEMPTS, deletion, is_gone
from agent_scheduler.kube.driver import Driver, Send, repeat
from agent_scheduler.kube.errors import Failure
from agent_scheduler.kube.patch import CALLED_OFF, STRATEGIC, called_off, is_about_another_pod, is_conflict
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.kube.transport import Named, Transport, pod_path
from apimachinery.times import time_text

_encode = msgspec.json.Encoder().encode


class Evicted(enum.Enum):
    """What became of an eviction."""

    #: The API server has taken the deletion.
    DELETED = "deleted"
    #: There is no such pod any more, as the API server says.
    GONE = "gone"
    #: It was called off by `wanted` before the deletion was sent.
    CALLED_OFF = "called off"
    #: Neither is known to be true.
    FAILED = "failed"


async def evict(
    transport: Transport,
    pod: Named,
    *,
    message: str,
    wanted: Callable[[], bool],
    budget: Budget = UNLIMITED,
    timing: Timing = REAL,
) -> tuple[Evicted, Failure | None]:
    """Evict `pod`. `wanted` is asked at the moment of sending each request. Never raises for what network or
    server do."""
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
    asked = Asked(Verb.PATCH, "pods", pod.name, pod.uid)
    driver = Driver(transport=transport, budget=budget, timing=timing, attempts=DELETE_ATTEMPTS)
    refuse = called_off(wanted)
    # A patch names no version, so a conflict is the server's own: it lost too many races for the pod.
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
