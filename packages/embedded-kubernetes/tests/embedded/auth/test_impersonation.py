"""Impersonation: who may send requests as another user, and how these are judged."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import NODES, PODS, container, named

from .people import ANN, Guarded, rule

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ON_REVIEWS = rule("impersonate-on:user-info:create", "selfsubjectreviews", group="authentication.k8s.io")


def as_(server: Guarded, *headers: tuple[str, str], by: str = "ann") -> tuple[int, Any]:
    """Return the status, and the user that the server then sees or its refusal."""
    code, answer = server.by(by, "POST", WHO, {}, headers=[(f"impersonate-{name}", value) for name, value in headers])
    return code, answer["status"]["userInfo"] if code == 201 else answer["message"]


def constrained(verb: str, resource: str, names: str = "") -> dict[str, Any]:
    return rule(f"impersonate:{verb}", resource, group="authentication.k8s.io", names=names)


def test_what_was_let_through_is_for_ten_seconds(server):
    server.grant("on", [ON_REVIEWS, constrained("user-info", "users")], ANN)
    assert as_(server, ("user", "bob"))[0] == 201
    server.by("admin", "DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/on")
    server.now += 9.9
    assert as_(server, ("user", "bob"))[0] == 201
    assert as_(server, ("user", "eve"))[0] == 403
    server.now += 0.2
    assert as_(server, ("user", "bob"))[0] == 403


def test_so_is_another_request_as_somebody_who_was_let_through(server):
    on = rule("impersonate-on:user-info:list", "pods")
    server.grant("on", [ON_REVIEWS, on], ANN)
    server.grant("be", [constrained("user-info", "users")], ANN)
    bob = [("impersonate-user", "bob")]
    assert as_(server, ("user", "bob"))[0] == 201
    server.now += 5
    assert 'User "bob" cannot list' in server.by("ann", "GET", PODS, headers=bob)[1]["message"]
    for name in ("on", "be"):
        server.by("admin", "DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}")
    server.now += 6
    assert as_(server, ("user", "bob"))[0] == 403
    assert 'User "bob" cannot list' in server.by("ann", "GET", PODS, headers=bob)[1]["message"]
    server.now += 5
    assert 'User "ann" cannot impersonate-on' in server.by("ann", "GET", PODS, headers=bob)[1]["message"]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([("group", "system:masters")], "impersonating the system:masters group is not allowed"),
        ([("group", "")], "impersonating the empty string group is not allowed"),
        ([("extra-scopes", "x")], 'must be a domain-prefixed path (such as "acme.io/foo")'),
        ([("extra-acme.io%2ffoo", "")], "impersonating the empty string value in extra is not allowed"),
        ([("extra-Acme_io%2ffoo", "x")], "a lowercase RFC 1123 subdomain"),
    ],
)
def test_the_constrained_way_knows_limits(server, headers, said):
    every = constrained("user-info", "users groups uids userextras/acme.io/foo")
    server.grant("on", [ON_REVIEWS, every], ANN)
    code, why = as_(server, ("user", "bob"), *headers)
    assert (code, said in why) == (403, True), why


def test_many_groups_may_be_asked_for_at_once(server):
    be = [constrained("user-info", "users"), constrained("user-info", "groups", names="*")]
    server.grant("on", [ON_REVIEWS, *be], ANN)
    assert as_(server, ("user", "bob"), *[("group", f"g{n}") for n in range(4)])[0] == 201
    assert as_(server, ("user", "bob"), *[("group", f"g{n}") for n in range(3)])[0] == 403


def test_an_account_may_be_the_node_that_it_runs_on(server):
    server.account("agent")
    server.made(NODES, named("n1"))
    spec = {"containers": [container()], "serviceAccountName": "agent", "nodeName": "n1"}
    server.made(PODS, named("p", spec=spec))
    rules = [
        rule("impersonate-on:associated-node:create", "selfsubjectreviews", group="authentication.k8s.io"),
        constrained("associated-node", "nodes", names="*"),
    ]
    server.grant("node", rules, {"kind": "ServiceAccount", "name": "agent", "namespace": "default"})
    bound = server.token("agent", boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "p"})
    assert as_(server, ("user", "system:node:n1"), by=bound)[1]["username"] == "system:node:n1"
    assert as_(server, ("user", "system:node:n2"), by=bound)[0] == 403
    assert as_(server, ("user", "system:node:n1"), by=server.token("agent"))[0] == 403
