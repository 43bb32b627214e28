"""What a pod's containers ask for together, and the quality of service that follows from it.

Shapes and rules: KEP-753 for restartable init containers, KEP-2837 for pod-level resources, and the QoS classes of
`pkg/apis/core/v1/helper/qos`.
"""

from __future__ import annotations

from typing import Any

from agent_scheduler.objects.quantity import milli_value

_COMPUTE = ("cpu", "memory")


def _text(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def container_requests(spec: dict[str, Any]) -> dict[str, str]:
    """Requests of the containers together, as quantities: the sum of those that run side by side, or the
    largest that an init container needs while it runs."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, 0) + milli_value(amount)
    restartable: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requests = (container.get("resources") or {}).get("requests") or {}
        stays = container.get("restartPolicy") == "Always"
        for name, amount in requests.items():
            if stays:
                total[name] = total.get(name, 0) + milli_value(amount)
                restartable[name] = restartable.get(name, 0) + milli_value(amount)
        while_starting = dict(restartable)
        if not stays:
            for name, amount in requests.items():
                while_starting[name] = while_starting.get(name, 0) + milli_value(amount)
        for name, milli in while_starting.items():
            largest[name] = max(largest.get(name, 0), milli)
    for name, milli in largest.items():
        total[name] = max(total.get(name, 0), milli)
    return {name: _text(milli) for name, milli in total.items()}


def qos_class(spec: dict[str, Any]) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`; requests must have been defaulted from limits."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    pod_level = spec.get("resources")
    if pod_level and (pod_level.get("requests") or pod_level.get("limits")):
        holders = [spec]
    else:
        holders = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for holder in holders:
        resources = holder.get("resources") or {}
        asked, limited = resources.get("requests"), resources.get("limits")
        if not limited:
            # Cannot be Guaranteed, and Burstable at the first thing asked for.
            guaranteed = False
            if asked and any(name in asked and milli_value(asked[name]) > 0 for name in _COMPUTE):
                return "Burstable"
            continue
        for name in _COMPUTE:
            if asked and (milli := milli_value(asked.get(name, 0))) > 0:
                requests[name] = requests.get(name, 0) + milli
            if (milli := milli_value(limited.get(name, 0))) > 0:
                limits[name] = limits.get(name, 0) + milli
            else:
                guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"
