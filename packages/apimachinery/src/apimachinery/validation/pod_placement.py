"""Checks the scheduling constraints of a template: tolerations, affinity, spread constraints, gates.

The words are those of Kubernetes' `ValidatePodSpec`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from apimachinery.wire import Wire

from . import names
from .field_problems import duplicate, forbidden, formatted, invalid, label_problems, one_of, required, unsupported

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DO_NOT_SCHEDULE: Final = "DoNotSchedule"
_UNSATISFIABLE: Final = (_DO_NOT_SCHEDULE, "ScheduleAnyway")
_POLICIES: Final = ("Honor", "Ignore")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_MOST_WEIGHT: Final = 100


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class _Requirement(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Requirement, ...] = ()


class _NodeTerm(Wire, frozen=True):
    match_expressions: tuple[_Requirement, ...] = ()
    match_fields: tuple[_Requirement, ...] = ()


class _NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[_NodeTerm, ...] = ()


class _PreferredNodes(Wire, frozen=True):
    weight: int = 0
    preference: _NodeTerm = _NodeTerm()


class _NodeAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[_PreferredNodes, ...] = ()


class _PodTerm(Wire, frozen=True):
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class _PreferredPods(Wire, frozen=True):
    weight: int = 0
    pod_affinity_term: _PodTerm = _PodTerm()


class _PodAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: tuple[_PodTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[_PreferredPods, ...] = ()


class Affinity(Wire, frozen=True):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()
    label_selector: LabelSelector | None = None


def toleration_problems(tolerations: Sequence[Toleration], field: str) -> Iterator[str]:
    for index, each in enumerate(tolerations):
        at = f"{field}[{index}]"
        operator = f"{at}.operator"
        if each.key:
            yield from formatted(f"{at}.key", each.key, names.qualified)
        elif each.operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(operator, each.operator, detail)
        if each.toleration_seconds is not None and each.effect != "NoExecute":
            yield invalid(f"{at}.effect", each.effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if each.operator in ("", "Equal"):
            if problems := names.label_value(each.value):
                yield invalid(operator, each.value, ";".join(problems))
        elif each.operator != "Exists":
            yield unsupported(operator, each.operator, ("Equal", "Exists"))
        elif each.value:
            yield invalid(operator, each.value, "value must be empty when `operator` is 'Exists'")
        yield from one_of(f"{at}.effect", each.effect or None, _EFFECTS)


def gate_problems(gates: Sequence[SchedulingGate], field: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        yield from formatted(f"{field}[{index}]", gate.name, names.qualified)
        if gate.name in seen:
            yield duplicate(f"{field}[{index}]", gate.name)
        seen.add(gate.name)


def spread_problems(constraints: Sequence[TopologySpreadConstraint], field: str) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for index, each in enumerate(constraints):
        at, when, domains = f"{field}[{index}]", each.when_unsatisfiable, each.min_domains
        if each.max_skew <= 0:
            yield invalid(f"{at}.maxSkew", each.max_skew, "must be greater than zero")
        if not each.topology_key:
            yield required(f"{at}.topologyKey", "can not be empty")
        yield from one_of(f"{at}.whenUnsatisfiable", when, _UNSATISFIABLE)
        if (each.topology_key, when) in seen:
            pair = f"{{{each.topology_key}, {when}}}"
            yield duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", pair)
        seen.add((each.topology_key, when))
        if domains is not None and domains <= 0:
            yield invalid(f"{at}.minDomains", domains, "must be greater than zero")
        if domains is not None and when != _DO_NOT_SCHEDULE:
            detail = f"can only use minDomains if whenUnsatisfiable={_DO_NOT_SCHEDULE}, not {when}"
            yield invalid(f"{at}.minDomains", domains, detail)
        yield from one_of(f"{at}.nodeAffinityPolicy", each.node_affinity_policy, _POLICIES)
        yield from one_of(f"{at}.nodeTaintsPolicy", each.node_taints_policy, _POLICIES)
        yield from _of_label_keys(each.match_label_keys, f"{at}.matchLabelKeys", each.label_selector)
        yield from selector_problems(each.label_selector, f"{at}.labelSelector")


def affinity_problems(affinity: Affinity, field: str) -> Iterator[str]:
    if affinity.node_affinity is not None:
        yield from _of_node_affinity(affinity.node_affinity, f"{field}.nodeAffinity")
    pods = (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity))
    for name, given in pods:
        if given is None:
            continue
        for index, term in enumerate(given.required_during_scheduling_ignored_during_execution):
            yield from _of_pod_term(term, f"{field}.{name}.{_REQUIRED}[{index}]")
        for index, preferred in enumerate(given.preferred_during_scheduling_ignored_during_execution):
            at = f"{field}.{name}.{_PREFERRED}[{index}]"
            yield from _of_weight(preferred.weight, at)
            yield from _of_pod_term(preferred.pod_affinity_term, f"{at}.podAffinityTerm")


def _of_node_affinity(given: _NodeAffinity, field: str) -> Iterator[str]:
    selector = given.required_during_scheduling_ignored_during_execution
    if selector is not None:
        at = f"{field}.{_REQUIRED}.nodeSelectorTerms"
        if not selector.node_selector_terms:
            yield required(at, "must have at least one node selector term")
        for index, term in enumerate(selector.node_selector_terms):
            yield from _of_node_term(term, f"{at}[{index}]", values_too=True)
    for index, preferred in enumerate(given.preferred_during_scheduling_ignored_during_execution):
        at = f"{field}.{_PREFERRED}[{index}]"
        yield from _of_weight(preferred.weight, at)
        yield from _of_node_term(preferred.preference, f"{at}.preference", values_too=False)


def _of_weight(weight: int, at: str) -> Iterator[str]:
    if not 0 < weight <= _MOST_WEIGHT:
        yield invalid(f"{at}.weight", weight, f"must be in the range 1-{_MOST_WEIGHT}")


def _of_node_term(term: _NodeTerm, at: str, *, values_too: bool) -> Iterator[str]:
    """Check a term. Preferred terms may contain values that no label can have."""
    for index, each in enumerate(term.match_expressions):
        yield from _of_requirement(each, f"{at}.matchExpressions[{index}]", numbers=True)
        if values_too:
            yield from _of_values(each.values, f"{at}.matchExpressions[{index}].values")
    for index, each in enumerate(term.match_fields):
        yield from _of_node_field(each, f"{at}.matchFields[{index}]")


def _of_requirement(each: _Requirement, at: str, *, numbers: bool = False) -> Iterator[str]:
    if each.operator in ("In", "NotIn"):
        if not each.values:
            yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif each.operator in ("Exists", "DoesNotExist"):
        if each.values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{at}.values", detail)
    elif numbers and each.operator in ("Gt", "Lt"):
        if len(each.values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield required(f"{at}.values", detail)
    else:
        yield invalid(f"{at}.operator", each.operator, "not a valid selector operator")
    yield from formatted(f"{at}.key", each.key, names.qualified)


def _of_values(values: Sequence[str], field: str) -> Iterator[str]:
    for index, value in enumerate(values):
        yield from formatted(f"{field}[{index}]", value, names.label_value)


def _of_node_field(each: _Requirement, at: str) -> Iterator[str]:
    if each.operator not in ("In", "NotIn"):
        yield invalid(f"{at}.operator", each.operator, "not a valid selector operator")
    elif len(each.values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{at}.values", detail)
    if each.key != "metadata.name":
        yield invalid(f"{at}.key", each.key, "not a valid field selector key")
        return
    for index, value in enumerate(each.values):
        yield from formatted(f"{at}.values[{index}]", value, names.subdomain)


def _of_pod_term(term: _PodTerm, at: str) -> Iterator[str]:
    yield from selector_problems(term.label_selector, f"{at}.labelSelector")
    yield from selector_problems(term.namespace_selector, f"{at}.namespaceSelector")
    for namespace in term.namespaces:
        yield from formatted(f"{at}.namespace", namespace, names.label)
    same, other = term.match_label_keys, term.mismatch_label_keys
    yield from _of_label_keys(same, f"{at}.matchLabelKeys", term.label_selector)
    yield from _of_label_keys(other, f"{at}.mismatchLabelKeys", term.label_selector)
    for index, key in enumerate(same):
        if key in other:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{at}.matchLabelKeys[{index}]", key, detail)
    if not term.topology_key:
        yield required(f"{at}.topologyKey", "can not be empty")
    yield from formatted(f"{at}.topologyKey", term.topology_key, names.qualified)


def _of_label_keys(keys: Collection[str], field: str, selector: LabelSelector | None) -> Iterator[str]:
    if keys and selector is None:
        yield forbidden(field, "must not be specified when labelSelector is not set")
        return
    for index, key in enumerate(keys):
        yield from formatted(f"{field}[{index}]", key, names.qualified)


def selector_problems(selector: LabelSelector | None, field: str) -> Iterator[str]:
    if selector is None:
        return
    yield from label_problems(f"{field}.matchLabels", selector.match_labels)
    for index, each in enumerate(selector.match_expressions):
        at = f"{field}.matchExpressions[{index}]"
        yield from _of_requirement(each, at)
        yield from _of_values(each.values, f"{at}.values")
