"""Requests in another's name: who may make them, and whose they are then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.embedded.support import NODES, PODS, container, named

from .people import ANN, Guarded, rule

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ON_REVIEWS = rule("impersonate-on:user-info:create", "selfsubjectreviews", group="authentication.k8s.io")


def as_(server: Guarded, *headers: tuple[str, str], by: str = "ann") -> tuple[int, Any]:
    """Status, and who one is then or why not."""
    code, answer = server.by(
        by, "POST", WHO, {}, headers=[(f"impersonate-{name}", value) for name, value in headers]
    )
    return code, answer["status"]["userInfo"] if code == 201 else answer["message"]


def constrained(verb: str, resource: str, names: str = "") -> dict[str, Any]:
    return rule(f"impersonate:{verb}", resource, group="authentication.k8s.io", names=names)


def test_without_a_right_the_first_way_is_told(server):
    code, why = as_(server, ("user", "bob"))
    assert code == 403
    assert why.endswith(
        'User "ann" cannot impersonate-on:user-info:create resource "selfsubjectreviews" in API group '
        '"authentication.k8s.io" at the cluster scope'
    )


def test_the_older_way_asks_for_each_part(server):
    rules = [
        rule("impersonate", "users groups"),
        rule("impersonate", "userextras/scopes", group="authentication.k8s.io"),
    ]
    server.grant("older", rules, ANN)
    code, user = as_(server, ("user", "bob"), ("group", "g1"), ("group", "g2"), ("extra-scopes", "view"))
    assert (code, user["groups"]) == (201, ["g1", "g2", "system:authenticated"])
    assert user["extra"] == {"scopes": ["view"]}
    code, why = as_(server, ("user", "bob"), ("uid", "u"))
    assert code == 403
    # Who was let through by the older way before is told of that one.
    assert 'cannot impersonate resource "uids"' in why


def test_the_constrained_way_asks_for_the_request_and_for_the_user(server):
    server.grant("be-bob", [constrained("user-info", "users", names="bob")], ANN)
    assert as_(server, ("user", "bob"))[0] == 403
    server.grant("on", [ON_REVIEWS], ANN)
    assert as_(server, ("user", "bob")) == (201, {"username": "bob", "groups": ["system:authenticated"]})
    code, why = as_(server, ("user", "eve"))
    assert (code, 'users.authentication.k8s.io "eve" is forbidden' in why) == (403, True)
    headers = [("impersonate-user", "bob")]
    assert server.by("ann", "GET", PODS, headers=headers)[1]["message"].startswith(
        'pods is forbidden: User "ann" cannot impersonate-on:user-info:list'
    )


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
    server.grant(
        "on",
        [ON_REVIEWS, constrained("user-info", "users"), constrained("user-info", "groups", names="*")],
        ANN,
    )
    assert as_(server, ("user", "bob"), *[("group", f"g{n}") for n in range(4)])[0] == 201
    assert as_(server, ("user", "bob"), *[("group", f"g{n}") for n in range(3)])[0] == 403


def test_nodes_and_accounts_have_ways_of_their_own(server):
    on = [
        rule(f"impersonate-on:{mode}:create", "selfsubjectreviews", group="authentication.k8s.io")
        for mode in ("arbitrary-node", "serviceaccount")
    ]
    server.grant(
        "on",
        [
            *on,
            constrained("arbitrary-node", "nodes", names="n1"),
            constrained("serviceaccount", "serviceaccounts"),
        ],
        ANN,
    )
    assert as_(server, ("user", "system:node:n1"))[1]["groups"] == ["system:nodes", "system:authenticated"]
    assert as_(server, ("user", "system:node:n2"))[0] == 403
    assert as_(server, ("user", "system:serviceaccount:a:b"))[1]["groups"] == [
        "system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated",
    ]  # fmt: skip
    # With a group it is no longer that way's matter.
    code, why = as_(server, ("user", "system:serviceaccount:a:b"), ("group", "g"))
    assert (code, 'cannot impersonate resource "serviceaccounts"' in why) == (403, True)
    code, why = as_(server, ("user", "bob"))
    assert (code, "impersonate-on:user-info:create" in why) == (403, True)


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


def test_anonymous_is_in_no_group_of_those_who_are_known(server):
    assert as_(server, ("user", "system:anonymous"), by="admin")[0] == 403
    code, user = as_(server, ("user", "bob"), ("group", "system:unauthenticated"), by="admin")
    assert code == 403
    code, user = as_(server, ("user", "bob"), ("group", "system:authenticated"), by="admin")
    assert (code, user["groups"]) == (201, ["system:authenticated"])


def test_parts_without_a_user_are_a_bad_request(server):
    code, why = as_(server, ("uid", "u"), ("extra-b", "2"), ("extra-a", "1"))
    assert code == 400
    assert why == (
        'requested &user.DefaultInfo{Name:"", UID:"u", Groups:[]string(nil), '
        'Extra:map[string][]string{"a":[]string{"1"}, "b":[]string{"2"}}} without impersonating a user name'
    )
