"""RBAC policy rules: whether a rule allows a request, and whether rules cover other rules. Pure.

Follows `RuleAllows` of the RBAC authorizer and `Covers` of k8s.io/component-helpers. Rules only add
permissions; each field has its own wildcard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .attributes import Attributes
from .quoting import quoted

ALL = "*"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One PolicyRule."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        """Return whether this rule allows the request."""
        if asked.verb not in self.verbs and ALL not in self.verbs:
            return False
        if not asked.of_resource:
            return any(_url_matches(url, asked.path) for url in self.urls)
        if asked.group not in self.groups and ALL not in self.groups:
            return False
        if self.names and asked.name not in self.names:
            return False
        resources = self.resources
        return (
            asked.combined in resources
            or ALL in resources
            or (bool(asked.subresource) and f"*/{asked.subresource}" in resources)
        )

    def covers(self, other: PolicyRule) -> bool:
        """Return whether this rule alone allows everything that `other` allows."""
        return (
            (ALL in self.verbs or _has_all(self.verbs, other.verbs))
            and (ALL in self.groups or _has_all(self.groups, other.groups))
            and all(self._covers_resource(resource) for resource in other.resources)
            and all(any(_url_covers(own, url) for own in self.urls) for url in other.urls)
            and (not self.names or (bool(other.names) and _has_all(self.names, other.names)))
        )

    def _covers_resource(self, resource: str) -> bool:
        if ALL in self.resources or resource in self.resources:
            return True
        _, separator, below = resource.partition("/")
        return bool(separator) and f"*/{below}" in self.resources

    def __str__(self) -> str:
        parts = (
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.urls),
            ("ResourceNames", self.names),
            ("Verbs", self.verbs),
        )
        return "{" + ", ".join(f"{name}:{quoted(values)}" for name, values in parts if values) + "}"


#: Rules that allow everything, which an aggregated role may come to grant.
EVERYTHING = (PolicyRule((ALL,), (ALL,), (ALL,)), PolicyRule((ALL,), urls=(ALL,)))


def rules_of(role: dict[str, Any]) -> tuple[PolicyRule, ...]:
    """Return the rules of a Role or ClusterRole."""
    return tuple(
        PolicyRule(
            tuple(rule.get("verbs") or ()),
            tuple(rule.get("apiGroups") or ()),
            tuple(rule.get("resources") or ()),
            tuple(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
        )
        for rule in role.get("rules") or ()
    )


def missing(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return what `owned` does not cover of `wanted`, as rules with one verb, resource and name each."""
    parts = (part for rule in wanted for part in _broken_down(rule))
    return [part for part in parts if not any(rule.covers(part) for rule in owned)]


def compact(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Merge rules about the same resource or object into one rule with all their verbs."""
    found: dict[tuple[Any, ...], PolicyRule] = {}
    others: list[PolicyRule] = []
    for rule in rules:
        simple = len(rule.groups) == len(rule.resources) == 1 and len(rule.names) <= 1 and not rule.urls
        if not simple:
            others.append(rule)
            continue
        key = (rule.groups, rule.resources, rule.names)
        known = found.get(key)
        if known is None:
            found[key] = rule
        else:
            more = tuple(verb for verb in rule.verbs if verb not in known.verbs)
            found[key] = replace(known, verbs=known.verbs + more)
    return others + list(found.values())


def _broken_down(rule: PolicyRule) -> Iterator[PolicyRule]:
    each_name: list[tuple[str, ...]] = [(name,) for name in rule.names] or [()]
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for names in each_name:
                    yield PolicyRule((verb,), (group,), (resource,), names)
    for url in rule.urls:
        for verb in rule.verbs:
            yield PolicyRule((verb,), urls=(url,))


def _has_all(owned: Sequence[str], wanted: Iterable[str]) -> bool:
    return all(each in owned for each in wanted)


def _url_matches(url: str, path: str) -> bool:
    return url in (ALL, path) or (url.endswith(ALL) and path.startswith(url.rstrip(ALL)))


def _url_covers(own: str, url: str) -> bool:
    return own == url or (own.endswith(ALL) and url.startswith(own.rstrip(ALL)))
