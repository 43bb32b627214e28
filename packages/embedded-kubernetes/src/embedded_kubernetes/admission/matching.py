"""Matches writes to webhooks and policies: rules, selectors, equivalent versions and match conditions.

Follows `rules.Matcher`, the matchers of namespaces and objects, and `matchconditions` of
k8s.io/apiserver/pkg/admission/plugin/webhook.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..cel.program import CelError, program
from ..errors import not_found
from ..resource import Object
from .attributes import Admission, GroupVersionKind, ResourceForm


def rule_matches(rule: Object, admission: Admission, resource: GroupVersionKind) -> bool:
    """Return whether a rule matches this write as a write of `resource`."""
    namespaced = bool(admission.namespace) and resource.name != "namespaces"
    scope = rule.get("scope") or "*"
    return (
        scope in ("*", "Namespaced" if namespaced else "Cluster")
        and _among(rule.get("operations"), admission.operation)
        and _among(rule.get("apiGroups"), resource.group)
        and _among(rule.get("apiVersions"), resource.version)
        and any(_covers(text, resource.name, admission.subresource) for text in rule.get("resources") or ())
        and _named(rule.get("resourceNames"), admission)
    )


def _among(values: Sequence[str] | None, value: str) -> bool:
    return bool(values) and ("*" in values or value in values)  # type: ignore[operator]


def _covers(text: str, resource: str, subresource: str) -> bool:
    wanted, _, below = text.partition("/")
    return wanted in ("*", resource) and below in ("*", subresource)


def _named(names: Sequence[str] | None, admission: Admission) -> bool:
    return not names or admission.name in names


def form_of(rules: Iterable[Object], policy: str, admission: Admission) -> ResourceForm | None:
    """Return the form in which the webhook or policy receives the write; None if no rule matches.

    With match policy Equivalent, a rule for another version of the kind matches as well. Earlier rules take
    precedence.
    """
    own, *others = admission.forms
    if any(rule_matches(rule, admission, own.resource) for rule in rules):
        return own
    if policy == "Equivalent":
        for rule in rules:
            for form in others:
                if rule_matches(rule, admission, form.resource):
                    return form
    return None


def selected(match: Object, admission: Admission) -> bool:
    """Return whether the selectors match the write. Raises 404 for a missing namespace."""
    return _object_selected(match.get("objectSelector"), admission) and _namespace_selected(
        match.get("namespaceSelector"), admission
    )


def _object_selected(selector: Object | None, admission: Admission) -> bool:
    """Return whether the selector matches the new or the old object."""
    if not selector:
        return True
    return any(
        labels_match(selector, obj["metadata"].get("labels") or {})
        for obj in (admission.obj, admission.old)
        if obj is not None and isinstance(obj.get("metadata"), dict)
    )


def _namespace_selected(selector: Object | None, admission: Admission) -> bool:
    if not selector or (not admission.namespace and not admission.is_namespace):
        return True
    labels = admission.labels_of_namespace()
    if labels is None:
        raise not_found("namespaces", "", admission.namespace)
    return labels_match(selector, labels)


def labels_match(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a valid LabelSelector matches."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _expression_holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _expression_holds(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression.get("operator"), expression.get("values") or ()
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    return (labels.get(key) in values and key in labels) is (operator == "In")


class Unmatched(Exception):
    """A match condition failed and the failure policy is Fail; the message is the error."""


def conditions_hold(
    conditions: Sequence[Object], variables: Mapping[str, Any], admission: Admission, *, fails: bool
) -> bool:
    """Return whether all match conditions are true. A false one decides, even if others fail.

    Raises `Unmatched` if `fails` is true, a condition failed and none is false.
    """
    errors: list[str] = []
    for condition in conditions:
        try:
            if evaluate(condition["expression"], variables, admission) is False:
                return False
        except CelError as error:
            errors.append(str(error))
    if errors and fails:
        raise Unmatched(errors[0] if len(errors) == 1 else f"[{', '.join(dict.fromkeys(errors))}]")
    return not errors


def evaluate(expression: str, variables: Mapping[str, Any], admission: Admission) -> Any:
    """Evaluate an expression. Raises `CelError` that contains it."""
    try:
        return program(expression).evaluate(variables, admission.allowed)
    except CelError as error:
        raise CelError(f"expression '{expression}' resulted in error: {error}") from None
