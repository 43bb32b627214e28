"""What a user installs does its work with the rights that it is installed with, and uses all of them.

Each component runs from its rendered Deployment, with the token of its ServiceAccount, against a server that enforces
RBAC. A request that is refused fails a test, and so does a right that nothing here makes use of: it would be one too
many, or a case that is not shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from tests.support.batched import COMMANDS, OWNERS, command, member, owner, pod_group, queue
from tests.support.client import MERGE
from tests.support.embedded import until

from .conftest import VARIABLE
from .installed import Installation, Object
from .plane import ControlPlane, Run
from .processes import Served, cluster

embedded_alone = pytest.mark.skipif(
    VARIABLE in os.environ, reason=f"the cluster of {VARIABLE} has no audit log that can be read here"
)

NAMESPACE = "agent-scheduler"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
GPU = "e2e.example.com/gpu"

#: Volcano's own file, as it ships it.
SESSIONS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""

#: Answers that are lost, or refuse once: what a component asks only then is asked, too.
FAULTS: list[Object] = [
    *(
        {"match": {"resource": resource, "verbs": [verb]}, "count": 1, "fault": {"lose": {}}}
        for resource, verb in (
            ("pods/binding", "create"),
            ("persistentvolumes", "patch"),
            ("persistentvolumeclaims", "patch"),
            ("resourceclaims", "patch"),
            ("resourceclaims/status", "patch"),
            ("nodeshards/status", "patch"),
            ("podgroups", "patch"),
        )
    ),
    {
        # Behind the one that the test makes: of what a queue holds.
        "match": {"resource": "queues/status", "verbs": ["patch"]},
        "after": 1,
        "count": 1,
        "fault": {"lose": {}},
    },
    {
        # Behind the one that the test makes: of a claim for an extended resource.
        "match": {"resource": "resourceclaims", "verbs": ["create"]},
        "after": 1,
        "count": 1,
        "fault": {"lose": {}},
    },
    {
        "match": {"resource": "pods/binding", "verbs": ["create"], "name": "refused"},
        "count": 1,
        "fault": {"error": {"status": 422}},
    },
    {
        # The nomination's, and that of what the pod gets of its claim.
        "match": {"resource": "pods/status", "verbs": ["patch"], "name": "extended"},
        "count": 2,
        "fault": {"lose": {}},
    },
]


@pytest.fixture
async def installed(e2e_run: Run, plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Installation]:
    """`config/default` on the run's cluster, whichever that is; gone again in the end."""
    made = Installation(plane.transport, e2e_run.kubeconfig, tmp_path)
    there = await plane.call("GET", f"/api/v1/namespaces/{NAMESPACE}")
    if not e2e_run.embedded and there.status == 200:
        pytest.skip(f"{VARIABLE} has a namespace {NAMESPACE}, which is not this test's")
    await made.apply("default")
    plane.scheduler_name = "agent-scheduler"
    try:
        yield made
    finally:
        made.close()
        await plane.ask("DELETE", f"{LEASES}/agent-scheduler", also=(404,))
        if not e2e_run.embedded:
            await made.remove()


@asynccontextmanager
async def own_cluster(
    folder: Path, *arguments: str, faults: Sequence[Object] | None = None, components: Sequence[str]
) -> AsyncIterator[Installation]:
    """A cluster that enforces RBAC and writes down what it was asked for, with `components` installed."""
    audit_log = folder / "audit.log"
    flags = ("--tls", "--authorization-mode", "RBAC", "--audit-log-path", str(audit_log))
    async with cluster(folder, *flags, *arguments, faults=faults) as (process, transport):
        made = Installation(transport, process.kubeconfig, folder, audit_log=audit_log)
        try:
            for each in components:
                await made.apply(each)
            yield made
        finally:
            made.close()


def pod(name: str, *, cpu: str = "100m", limits: dict[str, str] | None = None, **spec: Any) -> Object:
    resources: Object = {"requests": {"cpu": cpu, "memory": "16Mi", **(limits or {})}}
    if limits:
        resources["limits"] = limits
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "agent-scheduler",
            "containers": [{"name": "c", "image": "registry.invalid/none:1", "resources": resources}],
            **spec,
        },
    }


