"""kubectl against the embedded cluster with RBAC: who one is, what one may, tokens, and other people's names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .kubectl import Kubectl, cluster


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("access")
    (folder / "tokens.csv").write_text('ann-token,ann,u-ann,"dev,ops"\n')
    return folder


@pytest.fixture(scope="module")
def admin(home: Path) -> Iterator[Kubectl]:
    """An administrator's kubectl. `robot` may read pods in the namespace default, and see what the kinds are."""
    flags = (
        "--authorization-mode=RBAC",
        f"--token-auth-file={home}/tokens.csv",
        f"--audit-log-path={home}/audit",
    )
    with cluster(home, "--nodes=1", *flags) as kubectl:
        kubectl("create", "serviceaccount", "robot")
        kubectl("create", "role", "reader", "--verb=get,list,watch", "--resource=pods")
        kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:robot")
        yield kubectl


def test_kubectl_says_who_one_is(admin):
    assert "kubernetes-admin" in admin("auth", "whoami")
    ann = admin("auth", "whoami", "--token=ann-token", "-o", "json")
    user = json.loads(ann)["status"]["userInfo"]
    assert (user["username"], user["uid"]) == ("ann", "u-ann")
    assert user["groups"] == ["dev", "ops", "system:authenticated"]


def test_kubectl_says_what_one_may(admin):
    robot = "--as=system:serviceaccount:default:robot"
    assert admin("auth", "can-i", "*", "*").strip() == "yes"
    assert admin("auth", "can-i", "list", "pods", robot).strip() == "yes"
    assert admin.run("auth", "can-i", "delete", "pods", robot, fails=True).stdout.strip() == "no"
    assert admin.run("auth", "can-i", "get", "/metrics", robot, fails=True).stdout.strip() == "no"
    listed = admin("auth", "can-i", "--list", robot)
    assert any(line.startswith("pods ") and "[get list watch]" in line for line in listed.splitlines())


def test_a_token_that_kubectl_made_opens_what_its_account_may(admin):
    token = f"--token={admin('create', 'token', 'robot', '--duration=10m').strip()}"
    assert "system:serviceaccount:default:robot" in admin("auth", "whoami", token)
    assert admin("get", "pods", token, "-o", "name") == ""
    refusal = admin.refused("get", "secrets", token)
    assert "Error from server (Forbidden)" in refusal
    assert 'User "system:serviceaccount:default:robot" cannot list resource "secrets"' in refusal
    other = f"--token={admin('create', 'token', 'robot', '--audience=vault').strip()}"
    assert "Unauthorized" in admin.refused("get", "pods", other)


def test_kubectl_acts_as_somebody_else_who_may(admin):
    assert "cannot list resource" in admin.refused("get", "pods", "--as=bob")
    admin("create", "clusterrolebinding", "viewers", "--clusterrole=view", "--group=viewers")
    assert admin("get", "pods", "--as=bob", "--as-group=viewers", "-o", "name") == ""
    assert "cannot impersonate" in admin.refused("get", "pods", "--token=ann-token", "--as=bob")


def test_kubectl_reconciles_roles(admin):
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    }
    assert "reconciled" in admin("auth", "reconcile", "-f", "-", stdin=role)
    rules = admin.json("get", "role", "reader")["rules"]
    assert {resource for rule in rules for resource in rule["resources"]} == {"pods", "configmaps"}


def test_the_log_has_what_was_asked(admin, home):
    admin("get", "configmaps", "--as=ann", "--as-group=system:masters")
    events = [json.loads(line) for line in (home / "audit").read_text().splitlines()]
    [event] = [
        event
        for event in events
        if event.get("objectRef", {}).get("resource") == "configmaps" and event["verb"] == "list"
    ]
    assert event["user"]["username"] == "kubernetes-admin"
    assert event["impersonatedUser"]["groups"] == ["system:masters", "system:authenticated"]
    assert event["objectRef"]["namespace"] == "default"
    assert event["responseStatus"]["code"] == 200
