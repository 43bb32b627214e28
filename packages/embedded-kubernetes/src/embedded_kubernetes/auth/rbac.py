"""The RBAC authorizer, which decides by the stored roles and bindings.

Follows `DefaultRuleResolver` and `RBACAuthorizer` of Kubernetes: cluster bindings come first, then those of
the namespace. The first rule that allows the request is the reason; if none does, the reason has the bindings
with missing roles. A user's rules are cached until any role or binding changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..registry import Registry
from ..resource import Object
from ..store import Event
from .attributes import Attributes
from .identity import MASTERS, User, account_name
from .quoting import aggregate, quote
from .rules import EVERYTHING, PolicyRule, rules_of

GROUP = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = (GROUP, "roles"), (GROUP, "clusterroles")
BINDINGS, CLUSTER_BINDINGS = (GROUP, "rolebindings"), (GROUP, "clusterrolebindings")

#: The capacity of each cache, which is cleared when it is full.
_MOST = 16_384


class Decision(NamedTuple):
    """The authorizer's decision. `reason` may be empty."""

    allowed: bool
    reason: str = ""


class Granted(NamedTuple):
    """A rule with the binding that grants it, in the wording of reasons."""

    rule: PolicyRule
    source: str


class Grants(NamedTuple):
    """All rules of a user in a namespace. `errors` are about bindings whose role is missing."""

    rules: tuple[Granted, ...]
    errors: tuple[str, ...]


class _Binding(NamedTuple):
    name: str
    namespace: str
    subjects: tuple[dict[str, Any], ...]
    role: dict[str, Any]


#: How a user is allowed a verb on a resource: names (empty for any) and the reason, in the order of the
#: rules.
_Ways = tuple[tuple[tuple[str, ...], str], ...]


class AlwaysAllow:
    """Allows every request."""

    def authorize(self, user: User, asked: Attributes) -> Decision:
        return Decision(True)

    def grants(self, user: User, namespace: str) -> Grants:
        return Grants(tuple(Granted(rule, "") for rule in EVERYTHING), ())


class Rbac:
    """Decides by the stored roles and bindings."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._grants: dict[tuple[str, tuple[str, ...], str], Grants] = {}
        self._ways: dict[tuple[str, tuple[str, ...], str, str, str, str, str], _Ways] = {}
        for name in (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS):
            registry.stored(name).table.subscribers.append(self._changed)

    def _changed(self, event: Event) -> None:
        self._grants.clear()
        self._ways.clear()

    def authorize(self, user: User, asked: Attributes) -> Decision:
        """Decide whether the user may make this request."""
        if MASTERS in user.groups:
            return Decision(True)
        if not asked.of_resource:
            return self._authorize_path(user, asked)
        key = (user.name, user.groups, asked.namespace, asked.verb, asked.group, asked.resource, asked.subresource)
        ways = self._ways.get(key)
        if ways is None:
            if len(self._ways) >= _MOST:
                self._ways.clear()
            ways = self._ways[key] = self._find_ways(user, asked)
        for names, source in ways:
            if not names or asked.name in names:
                return Decision(True, f"RBAC: allowed by {source}")
        return self._refused(user, asked.namespace)

    def _authorize_path(self, user: User, asked: Attributes) -> Decision:
        for rule, source in self.grants(user, "").rules:
            if rule.allows(asked):
                return Decision(True, f"RBAC: allowed by {source}")
        return self._refused(user, "")

    def _refused(self, user: User, namespace: str) -> Decision:
        errors = self.grants(user, namespace).errors
        return Decision(False, f"RBAC: {aggregate(errors)}" if errors else "")

    def _find_ways(self, user: User, asked: Attributes) -> _Ways:
        found: list[tuple[tuple[str, ...], str]] = []
        for rule, source in self.grants(user, asked.namespace).rules:
            if rule.allows(asked._replace(name=rule.names[0] if rule.names else "")):
                found.append((rule.names, source))
                if not rule.names:
                    break
        return tuple(found)

    def grants(self, user: User, namespace: str) -> Grants:
        """Return the user's rules in a namespace; for an empty namespace, those in the whole cluster."""
        key = (user.name, user.groups, namespace)
        found = self._grants.get(key)
        if found is None:
            if len(self._grants) >= _MOST:
                self._grants.clear()
            found = self._grants[key] = self._find_grants(user, namespace)
        return found

    def _find_grants(self, user: User, namespace: str) -> Grants:
        rules: list[Granted] = []
        errors: list[str] = []
        bindings = self._bindings_in("")
        if namespace:
            bindings += self._bindings_in(namespace)
        for binding in bindings:
            subject = next((each for each in binding.subjects if _means(each, user, binding.namespace)), None)
            if subject is None:
                continue
            granted = self.role_rules(binding.role, binding.namespace)
            if granted is None:
                errors.append(not_there(binding.role))
                continue
            source = _describe(binding, subject)
            rules += [Granted(rule, source) for rule in granted]
        return Grants(tuple(rules), tuple(errors))

    def role_rules(self, role: dict[str, Any], namespace: str) -> tuple[PolicyRule, ...] | None:
        """Return the rules of the role that a binding in this namespace refers to; None if the role is missing."""
        kind, name = role.get("kind", ""), role.get("name", "")
        if kind == "Role":
            found = self._registry.object(ROLES, f"{namespace}/{name}")
        else:
            found = self._registry.object(CLUSTER_ROLES, name) if kind == "ClusterRole" else None
        return None if found is None else rules_of(found)

    def _bindings_in(self, namespace: str) -> list[_Binding]:
        served = self._registry.stored(BINDINGS if namespace else CLUSTER_BINDINGS)
        return [_binding(served.stored.decode(record.data), namespace) for record in served.table.scan(namespace)]


Authorizer = AlwaysAllow | Rbac


def _binding(obj: Object, namespace: str) -> _Binding:
    subjects = tuple(obj.get("subjects") or ())
    return _Binding(obj["metadata"]["name"], namespace, subjects, obj.get("roleRef") or {})


def _means(subject: dict[str, Any], user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(user.name == name)
    if kind == "Group":
        return name in user.groups
    if kind == "ServiceAccount":
        namespace = subject.get("namespace") or namespace
        return bool(namespace) and user.name == account_name(namespace, name)
    return False


def _describe(binding: _Binding, subject: dict[str, Any]) -> str:
    name, kind = subject.get("name", ""), subject.get("kind", "")
    if kind == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or binding.namespace}"
    where = f"{binding.name}/{binding.namespace}" if binding.namespace else binding.name
    of_kind = "RoleBinding" if binding.namespace else "ClusterRoleBinding"
    role = f"{binding.role.get('kind', '')} {quote(binding.role.get('name', ''))}"
    return f"{of_kind} {quote(where)} of {role} to {kind} {quote(name)}"


def not_there(role: dict[str, Any]) -> str:
    """Return the error about a reference to a missing role."""
    kind = role.get("kind", "")
    if kind not in ("Role", "ClusterRole"):
        return f"unsupported role reference kind: {quote(kind)}"
    return f"{kind.lower()}.{GROUP} {quote(role.get('name', ''))} not found"