async def bound(installed: Installation, *names: str) -> dict[str, str]:
    """Pod -> node, once all of these have one."""

    async def placed() -> dict[str, str] | None:
        items = (await installed.ask("GET", PODS))["items"]
        found = {
            each["metadata"]["name"]: each["spec"]["nodeName"]
            for each in items
            if each["spec"].get("nodeName")
        }
        return found if found.keys() >= set(names) else None

    answer: dict[str, str] = await until(placed)
    return answer


async def leads(process: Served, token: str) -> bool:
    return await asyncio.to_thread(process.metric, "leader_election_master_status", token=token) >= 1


async def scraper(installed: Installation) -> str:
    """The token of a second ServiceAccount that may read metrics, and nothing else."""
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "agent-scheduler-e2e-scraper"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "agent-scheduler-metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "e2e-scraper", "namespace": NAMESPACE}],
    }
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "e2e-scraper", "namespace": NAMESPACE},
    }
    await installed.add(account)
    await installed.add(binding)
    return await installed.token(NAMESPACE, "e2e-scraper")


def compared(installed: Installation, account: str) -> tuple[list[str], list[str]]:
    """What was asked for without a right, and rights that nothing asked for."""
    asked = {right for right, _ in installed.asked(account, NAMESPACE)}
    granted = installed.granted(account)
    # Discovery and reviews of oneself are for every user that is authenticated.
    missing = {right for right in asked - granted if not right.resource.startswith("/api")}
    return sorted(map(str, missing)), sorted(map(str, granted - asked))


async def test_metrics_are_for_whom_the_role_is_bound_to(installed: Installation) -> None:
    scheduler = await installed.start("agent-scheduler", "scheduler")
    await scheduler.ready()
    token = await scraper(installed)
    stranger = await installed.token(NAMESPACE, "agent-scheduler")
    for path, shown, expected in (
        ("/metrics", token, 200),
        ("/metrics", stranger, 403),
        ("/metrics", "no-token-at-all", 401),
        ("/metrics", "", 401),
        ("/debug/queue", token, 403),
        ("/livez", "", 200),
        ("/readyz", "", 200),
    ):
        status, text = await asyncio.to_thread(scheduler.get, path, token=shown)
        assert status == expected, (path, text)


@embedded_alone
async def test_the_scheduler_uses_each_right_that_it_has_and_needs_no_other(tmp_path: Path) -> None:
    groups = ("--runtime-config", "scheduling.k8s.io/v1alpha2=true")
    nodes = ("--nodes", "2", "--node-cpu", "4", "--devices-per-node", "4", *groups)
    async with own_cluster(tmp_path, *nodes, faults=FAULTS, components=["crd", "default"]) as installed:
        await _all_rights_of_the_scheduler(installed)


async def _all_rights_of_the_scheduler(installed: Installation) -> None:
    token = await scraper(installed)
    sessions = installed.folder / "volcano-scheduler.conf"
    sessions.write_text(SESSIONS)
    flags = ("--scheduler-sharding-mode", "soft", "--scheduler-conf", str(sessions))
    scheduler = await installed.start("agent-scheduler", "scheduler", *flags)
    await scheduler.ready()
    await until(lambda: leads(scheduler, token))
    work = Work(installed)
    await work.shard()
    await work.plain()
    await work.behind_its_queues_gate()
    await work.native_gang()
    await work.volumes()
    await work.devices()
    await work.extended_resources()
    await work.preemption()
    await work.refusal_repeated()
    await work.spreading_by_default()
    await work.gang()

    async def all_used() -> bool:
        return compared(installed, "agent-scheduler")[1] == []

    # Events and statuses are written behind the binds.
    with contextlib.suppress(AssertionError):
        await until(all_used)
    assert installed.refusals("agent-scheduler", NAMESPACE) == []
    assert compared(installed, "agent-scheduler") == ([], [])
    assert "Traceback" not in scheduler.said()


