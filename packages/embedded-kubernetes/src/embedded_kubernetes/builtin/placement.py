"""Validation of a pod's placement: affinity, tolerations, spread constraints and scheduling gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from . import names
from .causes import check_choice, check_format, check_one_of, duplicate, forbidden, invalid, required, unsupported
from .selectors import check_label_selector, check_node_selector, check_node_selector_term

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
#: The tolerations of the DefaultTolerationSeconds admission plugin: five minutes on an unreachable node.
DEFAULT_TOLERATIONS = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def check_tolerations(tolerations: list[dict[str, Any]], path: str) -> Iterator[Cause]:
    if tolerations == DEFAULT_TOLERATIONS:
        return
    for index, toleration in enumerate(tolerations):
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        value, effect = toleration.get("value", ""), toleration.get("effect", "")
        if key and names.qualified(key):
            yield from check_format(f"{path}[{index}].key", key, names.qualified)
        if not key and operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{path}[{index}].operator", operator, detail)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{path}[{index}].effect", effect, detail)
        if operator in ("Equal", ""):
            if problems := names.label_value(value):
                yield invalid(f"{path}[{index}].operator", value, ";".join(problems))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                yield invalid(f"{path}[{index}].operator", value, detail)
        else:
            yield unsupported(f"{path}[{index}].operator", operator, ("Equal", "Exists"))
        if effect and effect not in TAINT_EFFECTS:
            yield unsupported(f"{path}[{index}].effect", effect, TAINT_EFFECTS)


def check_affinity(affinity: dict[str, Any], path: str) -> Iterator[Cause]:
    if node := affinity.get("nodeAffinity"):
        if (selector := node.get(_REQUIRED)) is not None:
            yield from check_node_selector(selector, f"{path}.nodeAffinity.{_REQUIRED}")
        for index, term in enumerate(node.get(_PREFERRED) or ()):
            at = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
            yield from _check_weight(term, at)
            preference = term.get("preference") or {}
            yield from check_node_selector_term(preference, f"{at}.preference", values_too=False)
    for name in ("podAffinity", "podAntiAffinity"):
        if terms := affinity.get(name):
            for index, term in enumerate(terms.get(_REQUIRED) or ()):
                yield from _check_pod_term(term, f"{path}.{name}.{_REQUIRED}[{index}]")
            for index, weighted in enumerate(terms.get(_PREFERRED) or ()):
                at = f"{path}.{name}.{_PREFERRED}[{index}]"
                yield from _check_weight(weighted, at)
                yield from _check_pod_term(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")


def _check_weight(term: dict[str, Any], at: str) -> list[Cause]:
    weight = term.get("weight", 0)
    return [] if 0 < weight <= 100 else [invalid(f"{at}.weight", weight, "must be in the range 1-100")]


def _check_pod_term(term: dict[str, Any], at: str) -> Iterator[Cause]:
    yield from check_label_selector(term.get("labelSelector"), f"{at}.labelSelector")
    yield from check_label_selector(term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for name in term.get("namespaces") or ():
        yield from check_format(f"{at}.namespace", name, names.label)
    same, other = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    yield from _check_label_keys(same, f"{at}.matchLabelKeys", term)
    yield from _check_label_keys(other, f"{at}.mismatchLabelKeys", term)
    for index, key in enumerate(same):
        if key in other:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{at}.matchLabelKeys[{index}]", key, detail)
    topology = term.get("topologyKey", "")
    if not topology:
        yield required(f"{at}.topologyKey", "can not be empty")
    yield from check_format(f"{at}.topologyKey", topology, names.qualified)


def _check_label_keys(keys: Any, path: str, holder: dict[str, Any]) -> Iterator[Cause]:
    if not keys:
        return
    if holder.get("labelSelector") is None:
        yield forbidden(path, "must not be specified when labelSelector is not set")
        return
    for index, key in enumerate(keys):
        yield from check_format(f"{path}[{index}]", key, names.qualified)


def check_spread(constraints: list[dict[str, Any]], path: str) -> Iterator[Cause]:
    """Check topology spread constraints (KEP-895, KEP-3022, KEP-3094, KEP-3243)."""
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        at = f"{path}[{index}]"
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        when = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            yield invalid(f"{at}.maxSkew", skew, "must be greater than zero")
        if not key:
            yield required(f"{at}.topologyKey", "can not be empty")
        if when not in ("DoNotSchedule", "ScheduleAnyway"):
            yield unsupported(f"{at}.whenUnsatisfiable", when, ("DoNotSchedule", "ScheduleAnyway"))
        if (key, when) in seen:
            yield duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {when}}}")
        seen.add((key, when))
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                yield invalid(f"{at}.minDomains", domains, "must be greater than zero")
            if when != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
                yield invalid(f"{at}.minDomains", domains, detail)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from check_choice(f"{at}.{name}", constraint.get(name), ("Honor", "Ignore"))
        keys = constraint.get("matchLabelKeys")
        yield from _check_label_keys(keys, f"{at}.matchLabelKeys", constraint)
        yield from check_label_selector(constraint.get("labelSelector"), f"{at}.labelSelector")


def check_gates(gates: list[dict[str, Any]], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from check_format(f"{path}[{index}]", name, names.qualified)
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)


def check_taints(taints: list[dict[str, Any]]) -> Iterator[Cause]:
    """Check a node's taints. As in kube-apiserver, the path has metadata instead of spec."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"metadata.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        yield from check_format(f"{at}.key", key, names.qualified)
        if problems := names.label_value(taint.get("value", "")):
            yield invalid(f"{at}.value", taint["value"], ";".join(problems))
        yield from check_one_of(f"{at}.effect", effect, TAINT_EFFECTS)
        if (key, effect) in seen:
            yield duplicate(at, taint)
        seen.add((key, effect))


def merge_label_keys(pod: dict[str, Any]) -> None:
    """Add `matchLabelKeys` to the label selectors of a new pod as expressions (KEP-3633, KEP-3243)."""
    spec, labels = pod["spec"], pod["metadata"].get("labels") or {}
    for constraint in spec.get("topologySpreadConstraints") or ():
        if constraint.get("matchLabelKeys"):
            _merge(constraint, constraint["matchLabelKeys"], "In", labels)
    affinity = spec.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(name) or {}
        weighted = [term.get("podAffinityTerm") or {} for term in terms.get(_PREFERRED) or ()]
        for term in [*weighted, *(terms.get(_REQUIRED) or ())]:
            _merge(term, term.get("matchLabelKeys") or (), "In", labels)
            _merge(term, term.get("mismatchLabelKeys") or (), "NotIn", labels)


def _merge(holder: dict[str, Any], keys: Any, operator: str, labels: dict[str, str]) -> None:
    selector = holder.get("labelSelector")
    if selector is None:
        return
    for key in keys:
        if key in labels:
            expression = {"key": key, "operator": operator, "values": [labels[key]]}
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), expression]
