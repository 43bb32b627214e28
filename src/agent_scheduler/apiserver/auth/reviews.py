"""Reviews: questions about access that are put as objects, and answered by what decides about requests.

What makes one invalid is said where its kind is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import bad_request
from ..resource import Object
from .attributes import Attributes, of_path
from .identity import EVERYBODY, User
from .jwt import Unaccepted
from .quoting import aggregate
from .rules import Rule

if TYPE_CHECKING:
    from .gate import Access

_RESOURCE, _PATH = "resourceAttributes", "nonResourceAttributes"


def subject_access(review: Object, user: User, access: Access) -> Object:
    """Answer a SubjectAccessReview, or a local one."""
    spec = review.get("spec") or {}
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    subject = User(spec.get("user") or "", spec.get("uid") or "", tuple(spec.get("groups") or ()), extra)
    return _decided(review, subject, access)


def own_access(review: Object, user: User, access: Access) -> Object:
    """Answer a SelfSubjectAccessReview."""
    return _decided(review, user, access)


def own_rules(review: Object, user: User, access: Access) -> Object:
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


def who_am_i(review: Object, user: User, access: Access) -> Object:
    """Answer a SelfSubjectReview."""
    metadata = {**review["metadata"], "creationTimestamp": access.now()}
    return {**review, "metadata": metadata, "status": {"userInfo": user.info()}}


def token(review: Object, user: User, access: Access) -> Object:
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


def _resource_rule(rule: Rule) -> dict[str, Any]:
    found = {"verbs": list(rule.verbs), "apiGroups": list(rule.groups), "resources": list(rule.resources)}
    return {**found, "resourceNames": list(rule.names)} if rule.names else found


def _decided(review: Object, subject: User, access: Access) -> Object:
    decision = access.authorizer.authorize(subject, _asked(review.get("spec") or {}))
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return {**review, "status": status}


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