class Work:
    """What a scheduler has to do once for each of its rights."""

    def __init__(self, installed: Installation) -> None:
        self._installed = installed
        self._ask = installed.ask

    async def shard(self) -> None:
        nodes = [each["metadata"]["name"] for each in (await self._ask("GET", "/api/v1/nodes"))["items"]]
        shard = {
            "apiVersion": "shard.volcano.sh/v1alpha1",
            "kind": "NodeShard",
            "metadata": {"name": "agent-scheduler"},
            "spec": {"nodesDesired": nodes},
        }
        path = "/apis/shard.volcano.sh/v1alpha1/nodeshards"
        await self._ask("POST", path, shard)

        async def in_use() -> bool:
            status = (await self._ask("GET", f"{path}/agent-scheduler")).get("status") or {}
            return sorted(status.get("nodesInUse") or ()) == sorted(nodes)

        await until(in_use)

    async def plain(self) -> None:
        await self._ask("POST", PODS, pod("plain"))
        await bound(self._installed, "plain")

    async def behind_its_queues_gate(self) -> None:
        gated = pod("gated", schedulingGates=[{"name": QUEUE_ALLOCATION_GATE}])
        gated["metadata"]["annotations"] = {QUEUE_ALLOCATION_GATE: "true"}
        await self._ask("POST", PODS, gated)
        await bound(self._installed, "gated")

    async def native_gang(self) -> None:
        policy = {"gang": {"minCount": 2}}
        await self._ask(
            "POST",
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups",
            {"metadata": {"name": "native"}, "spec": {"schedulingPolicy": policy}},
        )
        names = ["native-0", "native-1"]
        for name in names:
            await self._ask("POST", PODS, pod(name, schedulingGroup={"podGroupName": "native"}))
        await bound(self._installed, *names)

    async def volumes(self) -> None:
        """A volume that is put down for a claim, and one that is made for the node that was chosen."""
        storage = "/apis/storage.k8s.io/v1/storageclasses"
        for name, provisioner in (("static", "kubernetes.io/no-provisioner"), ("made", "e2e.example.com")):
            body = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            await self._ask("POST", storage, {"metadata": {"name": name}, **body})
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": name,
                "resources": {"requests": {"storage": "1Gi"}},
            }
            await self._ask(
                "POST",
                "/api/v1/namespaces/default/persistentvolumeclaims",
                {"metadata": {"name": name}, "spec": claim},
            )
        on_linux = {"key": "kubernetes.io/os", "operator": "Exists"}
        volume = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "static",
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_linux]}]}},
        }
        await self._ask("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "pv"}, "spec": volume})
        for name in ("static", "made"):
            source = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
            await self._ask("POST", PODS, pod(f"volume-{name}", volumes=[source]))
        await bound(self._installed, "volume-static", "volume-made")

    async def devices(self) -> None:
        exactly = {"deviceClassName": "gpu.agent-scheduler.io"}
        request = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        await self._ask("POST", CLAIMS, {"metadata": {"name": "claim"}, "spec": request})
        await self._ask(
            "POST", PODS, pod("device", resourceClaims=[{"name": "r", "resourceClaimName": "claim"}])
        )
        await bound(self._installed, "device")

    async def extended_resources(self) -> None:
        """Claims that the scheduler makes, and takes back where the bind is refused."""
        for name in ("extended", "refused"):
            await self._ask("POST", PODS, pod(name, limits={"agent-scheduler.io/gpu": "1"}))
        await bound(self._installed, "extended", "refused")

    async def preemption(self) -> None:
        await self._ask(
            "POST",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "high"}, "value": 1000},
        )
        names = [f"victim{number}" for number in range(2)]
        for name in names:
            await self._ask("POST", PODS, pod(name, cpu="2500m"))
        await bound(self._installed, *names)
        await self._ask("POST", PODS, pod("preemptor", cpu="3", priorityClassName="high"))
        await bound(self._installed, "preemptor")

    async def gang(self) -> None:
        """A group in a queue that is open; the queue controller says so."""
        queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
        groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
        await self._ask("POST", queues, queue("training"))
        state = {"status": {"state": "Open"}}
        await self._ask("PATCH", f"{queues}/training/status", state, content_type=MERGE)
        await self._ask("POST", groups, pod_group("gang", minMember=2, queue="training"))
        names = ("gang-0", "gang-1")
        for name in names:
            body = pod(name, schedulerName="volcano")
            body["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "gang"}
            await self._ask("POST", PODS, body)
        await bound(self._installed, *names)

    async def spreading_by_default(self) -> None:
        """What selects a pod is read for a profile that spreads pods by it; the mounted configuration gets one."""
        file = self._installed.folder / "scheduler" / "configuration" / "configuration.yaml"
        configuration = yaml.safe_load(file.read_text())
        configuration["profiles"].append({"schedulerName": "spread", "base": "default-scheduler"})
        file.write_text(yaml.safe_dump(configuration))
        await self._ask("POST", PODS, pod("spread", schedulerName="spread"))
        await bound(self._installed, "spread")

    async def refusal_repeated(self) -> None:
        """The same words twice about one pod: a series of one event."""
        await self._ask("POST", PODS, pod("large", cpu="64", nodeSelector={"large": "yes"}))
        node = (await self._ask("GET", "/api/v1/nodes"))["items"][0]["metadata"]["name"]
        for label in ("yes", None, "yes", None, "yes"):
            await self._ask(
                "PATCH",
                f"/api/v1/nodes/{node}",
                {"metadata": {"labels": {"large": label}}},
                content_type=MERGE,
            )
            await self._told("large", "Insufficient cpu" if label else "didn't match")

    async def _told(self, name: str, words: str) -> None:
        """Once a node that matches has been looked at; the end of a match wakes nobody."""
        if words == "didn't match":
            return

        async def told() -> bool:
            status = (await self._ask("GET", f"{PODS}/{name}"))["status"]
            return any(words in each.get("message", "") for each in status.get("conditions") or ())

        await until(told)


@embedded_alone
async def test_the_controllers_use_each_right_that_they_have_and_need_no_other(tmp_path: Path) -> None:
    lost = [
        {"match": {"resource": resource, "verbs": [verb]}, "count": 1, "fault": {"lose": {}}}
        for resource, verb in (
            ("nodeshards", "patch"),
            ("pods", "patch"),
            ("podgroups.scheduling.volcano.sh", "create"),
            ("queues.scheduling.volcano.sh", "create"),
            ("queues/status", "patch"),
            ("jobs/status", "patch"),
        )
    ]
    components = ["crd", "controllers", "default"]
    async with own_cluster(tmp_path, "--nodes", "4", faults=lost, components=components) as installed:
        await _all_rights_of_the_controllers(installed)


async def _queues_and_groups(installed: Installation) -> None:
    """A queue closes, pods of every workload get groups, and one of these is renewed and deleted."""
    queues, groups = (
        "/apis/scheduling.volcano.sh/v1beta1/queues",
        ("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"),
    )
    await installed.ask("POST", queues, queue("research"))
    await installed.ask("POST", COMMANDS, command("CloseQueue", "research"))

    async def closed() -> bool:
        return ((await installed.ask("GET", f"{queues}/research")).get("status") or {}).get(
            "state"
        ) == "Closed"

    await until(closed)
    owners: dict[str, str] = {}
    for kind in OWNERS:
        path, body = owner(kind)
        owners[kind] = (await installed.ask("POST", path, body))["metadata"]["uid"]

    async def has_group(uid: str) -> bool:
        answer = await installed.call("GET", f"{groups}/podgroup-{uid}")
        return answer.status == 200

    for kind, uid in owners.items():
        await installed.ask("POST", PODS, member(kind.lower(), kind, uid))
        await until(lambda uid=uid: has_group(uid))
    uid, path = owners["StatefulSet"], f"{owner('StatefulSet')[0]}/own"
    minimum = {"metadata": {"annotations": {"scheduling.volcano.sh/group-min-member": "2"}}}
    await installed.ask("PATCH", path, minimum, content_type=MERGE)

    async def renewed() -> bool:
        return (await installed.ask("GET", f"{groups}/podgroup-{uid}"))["spec"]["minMember"] == 2

    await asyncio.sleep(0.5)
    await installed.ask("POST", PODS, member("second", "StatefulSet", uid))
    await until(renewed)
    await installed.ask("PATCH", path, {"spec": {"replicas": 0}}, content_type=MERGE)

    async def gone() -> bool:
        return not await has_group(uid)

    await until(gone)


JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


def _job(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "queue": "default",
            "schedulerName": "volcano",
            "minAvailable": 1,
            "tasks": [{"name": "a", "replicas": replicas, "minAvailable": 1, "template": template}],
            **spec,
        },
    }


