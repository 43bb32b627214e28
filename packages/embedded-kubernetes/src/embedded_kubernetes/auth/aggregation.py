"""Fills the rules of aggregated ClusterRoles.

Follows pkg/controller/clusterroleaggregation: the rules of the selected roles are concatenated, selector by
selector and ordered by name, without duplicates. Rules that a user wrote are overwritten.
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
    """The controller of aggregated ClusterRoles."""

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
        # A role that was just filled may be selected by another aggregated role.
        return -inf if self._due else None


def gather(registry: Registry) -> bool:
    """Fill every aggregated role once; return whether any changed."""
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
            registry.store.replace(CLUSTER_ROLES, served.table.records[name], {**role, "rules": rules or None})
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
