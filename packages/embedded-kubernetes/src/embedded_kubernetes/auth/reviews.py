"""Answers reviews, such as SubjectAccessReview, by the code that decides about requests.

The modules of their kinds validate them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..builtin import names
from ..errors import ApiError, bad_request
from ..resource import Object
from ..selectors import field_terms, label_requirements
from .attributes import Attributes, of_path
from .gate import Access
from .identity import EVERYBODY, User
from .jwt import Unaccepted
from .quoting import aggregate
from .rules import PolicyRule

_RESOURCE, _PATH = "resourceAttributes", "nonResourceAttributes"


def _subject_access(review: Object, user: User, access: Access) -> Object:
    """Answer a SubjectAccessReview or LocalSubjectAccessReview."""
    spec = review.get("spec") or {}
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    subject = User(spec.get("user") or "", spec.get("uid") or "", tuple(spec.get("groups") or ()), extra)
    return _decided(review, subject, access)


def _own_access(review: Object, user: User, access: Access) -> Object:
    """Answer a SelfSubjectAccessReview."""
    return _decided(review, user, access)


def _own_rules(review: Object, user: User, access: Access) -> Object:
    """Answer a SelfSubjectRulesReview. Raises 400 without a namespace."""
    namespace = (review.get("spec") or {}).get("namespace")
    if not namespace:
        raise bad_request("no namespace on request")
    granted = access.authorizer.grants(user, namespace)
    rules = [each.rule for each in granted.rules]
    status: dict[str, Any] = {
        "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
        "nonResourceRules": [
            {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.urls)} for rule in rules if rule.urls
        ],
        "incomplete": False,
    }
    if granted.errors:
        status["evaluationError"] = aggregate(granted.errors)
    return {**review, "spec": {}, "status": status}


def _who_am_i(review: Object, user: User, access: Access) -> Object:
    """Answer a SelfSubjectReview."""
    metadata = {**review["metadata"], "creationTimestamp": access.now()}
    return {**review, "metadata": metadata, "status": {"userInfo": user.info()}}


def _token(review: Object, user: User, access: Access) -> Object:
    """Answer a TokenReview. Raises 400 without a token."""
    spec = review.get("spec") or {}
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    if access.authenticator is None:
        return {**review, "status": {"authenticated": True, "user": EVERYBODY.info()}}
    try:
        proof = access.authenticator.review(spec["token"], spec.get("audiences") or ())
    except Unaccepted as error:
        return {**review, "status": {"user": {}, "error": str(error)}}
    status = {"authenticated": True, "user": proof.user.info(), "audiences": list(proof.audiences)}
    return {**review, "status": status}


def _resource_rule(rule: PolicyRule) -> dict[str, Any]:
    found = {"verbs": list(rule.verbs), "apiGroups": list(rule.groups), "resources": list(rule.resources)}
    return {**found, "resourceNames": list(rule.names)} if rule.names else found


def _decided(review: Object, subject: User, access: Access) -> Object:
    decision = access.authorizer.authorize(subject, _asked(review.get("spec") or {}))
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    if ignored := _ignored((review.get("spec") or {}).get(_RESOURCE) or {}):
        status["evaluationError"] = "; ".join(ignored)
    return {**review, "status": status}


def _ignored(asked: Object) -> list[str]:
    """Return warnings about malformed selectors, which authorizers ignore."""
    said = []
    for name, text_fits, fits in (
        ("fieldSelector", field_terms, _fits_field),
        ("labelSelector", label_requirements, _fits_label),
    ):
        selector = asked.get(name) or {}
        requirements = selector.get("requirements") or ()
        fitting = [requirement for requirement in requirements if fits(requirement)]
        bad = len(fitting) < len(requirements)
        if selector.get("rawSelector"):
            try:
                text_fits(selector["rawSelector"])
            except ApiError:
                bad = True
        if bad:
            part = "partially ignored" if fitting else "ignored"
            said.append(f"spec.{_RESOURCE}.{name} {part} due to parse error")
    return said


def _fits_field(requirement: Object) -> bool:
    return requirement.get("operator") in ("In", "NotIn") and len(requirement.get("values") or ()) == 1


def _fits_label(requirement: Object) -> bool:
    values = requirement.get("values") or ()
    if names.qualified(requirement.get("key") or "") or any(names.label_value(value) for value in values):
        return False
    operator = requirement.get("operator")
    return bool(values) if operator in ("In", "NotIn") else operator in ("Exists", "DoesNotExist") and not values


def _asked(spec: Object) -> Attributes:
    asked = spec.get(_RESOURCE)
    if asked is None:
        asked = spec.get(_PATH) or {}
        return of_path(asked.get("verb", ""), asked.get("path", ""))
    return Attributes(
        verb=asked.get("verb", ""),
        group=asked.get("group", ""),
        version=asked.get("version") or "*",
        resource=asked.get("resource", ""),
        subresource=asked.get("subresource", ""),
        namespace=asked.get("namespace", ""),
        name=asked.get("name", ""),
    )


_ANSWERS: dict[str, Callable[[Object, User, Access], Object]] = {
    "SubjectAccessReview": _subject_access,
    "LocalSubjectAccessReview": _subject_access,
    "SelfSubjectAccessReview": _own_access,
    "SelfSubjectRulesReview": _own_rules,
    "SelfSubjectReview": _who_am_i,
    "TokenReview": _token,
}


def answer(kind: str, review: Object, user: User, access: Access) -> Object:
    """Return the review with its status. Raises 400 for a review without a question."""
    return _ANSWERS[kind](review, user, access)
