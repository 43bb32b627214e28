"""Tokens of service accounts: their users, audiences and expiry."""

from __future__ import annotations

from typing import Any

from embedded.support import NODES, PODS, container, named
from embedded_kubernetes.auth import jwt

from .people import ACCOUNTS, Guarded

VERSION = "/version"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def status(server: Guarded, token: str) -> int:
    return server.by(token, "GET", VERSION)[0]


def a_pod(account: str, **spec: Any) -> dict[str, Any]:
    containers = [container()]
    return named("p", spec={"containers": containers, "serviceAccountName": account, **spec})


def test_a_token_ends_a_minute_after_its_time(server):
    server.account("robot")
    token = server.token("robot", expirationSeconds=600)
    server.now += 659
    assert status(server, token) == 200
    server.now += 12
    assert status(server, token) == 401


def test_an_accepted_token_is_accepted_for_ten_seconds_after_its_account_went(server):
    server.account("robot")
    token, unused = server.token("robot"), server.token("robot")
    assert status(server, token) == 200
    server.by("admin", "DELETE", f"{ACCOUNTS}/robot")
    assert status(server, unused) == 401
    server.now += 9.9
    assert status(server, token) == 200
    server.now += 0.2
    assert status(server, token) == 401
    server.account("robot")
    assert status(server, token) == 401


def test_a_token_ends_with_the_deletion_of_its_account_though_a_finalizer_keeps_the_account(server):
    server.made(ACCOUNTS, named("robot", finalizers=["example.com/hold"]))
    token = server.token("robot")
    server.by("admin", "DELETE", f"{ACCOUNTS}/robot")
    server.now += 120
    code, answer = server.by("admin", "POST", REVIEWS, {"spec": {"token": token}})
    assert (code, "has been deleted" in answer["status"]["error"]) == (201, True)
    assert status(server, token) == 401


def test_a_token_bound_to_a_pod_ends_with_it_and_tells_where_it_runs(server):
    server.account("robot")
    node = server.made(NODES, named("n1"))
    pod = server.made(PODS, a_pod("robot", nodeName="n1"))
    token = server.token("robot", boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "p"})
    _, review = server.by(token, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    extra = review["status"]["userInfo"]["extra"]
    prefix = "authentication.kubernetes.io/"
    assert extra[f"{prefix}pod-uid"] == [pod["metadata"]["uid"]]
    assert extra[f"{prefix}node-uid"] == [node["metadata"]["uid"]]
    server.by("admin", "DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    server.now += 11
    assert status(server, token) == 401


def test_a_token_bound_to_a_pod_is_not_that_of_its_namesake(server):
    server.account("robot")
    server.made(PODS, a_pod("robot"))
    token = server.token("robot", boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "p"})
    server.by("admin", "DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    server.made(PODS, a_pod("robot"))
    assert status(server, token) == 401


def test_no_token_is_bound_to_the_pod_of_another_account(server):
    server.account("robot")
    server.made(PODS, a_pod("other"))
    body = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}}
    code, answer = server.by("admin", "POST", f"{ACCOUNTS}/robot/token", body)
    assert (code, answer["reason"]) == (400, "BadRequest")
    assert "different serviceaccount name" in answer["message"]


def test_a_pods_token_for_3607_seconds_lives_for_a_year_and_warns(server):
    server.account("robot")
    server.made(PODS, a_pod("robot"))
    token = server.token(
        "robot", expirationSeconds=3607, boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "p"}
    )
    claims = jwt.claims(token)
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607


def test_the_published_key_verifies_a_token(server):
    from base64 import urlsafe_b64decode

    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    server.account("robot")
    token = server.token("robot")
    _, keys = server.by("admin", "GET", "/openid/v1/jwks")
    numbers = [int.from_bytes(urlsafe_b64decode(keys["keys"][0][part] + "==")) for part in ("e", "n")]
    signed, _, signature = token.rpartition(".")
    rsa.RSAPublicNumbers(*numbers).public_key().verify(
        urlsafe_b64decode(signature + "=="), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
    )