async def _jobs(installed: Installation) -> None:
    """A Job runs, grows, is completed and deleted in the end."""
    groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    await installed.ask("POST", claims, {"metadata": {"name": "there"}, "spec": claim})
    volumes = [{"mountPath": "/a", "volumeClaim": claim}, {"mountPath": "/b", "volumeClaimName": "there"}]
    body = _job("train", 1, plugins={"svc": []}, volumes=volumes, ttlSecondsAfterFinished=1)
    uid = (await installed.ask("POST", JOBS, body))["metadata"]["uid"]

    async def has(number: int) -> bool:
        return len([name for name in await names() if name.startswith("train-a-")]) == number

    async def names() -> list[str]:
        return [each["metadata"]["name"] for each in (await installed.ask("GET", PODS))["items"]]

    async def let_in() -> bool:
        phase = {"status": {"phase": "Inqueue"}}
        answer = await installed.call("PATCH", f"{groups}/train-{uid}", phase, content_type=MERGE)
        return answer.status == 200

    await until(let_in)
    await until(lambda: has(1))
    grown = {"spec": {"tasks": _job("train", 2)["spec"]["tasks"]}}
    await installed.ask("PATCH", f"{JOBS}/train", grown, content_type=MERGE)
    await until(lambda: has(2))
    order = command("CompleteJob", "train")
    order["target"] |= {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    await installed.ask("POST", COMMANDS, order)

    async def gone() -> bool:
        return (await installed.call("GET", f"{JOBS}/train")).status == 404

    await until(gone)


async def _all_rights_of_the_controllers(installed: Installation) -> None:
    token = await scraper(installed)
    controllers = await installed.start("agent-scheduler-controllers", "controllers")
    await controllers.ready()
    shards = "/apis/shard.volcano.sh/v1alpha1/nodeshards"

    async def planned(*names: str) -> Any:
        items = (await installed.ask("GET", shards))["items"]
        return sorted(each["metadata"]["name"] for each in items) == sorted(names)

    await until(lambda: planned("agent-scheduler", "volcano"))
    # One shard is dropped from the configuration, and cannot be used twice in the same words.
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/agent-scheduler-sharding"
    written = (await installed.ask("GET", path))["data"]["sharding.yaml"]
    configuration = yaml.safe_load(written)
    for text in ("schedulerConfigs: 7", written, "schedulerConfigs: 7"):
        await installed.ask("PATCH", path, {"data": {"sharding.yaml": text}}, content_type=MERGE)
        await asyncio.sleep(0.5)
    configuration["schedulerConfigs"] = configuration["schedulerConfigs"][:1]
    await installed.ask(
        "PATCH", path, {"data": {"sharding.yaml": yaml.safe_dump(configuration)}}, content_type=MERGE
    )
    await until(lambda: planned("volcano"))
    await _queues_and_groups(installed)
    await _jobs(installed)
    status, text = await asyncio.to_thread(controllers.get, "/metrics", token=token)
    assert status == 200, text

    async def all_used() -> bool:
        return compared(installed, "agent-scheduler-controllers")[1] == []

    with contextlib.suppress(AssertionError):
        await until(all_used)
    assert installed.refusals("agent-scheduler-controllers", NAMESPACE) == []
    assert compared(installed, "agent-scheduler-controllers") == ([], [])
    assert "Traceback" not in controllers.said()
