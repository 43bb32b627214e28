"""Installed components do their work with the rights of the manifests, and use all of them.

Each component runs from its rendered Deployment, with the token of its ServiceAccount, against a server that enforces
RBAC. A refused request fails a test, and so does a right that no request here needs: it is not needed, or a case is not
tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUES
from agent_scheduler.objects.shard import NODE_SHARDS
from tests.support import objects
from tests.support.batched import COMMANDS, OWNERS, command, member, owner
from tests.support.client import PATIENCE
from tests.support.embedded import until

from .conftest import VARIABLE
from .installed import Installation, Object
from .plane import ControlPlane, Run
from .processes import PROGRAM, Served, cluster

embedded_alone = pytest.mark.skipif(
    VARIABLE in os.environ,
    reason=f"the cluster of {VARIABLE} is not ours to break or divide, and has no audit log that can be read here",
)

NAMESPACE = "agent-scheduler"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
VOLUME_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"

#: Volcano's own file, as released, with the plugin that reads more than the others.
SESSIONS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: resourcequota}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def lost(resource: str, verb: str = "patch", *, after: int = 0, count: int = 1, **match: str) -> Object:
    """Return a fault that loses the answers to some of these requests, after which a component sends further ones."""
    often = {"after": after, "count": count}
    return {"match": {"resource": resource, "verbs": [verb], **match}, **often, "fault": {"lose": {}}}


FAULTS: list[Object] = [
    *(lost(each) for each in ("persistentvolumes", "persistentvolumeclaims", "resourceclaims", "podgroups")),
    *(lost(each) for each in ("resourceclaims/status", "nodeshards/status")),
    lost("pods/binding", "create"),
    # Behind the requests of the test: the status of a queue, and a claim for an extended resource.
    lost("queues/status", after=1),
    lost("resourceclaims", "create", after=1),
    # The nomination's write, and that of the pod's allocation from its claim.
    lost("pods/status", count=2, name="extended"),
    {**lost("pods/binding", "create", name="refused"), "fault": {"error": {"status": 422}}},
]


@pytest.fixture
async def installed(e2e_run: Run, plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Installation]:
    """Install `config/default` on the run's cluster and remove it at the end."""
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
    """Yield a cluster that enforces RBAC and logs its requests, with `components` installed."""
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


def pod(name: str, *, cpu: str = "100m", limits: dict[str, str] | None = None, **more: Any) -> Object:
    requests = {"cpu": cpu, "memory": "16Mi", **(limits or {})}
    return objects.pod(name, containers=[objects.container(requests=requests, limits=limits)], **more)


async def bound(installed: Installation, *names: str) -> None:
    """Return once all of these pods have a node."""

    def placed(pods: Object) -> bool:
        found = {each["metadata"]["name"] for each in pods["items"] if each["spec"].get("nodeName")}
        return found >= set(names)

    await installed.seen(PODS, placed)


async def reader(installed: Installation, pages: str) -> str:
    """Return the token of a further ServiceAccount that may only read these pages: metrics or debug."""
    group, name = "rbac.authorization.k8s.io", f"e2e-{pages}-reader"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"agent-scheduler-{name}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"agent-scheduler-{pages}-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    account = objects.make("ServiceAccount", "v1", name, {"namespace": NAMESPACE})
    del account["spec"]
    for each in (account, binding):
        await installed.add(each)
    return await installed.token(NAMESPACE, name)


def compared(installed: Installation, account: str) -> tuple[list[str], list[str]]:
    """Return the requests without a right, and the rights without a request."""
    asked = {right for right, _ in installed.asked(account, NAMESPACE)}
    granted = installed.granted(account)
    # Discovery and reviews of oneself are for every authenticated user.
    missing = {right for right in asked - granted if not right.resource.startswith("/api")}
    return sorted(map(str, missing)), sorted(map(str, granted - asked))


async def test_metrics_are_for_whom_the_role_is_bound_to(installed: Installation) -> None:
    scheduler = await installed.start("agent-scheduler", "scheduler")
    await scheduler.ready()
    token = await reader(installed, "metrics")
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


