"""RBAC objects and access reviews.

Validation follows pkg/apis/rbac/validation and pkg/apis/authorization/validation, in their order. The package `auth`
evaluates the objects and answers the reviews.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import Cause
from ..resource import Object
from .causes import invalid, required
from .kind import Logic
from .rules import check_part
from .selectors import check_label_selector

_RBAC = "rbac.authorization.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"


def _default_binding(binding: Object) -> None:
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


def _check_role_reference(binding: Object, old: Object | None) -> Iterator[Cause]:
    ref: dict[str, Any] = binding.get("roleRef") or {}
    if old is not None and ref != old.get("roleRef"):
        shown = {"APIGroup": ref.get("apiGroup"), "Kind": ref.get("kind"), "Name": ref.get("name")}
        yield invalid("roleRef", shown, "cannot change roleRef")


def _check_aggregation(role: Object, old: Object | None) -> Iterator[Cause]:
    aggregation = role.get("aggregationRule")
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors") or ()
        at = "aggregationRule.clusterRoleSelectors"
        if not selectors:
            yield required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil")
        for index, selector in enumerate(selectors):
            problems = list(check_label_selector(selector, f"{at}[{index}]"))
            yield from problems
            if problems:
                yield invalid(f"{at}[{index}]", None, "invalid label selector.")


def _check_own_access(review: Object) -> list[Cause]:
    return [*_check_attributes(review), *_check_metadata(review)]


def _check_subject_access(review: Object) -> list[Cause]:
    return [*_check_spec(review), *_check_metadata(review)]


def _check_local_access(review: Object) -> Iterator[Cause]:
    yield from _check_spec(review)
    spec, metadata = review.get("spec") or {}, review.get("metadata") or {}
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if any(value for field, value in metadata.items() if field not in ("namespace", "managedFields")):
        yield invalid("metadata", metadata, "must be empty except for namespace")
    if asked is not None and asked.get("namespace", "") != metadata.get("namespace", ""):
        at = "spec.resourceAttributes.namespace"
        yield invalid(at, asked.get("namespace", ""), "must match metadata.namespace")
    if path is not None:
        yield invalid("spec.nonResourceAttributes", _shown_path(path), "disallowed on this kind of request")


def _check_metadata(review: Object) -> list[Cause]:
    metadata = review.get("metadata") or {}
    if any(value for field, value in metadata.items() if field != "managedFields"):
        return [invalid("metadata", metadata, "must be empty")]
    return []


def _check_spec(review: Object) -> list[Cause]:
    spec = review.get("spec") or {}
    causes = list(_check_attributes(review))
    if not spec.get("user") and not spec.get("groups"):
        # kube-apiserver reports it before errors inside the attributes.
        at = next((i for i, cause in enumerate(causes) if "elector" in cause.field), len(causes))
        causes.insert(at, invalid("spec.user", "", "at least one of user or group must be specified"))
    return causes


def _check_attributes(review: Object) -> Iterator[Cause]:
    spec = review.get("spec") or {}
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if asked is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        yield invalid("spec.nonResourceAttributes", _shown_path(path), why)
    if asked is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid("spec.resourceAttributes", None, why)
    for field in ("fieldSelector", "labelSelector"):
        if asked is not None and (selector := asked.get(field)) is not None:
            yield from _check_asked_selector(selector, f"spec.resourceAttributes.{field}")


def _check_asked_selector(selector: dict[str, Any], at: str) -> Iterator[Cause]:
    raw, requirements = selector.get("rawSelector"), selector.get("requirements") or ()
    if raw and requirements:
        yield invalid(f"{at}.rawSelector", raw, "may not specified at the same time as requirements")
    if not raw and not requirements:
        why = f"when {at} is specified, requirements or rawSelector is required"
        yield required(f"{at}.requirements", why)
    for index, requirement in enumerate(requirements):
        yield from check_part("selectorRequirement", requirement, f"{at}.requirements[{index}]")


def _shown_path(path: dict[str, Any]) -> dict[str, Any]:
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


_REVIEWS: dict[str, Callable[[Object], Iterable[Cause]]] = {
    "SelfSubjectAccessReview": _check_own_access,
    "SubjectAccessReview": _check_subject_access,
    "LocalSubjectAccessReview": _check_local_access,
}


def _asked(check: Callable[[Object], Iterable[Cause]]) -> Logic:
    return Logic(check=lambda review, old: check(review))


LOGIC = {
    **{(_AUTHORIZATION, kind): _asked(check) for kind, check in _REVIEWS.items()},
    (_RBAC, "ClusterRole"): Logic(check=_check_aggregation),
    (_RBAC, "RoleBinding"): Logic(default=_default_binding, check=_check_role_reference),
    (_RBAC, "ClusterRoleBinding"): Logic(default=_default_binding, check=_check_role_reference),
}
