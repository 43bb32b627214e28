"""What bindings grant, and in which namespace."""

from __future__ import annotations

from typing import Any

import pytest

from tests.embedded.support import NAMESPACES, named

from .people import RBAC, Guarded, rule


@pytest.fixture
def server() -> Guarded:
    server = Guarded()
    for namespace in ("one", "two"):
        server.made(NAMESPACES, named(namespace))
    return server


def grant(server: Guarded, namespace: str, verbs: str, *subjects: dict[str, str]) -> None:
    """A Role of the namespace, always of the same name, that lets the subjects do this with its pods."""
    at = f"{RBAC}/namespaces/{namespace}"
    server.made(f"{at}/roles", named("worker", rules=[rule(verbs, "pods")]))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "worker"}
    body: dict[str, Any] = named("work", roleRef=role, subjects=list(subjects))
    server.made(f"{at}/rolebindings", body)


def token(server: Guarded, namespace: str) -> str:
    """Of the service account `robot` there."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    server.made(accounts, named("robot"))
    return server.made(f"{accounts}/robot/token", {"spec": {}})["status"]["token"]


def may(server: Guarded, who: str, method: str, namespace: str) -> bool:
    return server.by(who, method, f"/api/v1/namespaces/{namespace}/pods")[0] != 403


def test_a_service_account_is_of_the_namespace_that_the_subject_names(server):
    here, there = token(server, "one"), token(server, "two")
    grant(server, "one", "list", {"kind": "ServiceAccount", "name": "robot", "namespace": "two"})
    assert may(server, there, "GET", "one")
    assert not may(server, here, "GET", "one"), "its namesake"


def test_a_binding_means_the_role_of_its_own_namespace(server):
    ann = {"kind": "User", "name": "ann"}
    grant(server, "one", "list", ann)
    grant(server, "two", "deletecollection", ann)
    assert may(server, "ann", "GET", "one") and not may(server, "ann", "DELETE", "one")
    assert may(server, "ann", "DELETE", "two") and not may(server, "ann", "GET", "two")