async def test_commands_reach_the_self_signed_certificate_behind_a_forwarded_port(installed: Installation) -> None:
    scheduler = await installed.start("agent-scheduler", "scheduler")
    await scheduler.ready()
    token, there = await reader(installed, "debug"), ["--server", f"https://127.0.0.1:{scheduler.port}"]

    async def run(*words: str) -> tuple[int, str]:
        words = (*PROGRAM, *words, *there)
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stderr

    code, told = await run("check", "--token", token)
    assert code == 2 and "certificate" in told
    for words in (("top", "--once"), ("check",)):
        assert await run(*words, "--insecure-skip-tls-verify", "--token", token) == (0, "")
    code, told = await run("explain", "default/none", "--insecure-skip-tls-verify", "--token", token)
    assert code == 1 and "default/none is unknown" in told


@embedded_alone
async def test_the_scheduler_uses_each_right_that_it_has_and_needs_no_other(tmp_path: Path) -> None:
    groups = ("--runtime-config", "scheduling.k8s.io/v1alpha2=true")
    nodes = ("--nodes", "2", "--node-cpu", "4", "--devices-per-node", "4", *groups)
    async with own_cluster(tmp_path, *nodes, faults=FAULTS, components=["crd", "default"]) as installed:
        sessions = installed.folder / "volcano-scheduler.conf"
        sessions.write_text(SESSIONS)
        flags = ("--scheduler-sharding-mode", "soft", "--scheduler-conf", str(sessions))
        scheduler = await installed.start("agent-scheduler", "scheduler", *flags)
        await scheduler.ready()
        for work in SCHEDULERS_WORK:
            await work(installed)
        await all_is_used(installed, "agent-scheduler", scheduler)


async def all_is_used(installed: Installation, account: str, *processes: Served) -> None:
    """Assert that the account's processes use all its rights and no other, including requests for their metrics."""
    token = await reader(installed, "metrics")
    for process in processes:
        status, text = await asyncio.to_thread(process.get, "/metrics", token=token)
        assert status == 200, text
    # Events and statuses are written later than the changes that they report.
    with contextlib.suppress(AssertionError):
        await until(lambda: compared(installed, account)[1] == [], seconds=60)
    assert installed.refusals(account, NAMESPACE) == []
    assert compared(installed, account) == ([], [])
    assert not [process.name for process in processes if "Traceback" in process.said()]


# ---- what a scheduler must do once for each of its rights


async def _a_shard(installed: Installation) -> None:
    nodes = sorted(each["metadata"]["name"] for each in await installed.items("/api/v1/nodes"))
    await installed.ask("POST", NODE_SHARDS, objects.node_shard("agent-scheduler", nodes))
    await installed.seen(
        f"{NODE_SHARDS}/agent-scheduler",
        lambda shard: sorted((shard.get("status") or {}).get("nodesInUse") or ()) == nodes,
    )


async def _plain(installed: Installation) -> None:
    await installed.ask("POST", PODS, pod("plain"))
    await bound(installed, "plain")


async def _behind_its_queues_gate(installed: Installation) -> None:
    gate = QUEUE_ALLOCATION_GATE
    await installed.ask("POST", PODS, pod("gated", gates=[gate], annotations={gate: "true"}))
    await bound(installed, "gated")


async def _native_gang(installed: Installation) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = {"metadata": {"name": "native"}, "spec": spec}
    await installed.ask("POST", "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups", group)
    names = ["native-0", "native-1"]
    for name in names:
        await installed.ask("POST", PODS, pod(name, schedulingGroup={"podGroupName": "native"}))
    await bound(installed, *names)


