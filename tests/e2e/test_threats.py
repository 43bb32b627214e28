"""Attacks on what is installed, with RBAC on: a tenant's pods, and a stolen token of each component.

SECURITY.md has the table, and names where the others are tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_scheduler.kube.auth import load_endpoint
from agent_scheduler.kube.http1 import Http1Transport
from tests.support.objects import container, pod
from tests.support.places import ROOT

from .installed import Installation
from .test_installed import NAMESPACE, PODS, bound, embedded_alone, own_cluster

pytestmark = embedded_alone

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
ACCOUNTS = ("agent-scheduler", "agent-scheduler-controllers", "agent-scheduler-webhook")

#: What a stolen token would be wanted for: verb, path, body. None of the components may do any of it.
WANTED: Mapping[str, tuple[str, str, Any]] = {
    "read everybody's Secrets": ("GET", "/api/v1/secrets", None),
    "read the Secrets of kube-system": ("GET", "/api/v1/namespaces/kube-system/secrets", None),
    "take a token of another account": (
        "POST",
        "/api/v1/namespaces/kube-system/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ),
    "give itself all rights": (
        "POST",
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": {"name": "mine"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "agent-scheduler", "namespace": NAMESPACE}],
        },
    ),
    "widen its own role": (
        "PATCH",
        f"{RBAC}/clusterroles/agent-scheduler",
        {"rules": [{"apiGroups": ["*"]}]},
    ),
    "see all that comes by a webhook of its own": (
        "POST",
        f"{ADMISSION}/mutatingwebhookconfigurations",
        {"metadata": {"name": "mine"}, "webhooks": []},
    ),
    "run something in a container": ("POST", f"{PODS}/victim/exec?command=id", None),
    "change what a workload runs": (
        "PATCH",
        "/apis/apps/v1/namespaces/default/deployments/victim",
        {"spec": {"replicas": 0}},
    ),
    "delete a node": ("DELETE", "/api/v1/nodes/node-00000", None),
    "read ConfigMaps of others": ("GET", "/api/v1/namespaces/kube-system/configmaps", None),
}
#: And what one of them may do, as that is its work, so that the others may not.
OF_ITS_OWN: Mapping[str, tuple[str, str, Any, str]] = {
    "bind a pod": (
        "POST",
        f"{PODS}/victim/binding",
        {"metadata": {"name": "victim"}, "target": {"kind": "Node", "name": "node-00000"}},
        "agent-scheduler",
    ),
    # Its Jobs may lie in any namespace.
    "run a pod in kube-system": (
        "POST",
        "/api/v1/namespaces/kube-system/pods",
        {"metadata": {"name": "mine"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "agent-scheduler-controllers",
    ),
    "have its webhooks send more": (
        "PATCH",
        f"{ADMISSION}/mutatingwebhookconfigurations/agent-scheduler-webhook",
        {"metadata": {"annotations": {"mine": "1"}}},
        "agent-scheduler-webhook",
    ),
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Installation]:
    components = ["crd", "default", "controllers", "webhook"]
    async with own_cluster(tmp_path, "--nodes", "1", "--node-cpu", "4", components=components) as made:
        # Nobody answers yet where the webhook would be.
        for kind in ("mutating", "validating"):
            await made.ask("DELETE", f"{ADMISSION}/{kind}webhookconfigurations/agent-scheduler-webhook")
        yield made


async def tried(made: Installation, account: str, method: str, path: str, body: Any) -> int:
    """The status that whoever has a token of the account gets."""
    endpoint = load_endpoint(kubeconfig=await made.kubeconfig_of(NAMESPACE, account))
    transport = Http1Transport(endpoint)
    try:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        return (await transport.request(method, path, body=data, content_type=kind, timeout=300)).status
    finally:
        await transport.close()


async def test_a_stolen_token_is_good_for_nothing_but_its_owners_work(cluster: Installation) -> None:
    for account in ACCOUNTS:
        for what, (method, path, body) in WANTED.items():
            assert await tried(cluster, account, method, path, body) == 403, (account, what)
        for what, (method, path, body, owner) in OF_ITS_OWN.items():
            if account != owner:
                assert await tried(cluster, account, method, path, body) == 403, (account, what)


@pytest.mark.wide
async def test_a_tenants_pod_gets_no_more_than_its_spec_and_class_give_it(cluster: Installation) -> None:
    """What annotations and odd values ask for beyond that makes the pod wait, or is nothing."""
    scheduler = await cluster.start("agent-scheduler", "scheduler")
    await scheduler.ready()

    # A priority of one's own is refused by the API server, a class of the system's outside of it as well.
    status = (await cluster.call("POST", PODS, pod("urgent", priority=2_000_000_000))).status
    assert status == 403
    # Annotations that name nodes, queues and groups choose none, and keep the worker from nobody.
    odd = {
        "scheduling.k8s.io/group-name": "../../kube-system/x",
        "scheduling.volcano.sh/queue-name": "root\n",
        "volcano.sh/task-priority": "9" * 400,
        "agent-scheduler.io/waiting-roles": "," * 10_000,
    }
    await cluster.ask("POST", PODS, pod("odd", annotations=odd))
    huge = {
        "requests": {"example.com/thing": "9000000000000000"},
        "limits": {"example.com/thing": "9000000000000000"},
    }
    await cluster.ask("POST", PODS, pod("huge", containers=[container(**huge)]))
    await cluster.ask("POST", PODS, pod("plain"))

    await bound(cluster, "plain")
    assert not (await cluster.ask("GET", f"{PODS}/huge"))["spec"].get("nodeName")
    scheduler.check()


def test_every_threat_has_its_test() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(rows) >= 8
    for row in rows:
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row):
            assert f"def {name}(" in (ROOT / file).read_text(), row
