"""The Priority admission plugin: a pod's class becomes a number, once, when the pod is created (KEP-902)."""

from __future__ import annotations

from collections.abc import Callable

from ..resource import Object
from .coordination import SYSTEM_PRIORITIES
from .runtime import rejected


def admit(pod: Object, find: Callable[[str], Object | None], default: Callable[[], Object | None]) -> None:
    """Set `priority`, `priorityClassName` and `preemptionPolicy` of a new pod.

    `find(name)` gives a class; `default()` the one with globalDefault, the lowest if there are several. Raises 403
    for a class that is not there, and for a priority or policy that is not the class's.
    """
    spec = pod["spec"]
    class_name = spec.get("priorityClassName")
    priority, policy = 0, "PreemptLowerPriority"
    found: Object | None = None
    if class_name:
        found = find(class_name)
        if found is not None:
            priority = found.get("value", 0)
        elif class_name in SYSTEM_PRIORITIES:
            priority = SYSTEM_PRIORITIES[class_name]
        else:
            why = f"no PriorityClass with name {class_name} was found"
            raise rejected(pod, why)
    else:
        found = default()
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
            priority = found.get("value", 0)
    if found is not None:
        policy = found.get("preemptionPolicy") or policy
    given = spec.get("priority")
    if given is not None and given != priority:
        why = (
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
            "controller computed {priority} from the given PriorityClass name"
        ).replace("{priority}", str(priority))
        raise rejected(pod, why)
    spec["priority"] = priority
    given_policy = spec.get("preemptionPolicy")
    if given_policy is not None and given_policy != policy:
        why = (
            f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; priority "
            f"admission controller computed {policy} from the given PriorityClass name"
        )
        raise rejected(pod, why)
    spec["preemptionPolicy"] = policy
