"""Who may do what: RBAC objects, and the reviews, which ask about it.

Checks follow pkg/apis/rbac/validation and pkg/apis/authorization/validation, in their order. What the objects come to,
and the answers to reviews, are in `auth`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import Cause
from ..resource import Object
from . import names
from .causes import invalid, required, unsupported
from .kind import Logic
from .selectors import check_label_selector

_RBAC = "rbac.authorization.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


def _default_binding(binding: Object) -> None:
    ref = binding.get("roleRef")
    if not isinstance(ref, dict):
        ref = binding["roleRef"] = {}
    if not ref.get("apiGroup"):
        ref["apiGroup"] = _RBAC
    for field in ("kind", "name"):
        ref.setdefault(field, "")
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


def _check_binding(binding: Object, old: Object | None, *, namespaced: bool) -> list[Cause]:
    ref: dict[str, Any] = binding.get("roleRef") or {}
    group, kind, name = (ref.get(field) or "" for field in ("apiGroup", "kind", "name"))
    causes = [] if group == _RBAC else [unsupported("roleRef.apiGroup", group, (_RBAC,))]
    allowed = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if kind not in allowed:
        causes.append(unsupported("roleRef.kind", kind, allowed))
    if not name:
        causes.append(required("roleRef.name"))
    else:
        causes += [invalid("roleRef.name", name, problem) for problem in names.path_segment(name)]
    for index, subject in enumerate(binding.get("subjects") or ()):
        causes += _check_subject(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and ref != old.get("roleRef"):
        causes.append(
            invalid("roleRef", {"APIGroup": group, "Kind": kind, "Name": name}, "cannot change roleRef")
        )
    return causes


def _check_subject(subject: dict[str, Any], at: str, *, namespaced: bool) -> list[Cause]:
    kind, name, group = (subject.get(field) or "" for field in ("kind", "name", "apiGroup"))
    causes = [] if name else [required(f"{at}.name")]
    if kind == "ServiceAccount":
        if name:
            causes += [invalid(f"{at}.name", name, problem) for problem in names.subdomain(name)]
        if group:
            causes.append(unsupported(f"{at}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            causes.append(required(f"{at}.namespace"))
    elif kind in _SUBJECTS:
        if group != _RBAC:
            causes.append(unsupported(f"{at}.apiGroup", group, (_RBAC,)))
    else:
        causes.append(unsupported(f"{at}.kind", kind, _SUBJECTS))
    return causes


def _check_role(role: Object, old: Object | None, *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(role.get("rules") or ()):
        causes += _check_rule(rule, f"rules[{index}]", namespaced=namespaced)
    aggregation = role.get("aggregationRule")
    if aggregation is not None and not namespaced:
        selectors = aggregation.get("clusterRoleSelectors") or ()
        at = "aggregationRule.clusterRoleSelectors"
        if not selectors:
            why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            causes.append(required(at, why))
        for index, selector in enumerate(selectors):
            if problems := check_label_selector(selector, f"{at}[{index}]"):
                causes += [*problems, invalid(f"{at}[{index}]", None, "invalid label selector.")]
    return causes


def _check_rule(rule: dict[str, Any], at: str, *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    if not rule.get("verbs"):
        causes.append(required(f"{at}.verbs", "verbs must contain at least one value"))
    if urls := rule.get("nonResourceURLs"):
        path = f"{at}.nonResourceURLs"
        if namespaced:
            causes.append(invalid(path, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            causes.append(invalid(path, urls, why))
        return causes
    if not rule.get("apiGroups"):
        causes.append(required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        causes.append(required(f"{at}.resources", "resource rules must supply at least one resource"))
    return causes


def _check_own_access(review: Object) -> list[Cause]:
    return _check_attributes(review) + _check_metadata(review)


def _check_subject_access(review: Object) -> list[Cause]:
    return _check_spec(review) + _check_metadata(review)


def _check_local_access(review: Object) -> list[Cause]:
    causes = _check_spec(review)
    spec, metadata = review.get("spec") or {}, review.get("metadata") or {}
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if any(value for field, value in metadata.items() if field not in ("namespace", "managedFields")):
        causes.append(invalid("metadata", metadata, "must be empty except for namespace"))
    if asked is not None and asked.get("namespace", "") != metadata.get("namespace", ""):
        at = "spec.resourceAttributes.namespace"
        causes.append(invalid(at, asked.get("namespace", ""), "must match metadata.namespace"))
    if path is not None:
        at = "spec.nonResourceAttributes"
        causes.append(invalid(at, _shown_path(path), "disallowed on this kind of request"))
    return causes


def _check_metadata(review: Object) -> list[Cause]:
    metadata = review.get("metadata") or {}
    if any(value for field, value in metadata.items() if field != "managedFields"):
        return [invalid("metadata", metadata, "must be empty")]
    return []


def _check_spec(review: Object) -> list[Cause]:
    spec = review.get("spec") or {}
    causes = _check_attributes(review)
    if not spec.get("user") and not spec.get("groups"):
        # Before what is wrong inside the attributes.
        at = next((i for i, cause in enumerate(causes) if "elector" in cause.field), len(causes))
        causes.insert(at, invalid("spec.user", "", "at least one of user or group must be specified"))
    return causes


def _check_attributes(review: Object) -> list[Cause]:
    spec = review.get("spec") or {}
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    causes: list[Cause] = []
    if asked is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        causes.append(invalid("spec.nonResourceAttributes", _shown_path(path), why))
    if asked is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.append(invalid("spec.resourceAttributes", None, why))
    for field in ("fieldSelector", "labelSelector"):
        if asked is not None and (selector := asked.get(field)) is not None:
            causes += _check_asked_selector(selector, f"spec.resourceAttributes.{field}")
    return causes


def _check_asked_selector(selector: dict[str, Any], at: str) -> list[Cause]:
    raw, requirements = selector.get("rawSelector"), selector.get("requirements") or ()
    causes: list[Cause] = []
    if raw and requirements:
        why = "may not specified at the same time as requirements"
        causes.append(invalid(f"{at}.rawSelector", raw, why))
    if not raw and not requirements:
        why = f"when {at} is specified, requirements or rawSelector is required"
        causes.append(required(f"{at}.requirements", why))
    for index, requirement in enumerate(requirements):
        causes += _check_requirement(requirement, f"{at}.requirements[{index}]")
    return causes


def _check_requirement(requirement: dict[str, Any], at: str) -> list[Cause]:
    operator, values = requirement.get("operator") or "", requirement.get("values") or ()
    causes = [] if requirement.get("key") else [required(f"{at}.key", "must be specified")]
    if operator in ("In", "NotIn"):
        if not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            causes.append(required(f"{at}.values", why))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(Cause("FieldValueForbidden", f"{at}.values", f"Forbidden: {why}"))
    else:
        causes.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))
    return causes


def _shown_path(path: dict[str, Any]) -> dict[str, Any]:
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


_REVIEWS: dict[str, Callable[[Object], list[Cause]]] = {
    "SelfSubjectAccessReview": _check_own_access,
    "SubjectAccessReview": _check_subject_access,
    "LocalSubjectAccessReview": _check_local_access,
}


def _asked(check: Callable[[Object], list[Cause]]) -> Logic:
    return Logic(check=lambda review, old: check(review))


LOGIC = {
    **{(_AUTHORIZATION, kind): _asked(check) for kind, check in _REVIEWS.items()},
    (_RBAC, "Role"): Logic(check=partial(_check_role, namespaced=True)),
    (_RBAC, "ClusterRole"): Logic(check=partial(_check_role, namespaced=False)),
    (_RBAC, "RoleBinding"): Logic(default=_default_binding, check=partial(_check_binding, namespaced=True)),
    (_RBAC, "ClusterRoleBinding"): Logic(
        default=_default_binding, check=partial(_check_binding, namespaced=False)
    ),
}
