"""The policies that are installed with the roles: what a token of a component may do to objects that its role names.

That they allow all that the processes do is tested by every feature test, which runs with them.
"""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, STAGE_GATE
from tests.support import objects
from tests.support.client import JSON_PATCH, MERGE, STRATEGIC
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster

SCHEDULER, CONTROLLERS = "agent-scheduler", "agent-scheduler-controllers"
MAPS, CLAIMS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/persistentvolumeclaims"
SERVICES = "/api/v1/namespaces/default/services"
VICTIM = f"{PODS}/victim"
OWNER = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u", "controller": True}


def condition(kind: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status, **more}]}}


def meta(**metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata}


def without(*gates: str) -> dict[str, Any]:
    return {"spec": {"schedulingGates": [{"name": gate, "$patch": "delete"} for gate in gates]}}


def status(**fields: Any) -> dict[str, Any]:
    return {"status": fields}


PREEMPTED = condition("DisruptionTarget", reason="PreemptionByScheduler")
SHARED = [
    (STRATEGIC, VICTIM, {"spec": {"containers": [{"name": "c", "image": "evil"}]}}),
    (MERGE, VICTIM, {"spec": {"activeDeadlineSeconds": 1}}),
    (JSON_PATCH, VICTIM, [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]),
    (MERGE, VICTIM, {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n"}}}),
    (MERGE, VICTIM, meta(labels={"app": "evil"})),
    (MERGE, VICTIM, meta(labels={"app": None})),
    (MERGE, VICTIM, meta(finalizers=["example.com/stays"])),
    (MERGE, VICTIM, meta(annotations={"example.com/a": "evil"})),
    (MERGE, VICTIM, meta(annotations={"example.com/new": "evil"})),
    (MERGE, VICTIM, meta(annotations={"example.com/a": None})),
    (MERGE, VICTIM, meta(ownerReferences=[{**OWNER, "apiVersion": "apps/v1", "kind": "ReplicaSet"}])),
    (STRATEGIC, VICTIM, without("example.com/gate")),
    (MERGE, VICTIM, {"spec": {"schedulingGates": []}}),
]
DENIED = [
    *((account, *row) for account in (SCHEDULER, CONTROLLERS) for row in SHARED),
    (SCHEDULER, STRATEGIC, VICTIM, without(STAGE_GATE)),
    (SCHEDULER, MERGE, VICTIM, meta(annotations={"volcano.sh/job-name": "x"})),
    (SCHEDULER, MERGE, f"{VICTIM}/status", meta(labels={"app": "evil"})),
    (SCHEDULER, MERGE, f"{VICTIM}/status", meta(annotations={"example.com/a": "evil"})),
    (SCHEDULER, MERGE, f"{VICTIM}/status", meta(finalizers=["example.com/stays"])),
    (SCHEDULER, STRATEGIC, f"{VICTIM}/status", condition("Ready")),
    (SCHEDULER, STRATEGIC, f"{VICTIM}/status", condition("Theirs", "False")),
    (SCHEDULER, MERGE, f"{VICTIM}/status", status(conditions=[])),
    (SCHEDULER, MERGE, f"{VICTIM}/status", status(phase="Failed")),
    (SCHEDULER, MERGE, f"{VICTIM}/status", status(podIP="10.0.0.1", podIPs=[{"ip": "10.0.0.1"}])),
    (SCHEDULER, MERGE, f"{VICTIM}/status", status(reason="Evicted")),
    (SCHEDULER, "DELETE", VICTIM, None),
    (CONTROLLERS, STRATEGIC, VICTIM, without(QUEUE_ALLOCATION_GATE)),
    (CONTROLLERS, "DELETE", VICTIM, None),
    (CONTROLLERS, "POST", PODS, objects.pod("new")),
    (CONTROLLERS, "POST", MAPS, {**meta(name="new"), "data": {}}),
    (CONTROLLERS, MERGE, f"{MAPS}/theirs", {"data": {"a": "evil"}}),
    # An owner that comes with the change does not make it one's own.
    (CONTROLLERS, MERGE, f"{MAPS}/theirs", {**meta(ownerReferences=[OWNER]), "data": {"a": "evil"}}),
    (CONTROLLERS, MERGE, f"{MAPS}/ours", meta(ownerReferences=[])),
    (CONTROLLERS, "DELETE", f"{MAPS}/theirs", None),
    (CONTROLLERS, "POST", SERVICES, {**meta(name="new"), "spec": {"ports": [{"port": 1}]}}),
]
ALLOWED = [
    (SCHEDULER, STRATEGIC, VICTIM, without(QUEUE_ALLOCATION_GATE)),
    (SCHEDULER, STRATEGIC, f"{VICTIM}/status", condition("PodScheduled", "False", reason="Unschedulable")),
    (SCHEDULER, STRATEGIC, f"{VICTIM}/status", PREEMPTED),
    (SCHEDULER, MERGE, f"{VICTIM}/status", status(nominatedNodeName="n")),
    (CONTROLLERS, STRATEGIC, VICTIM, without(STAGE_GATE)),
    (CONTROLLERS, MERGE, VICTIM, meta(annotations={"scheduling.k8s.io/group-name": "g"})),
    (CONTROLLERS, MERGE, VICTIM, meta(labels={"volcano.sh/job-name": "j"}, ownerReferences=[OWNER])),
    (CONTROLLERS, "POST", PODS, {**objects.pod("new"), **meta(name="new", ownerReferences=[OWNER])}),
    (CONTROLLERS, MERGE, f"{MAPS}/ours", {"data": {"a": "b"}}),
    (CONTROLLERS, "DELETE", f"{MAPS}/ours", None),
    (CONTROLLERS, MERGE, f"{MAPS}/labeled", meta(ownerReferences=[OWNER])),
]


async def ask(cluster: EmbeddedCluster, how: str, path: str, body: Any) -> tuple[int, str]:
    method = "PATCH" if how in (JSON_PATCH, MERGE, STRATEGIC) else how
    kind = how if method == "PATCH" else "application/json"
    answer = await cluster.call(method, path, body, content_type=kind)
    return answer.status, answer.body.decode()


async def prepared(cluster: EmbeddedCluster) -> None:
    gates = [QUEUE_ALLOCATION_GATE, STAGE_GATE, "example.com/gate"]
    about = {"labels": {"app": "a"}, "annotations": {"example.com/a": "b"}}
    await cluster.add_node("n")
    await cluster.add(PODS, objects.pod("victim", gates=gates, **about))
    await ask(cluster, STRATEGIC, f"{VICTIM}/status", condition("Theirs"))
    for name, labels, owners in (
        ("ours", {}, [OWNER]),
        ("labeled", {"volcano.sh/job-name": "j"}, []),
        ("theirs", {}, []),
    ):
        await cluster.add(MAPS, meta(name=name, labels=labels, ownerReferences=owners))


async def test_a_component_changes_of_others_objects_what_its_work_is_and_nothing_else() -> None:
    async with embedded_cluster(components=("default", "controllers"), controllers=False) as cluster:
        await prepared(cluster)
        for account, how, path, body in DENIED:
            code, text = await ask(cluster.of_account(account), how, path, body)
            where = (account, how, path, body, text)
            assert code == 403 and "ValidatingAdmissionPolicy 'agent-scheduler" in text, where
        for account, how, path, body in ALLOWED:
            code, text = await ask(cluster.of_account(account), how, path, body)
            assert code in (200, 201), (account, how, path, body, text)
        code, _ = await ask(cluster.of_account(SCHEDULER), "DELETE", VICTIM, None)
        assert code == 200, "it is marked as preempted now"
        await cluster.add(PODS, objects.pod("others"))
        assert (await ask(cluster, MERGE, f"{PODS}/others", meta(labels={"app": "b"})))[0] == 200


async def test_no_component_deletes_what_no_pod_may_preempt() -> None:
    async with embedded_cluster(components=("default",), controllers=False) as cluster:
        critical = objects.pod("critical", priorityClassName="system-node-critical")
        system = PODS.replace("/default/", "/kube-system/")
        await cluster.add(system, {**critical, "metadata": {"name": "critical"}})
        path = f"{system}/critical"
        as_scheduler = cluster.of_account(SCHEDULER)
        assert (await ask(as_scheduler, STRATEGIC, f"{path}/status", PREEMPTED))[0] == 200
        code, text = await ask(as_scheduler, "DELETE", path, None)
        assert code == 403 and "deletes no pod of the priority class" in text


@pytest.mark.parametrize("account", [SCHEDULER, CONTROLLERS])
async def test_an_account_of_the_same_name_elsewhere_is_another_one(account: str) -> None:
    """The policy names accounts with their namespace, as the bindings of the roles do."""
    async with embedded_cluster(components=("default", "controllers"), controllers=False) as cluster:
        policies = await cluster.items("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
        wanted = f"request.userInfo.username == 'system:serviceaccount:agent-scheduler:{account}'"
        assert wanted in [each["expression"] for one in policies for each in one["spec"]["matchConditions"]]
