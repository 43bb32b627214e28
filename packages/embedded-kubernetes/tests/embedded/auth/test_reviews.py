"""Reviews, roles of a new cluster, and roles that aggregate others."""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kubernetes.auth.authentication import ACCEPTED_FOR

from ..support import cases, named
from .people import ANN, RBAC, Guarded, rule

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"


def access(server: Guarded, **spec: Any) -> Any:
    return server.made(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})["status"]


@cases("""
    selector | error
    {rawSelector: metadata.name=a} | null
    {rawSelector: metadata.name} | ignored due to parse error
    {requirements: [{key: a, operator: In, values: [b]}]} | null
    {requirements: [{key: a, operator: Exists}]} | ignored due to parse error
    {requirements: [{key: a, operator: In, values: [b]}, {key: a, operator: Exists}]} | partially ignored due to
        parse error
    """)
def test_a_review_says_which_selector_could_not_be_read(server, selector, error):
    asked = {"verb": "list", "resource": "pods", "fieldSelector": selector}
    status = access(server, user="eve", resourceAttributes=asked)
    wanted = None if error is None else f"spec.resourceAttributes.fieldSelector {error}"
    assert status.get("evaluationError") == wanted


@cases("""
    spec | fields
    {} | [spec.resourceAttributes, spec.user]
    {user: u, resourceAttributes: {fieldSelector: {}}} | [spec.resourceAttributes.fieldSelector.requirements]
    {user: u, resourceAttributes: {labelSelector: {requirements: [{operator: In}]}}} |
        ['spec.resourceAttributes.labelSelector.requirements[0].key',
        'spec.resourceAttributes.labelSelector.requirements[0].values']
    """)
def test_a_review_that_asks_nothing_is_invalid(server, spec, fields):
    code, answer = server.by("admin", "POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
    assert code == 422
    assert [cause["field"] for cause in answer["details"]["causes"]] == fields


def test_rules_of_ones_own_are_told_with_what_could_not_be_found(server):
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "none"}
    path = f"{RBAC}/namespaces/default/rolebindings"
    server.made(path, named("b", roleRef=ref, subjects=[ANN]))
    server.grant("reader", [rule("get", "pods", names="p")], ANN)
    body = {"spec": {"namespace": "default"}}
    _, answer = server.by("ann", "POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", body)
    status = answer["status"]
    own = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}
    assert own in status["resourceRules"]
    assert any("/api/*" in each["nonResourceURLs"] for each in status["nonResourceRules"])
    assert status["evaluationError"] == 'role.rbac.authorization.k8s.io "none" not found'


def test_a_token_review_is_remembered_for_its_audience_alone(server):
    server.account("robot")
    token = server.token("robot", audiences=["vault"])
    body = {"spec": {"token": token, "audiences": ["vault", "other"]}}
    assert server.made(TOKENS, body)["status"]["audiences"] == ["vault"]
    assert server.by(token, "GET", "/version")[0] == 401
    server.by("admin", "DELETE", "/api/v1/namespaces/default/serviceaccounts/robot")
    assert server.made(TOKENS, body)["status"]["authenticated"]
    server.now += ACCEPTED_FOR
    assert server.made(TOKENS, body)["status"] == {
        "user": {},
        "error": '[invalid bearer token, serviceaccounts "robot" not found]',
    }


@pytest.mark.parametrize(("header", "warned"), [("Bearer  t", True), ("Bearer ", False), ("Basic x y", False)])
def test_a_token_after_two_spaces_is_warned_of(server, header, warned):
    answer = server.send("GET", "/version", authorization=header)
    assert answer.status == 200
    assert any("contains extra space" in value for name, value in answer.headers if name == "Warning") is warned
