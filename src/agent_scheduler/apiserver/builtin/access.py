"""Who may do what: RBAC objects, which are stored and not enforced, and the reviews, which answer yes.

This server authenticates by one optional bearer token and authorizes everything, so a review tells the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..errors import Cause
from ..resource import Object, Resource
from . import names
from .causes import check_one_of, invalid, required
from .kind import builtin

_RBAC = "rbac.authorization.k8s.io"
_GROUPS = ["system:masters", "system:authenticated"]


def _default_binding(binding: Object) -> None:
    ref = binding.setdefault("roleRef", {})
    if not ref.get("apiGroup"):
        ref["apiGroup"] = _RBAC
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


def _check_binding(binding: Object, old: Object | None, *, namespaced: bool) -> list[Cause]:
    ref = binding.get("roleRef") or {}
    causes = check_one_of("roleRef.apiGroup", ref.get("apiGroup"), (_RBAC,))
    allowed = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    causes += check_one_of("roleRef.kind", ref.get("kind"), allowed)
    if not ref.get("name"):
        causes.append(required("roleRef.name"))
    for index, subject in enumerate(binding.get("subjects") or ()):
        at, kind = f"subjects[{index}]", subject.get("kind")
        if not subject.get("name"):
            causes.append(required(f"{at}.name"))
        causes += check_one_of(f"{at}.kind", kind, ("ServiceAccount", "User", "Group"))
        if kind == "ServiceAccount" and not subject.get("namespace"):
            causes.append(required(f"{at}.namespace"))
    if old is not None and ref != old.get("roleRef"):
        causes.append(invalid("roleRef", ref, "cannot change roleRef"))
    return causes


def _check_role(role: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(role.get("rules") or ()):
        at = f"rules[{index}]"
        if not rule.get("verbs"):
            causes.append(required(f"{at}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            causes.append(required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            causes.append(required(f"{at}.resources", "resource rules must supply at least one resource"))
    return causes


def _default_role(role: Object) -> None:
    role.setdefault("rules", None)


_role = partial(builtin, group=_RBAC, version="v1", name_rule=names.path_segment)


def _question(
    *,
    group: str,
    kind: str,
    plural: str,
    answer: Callable[[Object, str], Object],
    check: Callable[[Object], list[Cause]],
    namespaced: bool = False,
) -> Resource:
    return Resource(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        verbs=("create",),
        validate=lambda obj, old: check(obj),
        answer=answer,
    )


def _allow(review: Object, user: str) -> Object:
    return {**review, "status": {"allowed": True}}


def _check_attributes(review: Object) -> list[Cause]:
    spec = review.get("spec") or {}
    given = [
        field for field in ("resourceAttributes", "nonResourceAttributes") if spec.get(field) is not None
    ]
    if len(given) == 1:
        return []
    detail = (
        "cannot be specified in combination with resourceAttributes"
        if given
        else "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    )
    return [invalid("spec.resourceAttributes", None, detail)]


def _check_subject(review: Object) -> list[Cause]:
    spec = review.get("spec") or {}
    causes = _check_attributes(review)
    if not spec.get("user") and not spec.get("groups"):
        causes.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    return causes


def _all_rules(review: Object, user: str) -> Object:
    rules = {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }
    return {**review, "status": rules}


def _check_namespace(review: Object) -> list[Cause]:
    return [] if (review.get("spec") or {}).get("namespace") else [required("spec.namespace")]


def _check_token(review: Object) -> list[Cause]:
    return [] if (review.get("spec") or {}).get("token") else [required("spec.token")]


def _authenticate(review: Object, user: str) -> Object:
    return {**review, "status": {"authenticated": True, "user": {"username": user, "groups": list(_GROUPS)}}}


def _who(review: Object, user: str) -> Object:
    return {**review, "status": {"userInfo": {"username": user, "groups": list(_GROUPS)}}}


def _accept(review: Object) -> list[Cause]:
    return []


ACCESS: tuple[Resource, ...] = (
    _role(kind="Role", plural="roles", namespaced=True, default=_default_role, check=_check_role),
    _role(
        kind="ClusterRole", plural="clusterroles", namespaced=False, default=_default_role, check=_check_role
    ),
    _role(
        kind="RoleBinding",
        plural="rolebindings",
        namespaced=True,
        default=_default_binding,
        check=partial(_check_binding, namespaced=True),
    ),
    _role(
        kind="ClusterRoleBinding",
        plural="clusterrolebindings",
        namespaced=False,
        default=_default_binding,
        check=partial(_check_binding, namespaced=False),
    ),
    _question(
        group="authorization.k8s.io",
        kind="SelfSubjectAccessReview",
        plural="selfsubjectaccessreviews",
        answer=_allow,
        check=_check_attributes,
    ),
    _question(
        group="authorization.k8s.io",
        kind="SubjectAccessReview",
        plural="subjectaccessreviews",
        answer=_allow,
        check=_check_subject,
    ),
    _question(
        group="authorization.k8s.io",
        kind="LocalSubjectAccessReview",
        plural="localsubjectaccessreviews",
        answer=_allow,
        check=_check_subject,
        namespaced=True,
    ),
    _question(
        group="authorization.k8s.io",
        kind="SelfSubjectRulesReview",
        plural="selfsubjectrulesreviews",
        answer=_all_rules,
        check=_check_namespace,
    ),
    _question(
        group="authentication.k8s.io",
        kind="TokenReview",
        plural="tokenreviews",
        answer=_authenticate,
        check=_check_token,
    ),
    _question(
        group="authentication.k8s.io",
        kind="SelfSubjectReview",
        plural="selfsubjectreviews",
        answer=_who,
        check=_accept,
    ),
)
