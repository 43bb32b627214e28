"""Leases (coordination.k8s.io/v1) and priority classes (scheduling.k8s.io/v1)."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import check_format, check_one_of, forbidden
from .kind import Logic

#: The largest value that a class of a user may have; those above are the system's.
HIGHEST_USER_PRIORITY = 1_000_000_000


def _check_lease(lease: Object, old: Object | None) -> Iterator[Cause]:
    spec = lease.get("spec") or {}
    strategy = spec.get("strategy")
    if strategy is not None:
        # The path doubles its last part, as a real server's does.
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


#: Classes that every cluster has (`data/bootstrap.json`).
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


LOGIC = {
    ("coordination.k8s.io", "Lease"): Logic(check=_check_lease),
    ("scheduling.k8s.io", "PriorityClass"): Logic(check=_check_priority_class),
}