async def _volumes(installed: Installation) -> None:
    """Place pods with a volume that is reserved for a claim, and with one that is created for the chosen node."""
    ask, size = installed.ask, {"storage": "1Gi"}
    for name, provisioner in (("static", "kubernetes.io/no-provisioner"), ("made", "e2e.example.com")):
        storage_class = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        await ask("POST", "/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": name}, **storage_class})
        claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": name, "resources": {"requests": size}}
        await ask("POST", VOLUME_CLAIMS, {"metadata": {"name": name}, "spec": claim})
    on_linux = {"key": "kubernetes.io/os", "operator": "Exists"}
    volume = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "static",
        "local": {"path": "/mnt"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_linux]}]}},
    }
    await ask("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "pv"}, "spec": volume})
    for name in ("static", "made"):
        source = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
        await ask("POST", PODS, pod(f"volume-{name}", volumes=[source]))
    await bound(installed, "volume-static", "volume-made")


async def _devices(installed: Installation) -> None:
    """Place pods with an existing claim and with claims that the scheduler creates, or deletes after a refused bind."""
    exactly = {"deviceClassName": "gpu.agent-scheduler.io"}
    request = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    await installed.ask("POST", CLAIMS, {"metadata": {"name": "claim"}, "spec": request})
    claims = [{"name": "r", "resourceClaimName": "claim"}]
    await installed.ask("POST", PODS, pod("device", resourceClaims=claims))
    await bound(installed, "device")
    for name in ("extended", "refused"):
        await installed.ask("POST", PODS, pod(name, limits={"agent-scheduler.io/gpu": "1"}))
    await bound(installed, "extended", "refused")


async def _preemption(installed: Installation) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await installed.ask("POST", classes, {"metadata": {"name": "high"}, "value": 1000})
    names = [f"victim{number}" for number in range(2)]
    for name in names:
        await installed.ask("POST", PODS, pod(name, cpu="2500m"))
    await bound(installed, *names)
    await installed.ask("POST", PODS, pod("preemptor", cpu="3", priorityClassName="high"))
    await bound(installed, "preemptor")


async def _refusal_repeated(installed: Installation) -> None:
    """Cause the same message twice about one pod, which is a series of one event."""
    await installed.ask("POST", PODS, pod("large", cpu="64", nodeSelector={"large": "yes"}))
    node = (await installed.items("/api/v1/nodes"))[0]["metadata"]["name"]

    def refused(pod: Object) -> bool:
        conditions = pod["status"].get("conditions") or ()
        return any("Insufficient cpu" in each.get("message", "") for each in conditions)

    for label in ("yes", None, "yes", None, "yes"):
        await installed.merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"large": label}}})
        if label:
            # After an attempt on a node that matches; the end of a match wakes no pod.
            await installed.seen(f"{PODS}/large", refused)


async def _spreading_by_default(installed: Installation) -> None:
    """Add a profile to the mounted configuration that spreads pods by what selects them, which is then read."""
    file = installed.folder / "scheduler" / "configuration" / "configuration.yaml"
    configuration = yaml.safe_load(file.read_text())
    configuration["profiles"].append({"schedulerName": "spread", "base": "default-scheduler"})
    file.write_text(yaml.safe_dump(configuration))
    await installed.ask("POST", PODS, pod("spread", scheduler="spread"))
    await bound(installed, "spread")


async def _gang(installed: Installation) -> None:
    """Place a group in a queue that is open, which the queue controller reports."""
    await installed.ask("POST", QUEUES, objects.queue("training"))
    await installed.merge(f"{QUEUES}/training/status", {"status": {"state": "Open"}})
    await installed.ask("POST", GROUPS, objects.pod_group("gang", minimum=2, queue="training"))
    names = ("gang-0", "gang-1")
    for name in names:
        await installed.ask("POST", PODS, pod(name, scheduler="volcano", group="gang"))
    await bound(installed, *names)


SCHEDULERS_WORK = (
    *(_a_shard, _plain, _behind_its_queues_gate, _native_gang, _volumes, _devices, _preemption),
    *(_refusal_repeated, _spreading_by_default, _gang),
)


# ---- what the controllers must do


@embedded_alone
async def test_the_controllers_use_each_right_that_they_have_and_need_no_other(tmp_path: Path) -> None:
    faults = [
        *(lost(each) for each in ("nodeshards", "pods", "queues/status", "jobs/status")),
        lost("podgroups.scheduling.volcano.sh", "create"),
        lost("queues.scheduling.volcano.sh", "create"),
    ]
    components = ["crd", "controllers", "default"]
    async with own_cluster(tmp_path, "--nodes", "4", faults=faults, components=components) as installed:
        controllers = await installed.start("agent-scheduler-controllers", "controllers")
        await controllers.ready()
        await _shards(installed)
        await _queues_and_groups(installed)
        await _jobs(installed)
        await all_is_used(installed, "agent-scheduler-controllers", controllers)


