"""Privilege escalation prevention: writes of roles and bindings grant only permissions that their user has.

Exempt are users with the verb `escalate` or `bind`. Follows the policybased storage of pkg/registry/rbac: the
check covers the whole new object, runs before validation, and also runs if only labels change. A user may
delete a role without having its permissions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ApiError, not_found
from ..resource import Object
from .attributes import Attributes
from .gate import Access
from .identity import MASTERS, User
from .quoting import aggregate, quote, quoted
from .rbac import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, GROUP, ROLES, Rbac
from .refusals import refused
from .rules import EVERYTHING, PolicyRule, compact, missing, rules_of

_ROLES = (ROLES, CLUSTER_ROLES)
GUARDED = frozenset({*_ROLES, BINDINGS, CLUSTER_BINDINGS})
#: Metadata that may change without a check, because garbage collection writes it.
_COLLECTED = ("ownerReferences", "finalizers", "managedFields")


def check_write(
    access: Access, kind: tuple[str, str], user: User, namespace: str, name: str, *, new: Object, old: Object | None
) -> None:
    """Check a write of a role or binding.

    Raises 403 if it grants permissions that `user` lacks, and 404 if a binding refers to a missing role.
    `kind` is one of `GUARDED`; `name` is that of the path, empty for a create; `old` is the stored object.
    """
    authorizer = access.authorizer
    if not isinstance(authorizer, Rbac) or MASTERS in user.groups:
        return
    if old is not None and _only_collected(new, old):
        return
    guard = _Guard(access, authorizer, kind, user, namespace, new.get("metadata", {}).get("name") or "")
    if kind in _ROLES:
        guard.check_role(name, new, old)
    else:
        guard.check_binding(new)


@dataclass(slots=True)
class _Guard:
    """The check of one write. `kind` is that of the written object, `shown` its name in errors."""

    access: Access
    authorizer: Rbac
    kind: tuple[str, str]
    user: User
    namespace: str
    shown: str

    def check_role(self, name: str, new: Object, old: Object | None) -> None:
        if self._may(Attributes("escalate", GROUP, "*", self.kind[1], "", self.namespace, name)):
            return
        self._check_rules(rules_of(new))
        if new.get("aggregationRule") is None and (old is None or old.get("aggregationRule") is None):
            return
        if missing(self._owned(), EVERYTHING):
            raise self._refusal("must have cluster-admin privileges to use the aggregationRule")

    def check_binding(self, new: Object) -> None:
        role: dict[str, Any] = new.get("roleRef") or {}
        plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(role.get("kind", ""))
        if plural is not None:
            group, name = role.get("apiGroup", ""), role.get("name", "")
            if self._may(Attributes("bind", group, "*", plural, "", self.namespace, name)):
                return
        rules = self.authorizer.role_rules(role, self.namespace)
        if rules is None:
            if plural is None:
                raise ApiError(500, "", f"unsupported role reference kind: {quote(role.get('kind', ''))}")
            raise not_found(self.kind[1], GROUP, role.get("name", ""))
        self._check_rules(rules)

    def _may(self, asked: Attributes) -> bool:
        return self.access.allows(self.user, asked)

    def _owned(self) -> list[PolicyRule]:
        return [granted.rule for granted in self.authorizer.grants(self.user, self.namespace).rules]

    def _check_rules(self, wanted: Iterable[PolicyRule]) -> None:
        lacking = missing(self._owned(), wanted)
        if not lacking:
            return
        texts = sorted({str(rule) for rule in compact(lacking)})
        why = (
            f"user {quote(self.user.name)} (groups={quoted(self.user.groups)}) is attempting to grant RBAC "
            "permissions not currently held:\n" + "\n".join(texts)
        )
        if errors := self.authorizer.grants(self.user, self.namespace).errors:
            why += f"; resolution errors: [{aggregate(errors)}]"
        raise self._refusal(why)

    def _refusal(self, why: str) -> ApiError:
        return refused(self.kind[1], GROUP, self.shown, why)


def _only_collected(new: Object, old: Object) -> bool:
    metadata = {key: value for key, value in new["metadata"].items() if key not in _COLLECTED}
    was = old["metadata"]
    metadata |= {key: was[key] for key in _COLLECTED if key in was}
    return {**new, "metadata": metadata, "kind": 0, "apiVersion": 0} == {**old, "kind": 0, "apiVersion": 0}
