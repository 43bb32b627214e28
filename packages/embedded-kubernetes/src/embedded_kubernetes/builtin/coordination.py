"""Leases (coordination.k8s.io/v1), priority classes (scheduling.k8s.io/v1), and the Priority admission plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import check_format, check_one_of, forbidden
from .kind import Logic
from .runtime import rejected

#: The largest value of a user's priority class; larger values are reserved for the system.
HIGHEST_USER_PRIORITY = 1_000_000_000


def _check_lease(lease: Object, old: Object | None) -> Iterator[Cause]:
    spec = lease.get("spec") or {}
    strategy = spec.get("strategy")
    if strategy is not None:
        # kube-apiserver's path repeats the last part.
        if "/" not in strategy:
            yield from check_one_of("spec.strategy.strategy", strategy, ("OldestEmulationVersion",))
        else:
            yield from check_format("spec.strategy.strategy", strategy, names.qualified)
    if spec.get("preferredHolder") and not spec.get("strategy"):
        yield forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined")


def _check_priority_class(priority_class: Object, old: Object | None) -> Iterator[Cause]:
    value = priority_class.get("value", 0)
    name = priority_class["metadata"].get("name") or ""
    if old is None:
        if name.startswith("system-"):
            if (name, value) not in SYSTEM_PRIORITIES.items():
                detail = (
                    "priority class names with 'system-' prefix are reserved for system use only. error: "
                    f"{name} is not a known system priority class"
                )
                yield forbidden("metadata.name", detail)
        elif value > HIGHEST_USER_PRIORITY:
            detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            yield forbidden("value", detail)


#: Priority classes that every cluster has (`data/bootstrap.json`).
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


LOGIC = {
    ("coordination.k8s.io", "Lease"): Logic(check=_check_lease),
    ("scheduling.k8s.io", "PriorityClass"): Logic(check=_check_priority_class),
}


def admit_priority(pod: Object, find: Callable[[str], Object | None], default: Callable[[], Object | None]) -> None:
    """Set `priority`, `priorityClassName` and `preemptionPolicy` of a new pod.

    `find(name)` returns a class; `default()` returns the class with globalDefault, the lowest if there are several.
    Raises 403 for a missing class, and for a priority or policy that differs from the class's.
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
