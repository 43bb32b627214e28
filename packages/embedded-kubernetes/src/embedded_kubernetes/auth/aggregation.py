"""Fills the rules of ClusterRoles that gather those of others.

After pkg/controller/clusterroleaggregation: the rules of all that the selectors find, selector after selector and by
name, each rule once; what somebody else wrote there is overwritten.
"""

from __future__ import annotations

from math import inf
from typing import Any

from ..builtin.eviction import matches
from ..controllers import Controller
from ..registry import Registry
from ..resource import Object
from ..store import Event
from .rbac import CLUSTER_ROLES


class Aggregation(Controller):
    """The gathered roles of one server."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._due = True
        registry.stored(CLUSTER_ROLES).table.subscribers.append(self._changed)

    def _changed(self, event: Event) -> None:
        self._due = True
        self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        if self._due:
            self._due = False
            gather(self._registry)
        # A role that was filled may be gathered by another in its turn.
        return -inf if self._due else None


def gather(registry: Registry) -> bool:
    """Fill every gathering role once; says whether any changed."""
    served = registry.stored(CLUSTER_ROLES)
    roles = {record.name: served.stored.decode(record.data) for record in served.table.scan("")}
    changed = False
    for name in sorted(roles):
        role = roles[name]
        if role.get("aggregationRule") is None:
            continue
        rules = _gathered(role, roles)
        if rules != (role.get("rules") or []):
            changed = True
            registry.store.replace(
                CLUSTER_ROLES, served.table.records[name], {**role, "rules": rules or None}
            )
    return changed


def _gathered(role: Object, roles: dict[str, Object]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        for name in sorted(roles):
            other = roles[name]
            if other is role or not matches(selector, other["metadata"].get("labels") or {}):
                continue
            found += [rule for rule in other.get("rules") or () if rule not in found]
    return found
