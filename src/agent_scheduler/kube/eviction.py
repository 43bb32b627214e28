"""Has a pod leave its node for another one: says so in its status, then deletes it, by name and UID.

The condition comes first, as kube-scheduler writes it, so that a Job's podFailurePolicy can tell such an end from a
fault of the pod. The UID in both requests keeps a pod that was made again under the same name from harm. PodDisruption-
Budgets are not asked: who evicts has weighed them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from agent_scheduler.kube.budget import UNLIMITED, Budget
from agent_scheduler.kube.errors import Failure, FailureClass, classify, classify_error
from agent_scheduler.kube.paths import pod_path
from agent_scheduler.kube.retry import REAL, Attempts, Backoff, Timing
from agent_scheduler.kube.status import STRATEGIC_MERGE, PodKey
from agent_scheduler.kube.transport import Transport, TransportError
from agent_scheduler.objects.times import time_text

_encode = msgspec.json.Encoder().encode

#: Of a request that failed in a way that may pass.
_BACKOFF = Backoff(initial=0.5, cap=10.0)
_ATTEMPTS = 5
_REQUEST_TIMEOUT = 10.0


class Evicted(enum.Enum):
    """What became of an eviction."""

    #: The API server has taken the deletion.
    DELETED = "deleted"
    #: There is no such pod any more.
    GONE = "gone"
    #: It was called off by `wanted` before the deletion was sent.
    CALLED_OFF = "called off"
    #: Neither is known to be true.
    FAILED = "failed"


async def evict(
    transport: Transport,
    pod: PodKey,
    *,
    message: str,
    wanted: Callable[[], bool],
    budget: Budget = UNLIMITED,
    timing: Timing = REAL,
) -> tuple[Evicted, Failure | None]:
    """Evict `pod`. `wanted` is asked right before each request. Never raises for what network or server do."""
    path = pod_path(pod.namespace, pod.name)
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": time_text(timing.now()),
    }
    patch = _encode({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})
    requests = (
        ("PATCH", f"{path}/status", patch, STRATEGIC_MERGE),
        ("DELETE", path, _encode({"preconditions": {"uid": pod.uid}}), "application/json"),
    )
    for method, where, body, content_type in requests:
        attempts = Attempts(_BACKOFF, timing)
        while True:
            async with budget.request():
                if not wanted():
                    return Evicted.CALLED_OFF, None
                try:
                    response = await transport.request(
                        method, where, body=body, content_type=content_type, timeout=_REQUEST_TIMEOUT
                    )
                except TransportError as error:
                    failure: Failure | None = classify_error(error)
                else:
                    failure = classify(response)
            if failure is None:
                break
            if _is_gone(method, failure):
                return Evicted.GONE, None
            # A patch names no version, so a conflict is the server's own: it lost too many races for the pod.
            again = failure.retryable or (method == "PATCH" and failure.kind is FailureClass.CONFLICT)
            if not again or attempts.made + 1 >= _ATTEMPTS:
                return Evicted.FAILED, failure
            await attempts.wait(failure.retry_after)
    return Evicted.DELETED, None


def _is_gone(method: str, failure: Failure) -> bool:
    """404; or the name stands for another pod: 409 to a deletion with another UID, 422 to such a patch."""
    if failure.kind is FailureClass.NOT_FOUND:
        return True
    if method == "DELETE":
        return failure.kind is FailureClass.CONFLICT
    return failure.status == 422 and "metadata.uid" in failure.fields
