"""Rights to write roles and bindings, and the limits of what they grant."""

from __future__ import annotations

from typing import Any

import pytest

from ..support import APPLY, MERGE, named
from .people import ANN, RBAC, Guarded, rule

GROUP = "rbac.authorization.k8s.io"
ROLES, BINDINGS = (f"{RBAC}/namespaces/default/{plural}" for plural in ("roles", "rolebindings"))


@pytest.fixture
def server() -> Guarded:
    server = Guarded()
    kinds = "roles rolebindings clusterroles clusterrolebindings"
    server.grant("editor", [rule("get create update patch delete", kinds, group=GROUP), rule("get list", "pods")], ANN)
    return server


def role(name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(name: str, to: str, kind: str = "Role") -> dict[str, Any]:
    ref = {"apiGroup": GROUP, "kind": kind, "name": to}
    return named(name, roleRef=ref, subjects=[{"kind": "User", "name": "bob"}])


@pytest.mark.parametrize("kind", ["put", "patch", "apply", "apply-new", "put-new"])
def test_nor_does_a_change_however_it_is_sent(server, kind):
    server.made(ROLES, role("r", rule("get", "pods")))
    name = "new" if kind.endswith("new") else "r"
    body = role(name, rule("delete", "pods"))
    full = {"apiVersion": f"{GROUP}/v1", "kind": "Role", **body}
    code, answer = {
        "put": lambda: server.by("ann", "PUT", f"{ROLES}/{name}", body),
        "patch": lambda: server.by("ann", "PATCH", f"{ROLES}/{name}", {"rules": body["rules"]}, kind=MERGE),
        "apply": lambda: server.by("ann", "PATCH", f"{ROLES}/{name}?fieldManager=t&force=true", full, kind=APPLY),
    }[kind.partition("-")[0]]()
    assert (code, "attempting to grant" in answer["message"]) == (403, True)
    assert server.by("admin", "GET", f"{ROLES}/new")[0] == 404


def test_a_role_beyond_ones_rights_is_left_alone_but_may_lose_finalizers_and_go(server):
    server.made(ROLES, {**role("r", rule("delete", "pods")), "metadata": {"name": "r", "finalizers": ["a.b/c"]}})
    assert server.by("ann", "PATCH", f"{ROLES}/r", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)[0] == 403
    assert server.by("ann", "PATCH", f"{ROLES}/r", {"metadata": {"finalizers": None}}, kind=MERGE)[0] == 200
    assert server.by("ann", "DELETE", f"{ROLES}/r")[0] == 200


def test_roles_that_are_missing_are_told(server):
    server.made(BINDINGS, {**binding("dangling", "none"), "subjects": [ANN]})
    _, answer = server.by("ann", "POST", ROLES, role("r", rule("delete", "pods")))
    assert answer["message"].endswith('; resolution errors: [role.rbac.authorization.k8s.io "none" not found]')
    _, answer = server.by("ann", "DELETE", "/api/v1/namespaces/default/pods/p")
    assert answer["message"].endswith(': RBAC: role.rbac.authorization.k8s.io "none" not found')


def test_what_the_change_is_by_counts_in_what_was_asked(server):
    server.audited.clear()
    server.by("ann", "PUT", f"{ROLES}/r", role("r"))
    assert [(each.verb, each.combined, each.name) for each in server.audited[0].further] == [
        ("escalate", "roles", "r"), ("create", "roles", "r"),
    ]  # fmt: skip
