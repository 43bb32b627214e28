"""Total requests of a pod's containers, and the pod's QoS class.

Follows KEP-753 for restartable init containers, KEP-2837 for pod-level resources, and `pkg/apis/core/v1/helper/qos`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from apimachinery.quantity import milli_value

_COMPUTE = ("cpu", "memory")


def _text(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)


def peak_requests(spec: dict[str, Any], amount_of: Callable[[str, Any], int]) -> dict[str, int]:
    """Return the requests of the containers at their peak.

    That is the sum of containers that run concurrently, or the requirement of an init container if that is larger.
    `amount_of` parses the quantity of a resource.
    """

    def requests(container: dict[str, Any]) -> dict[str, int]:
        given = (container.get("resources") or {}).get("requests") or {}
        return {name: amount_of(name, quantity) for name, quantity in given.items()}

    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        add(total, requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        step = requests(container)
        if container.get("restartPolicy") == "Always":
            add(sidecars, step)
            _raise_to(peak, sidecars)
        else:
            add(step, sidecars)
            _raise_to(peak, step)
    add(total, sidecars)
    _raise_to(total, peak)
    return total


def container_requests(spec: dict[str, Any]) -> dict[str, str]:
    """Return the peak requests of the containers as quantities."""
    together = peak_requests(spec, lambda _, quantity: milli_value(quantity))
    return {name: _text(milli) for name, milli in together.items()}


def qos_class(spec: dict[str, Any]) -> str:
    """Return `Guaranteed`, `Burstable` or `BestEffort`. Requests must have been defaulted from limits."""
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
            # Without limits it is not Guaranteed; any request makes it Burstable.
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
