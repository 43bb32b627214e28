"""Attacks on installed components, with RBAC on: a tenant's pods, and a stolen token of each component.

SECURITY.md has the table, and names the tests of the other attacks.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube_client.auth import load_endpoint
from kube_client.http1 import Http1Transport
from tests.support.client import MERGE
from tests.support.objects import container, pod
from tests.support.places import ROOT

from .installed import Installation
from .test_installed import NAMESPACE, PODS, bound, embedded_alone, own_cluster

pytestmark = embedded_alone

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KUBE_SYSTEM = "/api/v1/namespaces/kube-system"

#: Requests that an attacker would send with a stolen token. No component may send any of them, whatever the body.
WANTED = {
    "read all Secrets": ("GET", "/api/v1/secrets"),
    "read the Secrets of kube-system": ("GET", f"{KUBE_SYSTEM}/secrets"),
    "take a token of another account": ("POST", f"{KUBE_SYSTEM}/serviceaccounts/default/token"),
    "give itself all rights": ("POST", f"{RBAC}/clusterrolebindings"),
    "widen its own role": ("PATCH", f"{RBAC}/clusterroles/agent-scheduler"),
    "see all that comes by a webhook of its own": ("POST", f"{ADMISSION}/mutatingwebhookconfigurations"),
    "run something in a container": ("POST", f"{PODS}/victim/exec?command=id"),
    "change what a workload runs": ("PATCH", "/apis/apps/v1/namespaces/default/deployments/victim"),
    "delete a node": ("DELETE", "/api/v1/nodes/node-00000"),
    "read ConfigMaps of others": ("GET", f"{KUBE_SYSTEM}/configmaps"),
}
#: A request that one component needs and the others may not send. Jobs may be in any namespace. The controllers
#: watch the objects that they create for Jobs, and roles cannot be limited to labels.
WORK = ("agent-scheduler-controllers", "read ConfigMaps of others")
OF_ITS_OWN = {
    "agent-scheduler": ("POST", f"{PODS}/victim/binding"),
    "agent-scheduler-controllers": ("POST", f"{KUBE_SYSTEM}/pods"),
    "agent-scheduler-webhook": ("PATCH", f"{ADMISSION}/mutatingwebhookconfigurations/agent-scheduler-webhook"),
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Installation]:
    components = ["crd", "default", "controllers", "webhook"]
    async with own_cluster(tmp_path, "--nodes", "1", "--node-cpu", "4", components=components) as made:
        # Nothing serves the webhook yet.
        for kind in ("mutating", "validating"):
            await made.ask("DELETE", f"{ADMISSION}/{kind}webhookconfigurations/agent-scheduler-webhook")
        yield made


async def test_a_stolen_token_is_good_for_nothing_but_its_owners_work(cluster: Installation) -> None:
    for account in OF_ITS_OWN:
        transport = Http1Transport(load_endpoint(kubeconfig=await cluster.kubeconfig_of(NAMESPACE, account)))
        others = {name: each for name, each in OF_ITS_OWN.items() if name != account}
        try:
            for what, (method, path) in {**WANTED, **others}.items():
                if (account, what) == WORK:
                    continue
                body = b"{}" if method != "GET" else None
                kind = MERGE if method == "PATCH" else "application/json"
                answer = await transport.request(method, path, body=body, content_type=kind, timeout=300)
                assert answer.status == 403, (account, what)
        finally:
            await transport.close()


@pytest.mark.wide
async def test_a_tenants_pod_gets_no_more_than_its_spec_and_class_give_it(cluster: Installation) -> None:
    """Requests for more, by annotations and unusual values, make the pod wait, or have no effect."""
    scheduler = await cluster.start("agent-scheduler", "scheduler")
    await scheduler.ready()

    # The API server refuses an explicit priority, and also a class of the system outside of its namespace.
    status = (await cluster.call("POST", PODS, pod("urgent", priority=2_000_000_000))).status
    assert status == 403
    # Annotations that name nodes, queues and groups choose none of them, and delay no other pod.
    odd = {
        "scheduling.k8s.io/group-name": "../../kube-system/x",
        "scheduling.volcano.sh/queue-name": "root\n",
        "volcano.sh/task-priority": "9" * 400,
        "agent-scheduler.io/waiting-roles": "," * 10_000,
    }
    await cluster.ask("POST", PODS, pod("odd", annotations=odd))
    amount = {"example.com/thing": "9000000000000000"}
    await cluster.ask("POST", PODS, pod("huge", containers=[container(requests=amount, limits=amount)]))
    await cluster.ask("POST", PODS, pod("plain"))

    await bound(cluster, "plain")
    assert not (await cluster.ask("GET", f"{PODS}/huge"))["spec"].get("nodeName")
    scheduler.check()


def test_every_threat_has_its_test() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and ".py::" in line]
    assert len(rows) >= 8
    for row in rows:
        for file, name in re.findall(r"`([\w/-]+\.py)::(\w+)`", row):
            assert f"def {name}(" in (ROOT / file).read_text(), row