async def _shards(installed: Installation) -> None:
    """Remove one shard from the configuration; shards are written only if the configuration has changed."""

    async def planned(*names: str) -> None:
        def same(shards: Object) -> bool:
            return sorted(each["metadata"]["name"] for each in shards["items"]) == sorted(names)

        await installed.seen(NODE_SHARDS, same)

    async def refused(times: int) -> None:
        def counted(events: Object) -> bool:
            found = [each for each in events["items"] if each["reason"] == "InvalidShardingConfiguration"]
            return sum((each.get("series") or {}).get("count", 1) for each in found) >= times

        await installed.seen("/apis/events.k8s.io/v1/events", counted)

    await planned("agent-scheduler", "volcano")
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/agent-scheduler-sharding"
    written = (await installed.ask("GET", path))["data"]["sharding.yaml"]
    for times in (1, 2):
        await installed.merge(path, {"data": {"sharding.yaml": "schedulerConfigs: 7"}})
        await refused(times)
        await installed.merge(path, {"data": {"sharding.yaml": written}})
    configuration = yaml.safe_load(written)
    configuration["schedulerConfigs"] = configuration["schedulerConfigs"][:1]
    await installed.merge(path, {"data": {"sharding.yaml": yaml.safe_dump(configuration)}})
    await planned("volcano")


async def _queues_and_groups(installed: Installation) -> None:
    """Close a queue, give pods of every workload groups, and renew and delete one of these."""
    await installed.ask("POST", QUEUES, objects.queue("research"))
    trusted = COMMANDS.replace("/default/", f"/{NAMESPACE}/")
    await installed.ask("POST", trusted, command("CloseQueue", "research"))
    await installed.seen(f"{QUEUES}/research", lambda it: (it.get("status") or {}).get("state") == "Closed")
    owners: dict[str, str] = {}
    for kind in OWNERS:
        path, body = owner(kind)
        owners[kind] = (await installed.ask("POST", path, body))["metadata"]["uid"]
    for kind, uid in owners.items():
        await installed.ask("POST", PODS, member(kind.lower(), kind, uid))
        await installed.seen(f"{GROUPS}/podgroup-{uid}", bool)
    uid, path = owners["StatefulSet"], f"{owner('StatefulSet')[0]}/own"
    await installed.merge(path, {"metadata": {"annotations": {"scheduling.volcano.sh/group-min-member": "2"}}})
    await installed.ask("POST", PODS, member("second", "StatefulSet", uid))
    await installed.seen(f"{GROUPS}/podgroup-{uid}", lambda it: it["spec"]["minMember"] == 2)
    await installed.merge(path, {"spec": {"replicas": 0}})
    await installed.seen(f"{GROUPS}/podgroup-{uid}", lambda it: not it)


async def _jobs(installed: Installation) -> None:
    """Run a Job, scale it, edit the objects that it owns, and complete and delete it."""
    jobs = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await installed.ask("POST", VOLUME_CLAIMS, {"metadata": {"name": "there"}, "spec": claim})
    body = objects.job(
        "train",
        objects.task("a", minimum=1),
        minimum=1,
        queue="default",
        plugins={"svc": []},
        volumes=[{"mountPath": "/a", "volumeClaim": claim}, {"mountPath": "/b", "volumeClaimName": "there"}],
        ttlSecondsAfterFinished=1,
    )
    uid = (await installed.ask("POST", jobs, body))["metadata"]["uid"]

    def has(number: int) -> Callable[[Object], bool]:
        return lambda pods: number == sum(each["metadata"]["name"].startswith("train-a-") for each in pods["items"])

    await installed.seen(f"{GROUPS}/train-{uid}", bool)
    await installed.merge(f"{GROUPS}/train-{uid}", {"status": {"phase": "Inqueue"}})
    await installed.seen(PODS, has(1))
    await installed.merge(f"{jobs}/train", {"spec": {"tasks": [objects.task("a", 2, minimum=1)]}})
    await installed.seen(PODS, has(2))
    label = "volcano.sh/job-name"
    for place, name in (
        ("/api/v1/namespaces/default/services", "train"),
        ("/api/v1/namespaces/default/configmaps", "train-svc"),
        ("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", "train"),
        (VOLUME_CLAIMS, "train-pvc-"),
    ):
        found = (await installed.ask("GET", f"{place}?labelSelector={label}"))["items"]
        (path,) = (f"{place}/{each['metadata']['name']}" for each in found if each["metadata"]["name"].startswith(name))
        await installed.merge(path, {"metadata": {"labels": {label: None}}})
        await installed.seen(path, lambda it: label in (it["metadata"].get("labels") or {}))
    order = command("CompleteJob", "train")
    order["target"] |= {"apiVersion": objects.BATCH, "kind": "Job"}
    await installed.ask("POST", COMMANDS, order)
    await installed.seen(f"{jobs}/train", lambda it: not it)
