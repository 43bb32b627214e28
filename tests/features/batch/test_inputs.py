"""What plugins read is there in the process as it ships, with the roles that it is installed with, and decides.

Each row is an input: a kind of object, what is there beside it, and a pod that goes elsewhere, or nowhere, for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from agent_scheduler.engine.session.session import View
from agent_scheduler.fastpath.watching import READERS
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from tests.support.batched import definition
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, forbids, until
from tests.support.installation import CONFIGURATION, installed, started
from tests.support.objects import (
    Object,
    collection,
    in_queue,
    make,
    native_group,
    node,
    node_shard,
    owner,
    pod,
    pod_group,
    queue,
)
from tests.support.places import CONFIG
from tests.support.volume_cluster import Storage

Json = dict[str, Any]

#: All plugins of sessions, and profiles that spread pods by default, as kube-scheduler does.
EVERYTHING = CONFIGURATION.replace(
    "batch: {schedulePeriod: 50ms}",
    """profiles:
  - {schedulerName: agent-scheduler}
  - {schedulerName: spread, base: default-scheduler}
batch:
  schedulePeriod: 50ms
  actions: enqueue, allocate, preempt, backfill
  tiers:
    - plugins: [{name: sla}, {name: priority}, {name: gang}, {name: conformance}, {name: pdb}, {name: resourcequota}]
    - plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]""",
)
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def _of(kind: str, name: str, group: str = "", *, namespace: str = "", **fields: Any) -> Object:
    """An object without a spec of its own."""
    about = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": about, **fields}


def _storage(kind: str, name: str, **fields: Any) -> Object:
    return _of(kind, name, "storage.k8s.io", **fields)


def _hosts(*names: str) -> Json:
    return {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}


def _volume(name: str, storage_class: str = "", **source: Any) -> Object:
    size = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    return make("PersistentVolume", "v1", name, {**size, "storageClassName": storage_class, **source})


def _claim(name: str, storage_class: str = "", **more: Any) -> Object:
    size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    spec = {"namespace": "default", **size, "storageClassName": storage_class, **more}
    return make("PersistentVolumeClaim", "v1", name, spec)


N1, N2 = (
    {"nodeSelector": {"kubernetes.io/hostname": "n1"}},
    {"nodeSelector": {"kubernetes.io/hostname": "n2"}},
)
CLAIMING = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
_ON_N2 = {"local": {"path": "/m"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [_hosts("n2")]}}}
WAITING = {"volumeBindingMode": "WaitForFirstConsumer"}
LATER = _storage("StorageClass", "s", provisioner="kubernetes.io/no-provisioner", **WAITING)
STATIC = (_volume("pv", "s", **_ON_N2), _claim("c", "s"))
#: A volume that is bound, of a driver that says how many a node takes.
_REFERENCE = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c"}
_BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}, "volumeName": "pv"}
ATTACHED = (
    _volume("pv", csi={"driver": "d", "volumeHandle": "h"}, claimRef=_REFERENCE),
    _volume("other", csi={"driver": "d", "volumeHandle": "o"}),
    _claim("c", **_BOUND),
)
OTHER = {"persistentVolumeName": "other"}
#: And one that is to be made.
DYNAMIC = (_storage("StorageClass", "s", provisioner="d", **WAITING), _claim("c", "s"))
SIZED = _storage("CSIDriver", "d", spec={"storageCapacity": True, "attachRequired": False})
CAPACITY = _storage(
    "CSIStorageCapacity",
    "on-n1",
    namespace="default",
    nodeTopology={"matchLabels": {"kubernetes.io/hostname": "n1"}},
    storageClassName="s",
    capacity="9Gi",
)
_DEVICES = {"driver": "d", "nodeName": "n2", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
_REQUEST = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "k"}}]}}
DRA = (
    make("DeviceClass", "resource.k8s.io/v1", "k", {}),
    make("ResourceSlice", "resource.k8s.io/v1", "s", {**_DEVICES, "devices": [{"name": "d0"}]}),
    make("ResourceClaim", "resource.k8s.io/v1", "c", {"namespace": "default", **_REQUEST}),
)
WITH_DEVICE = {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}
X = {"labels": {"app": "x"}}
_TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
NEAR_X = {
    "labelSelector": {"matchLabels": {"app": "x"}},
    "namespaceSelector": {"matchLabels": {"team": "t"}},
    "topologyKey": "kubernetes.io/hostname",
}
TOGETHER = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR_X]}}}


def _there(name: str, on: str, namespace: str = "default", **more: Any) -> Object:
    return pod(name, node=on, namespace=namespace, scheduler="nobody", **more)


def _class(name: str, value: int) -> Object:
    return _of("PriorityClass", name, "scheduling.k8s.io", value=value)


def _budget(name: str) -> Object:
    """That has no room left."""
    spec = {"namespace": "default", "selector": {"matchLabels": {"app": name}}, "minAvailable": 1}
    return make("PodDisruptionBudget", "policy/v1", "b", spec, status={"disruptionsAllowed": 0})


def _owner(kind: str, version: str, **more: Any) -> Object:
    selector = {"app": "x"} if version == "v1" else {"matchLabels": {"app": "x"}}
    return make(kind, version, "own", {"namespace": "default", "selector": selector, **more})


class Row(NamedTuple):
    """An input. `plugin` decides by it: with what is `given`, a pod goes to `before` without the object, and to `after`
    with it: a node, or nowhere. `then` comes after the pod."""

    plugin: str
    object: Object
    pod: Json
    before: str
    after: str
    given: Sequence[Object] = ()
    then: Sequence[Object] = ()
    text: str = EVERYTHING

    @property
    def kind(self) -> str:
        native = self.object["apiVersion"].startswith("scheduling.k8s.io/v1alpha")
        return str(self.object["kind"]) + (".scheduling.k8s.io" if native else "")


def _spreading(found: Object) -> Row:
    """A heavy pod keeps the other away from n2, but for a rule about its like on n1."""
    owned: Json = {} if found["kind"] == "Service" else {"owners": [owner(found)]}
    given = (_there("x", "n1", cpu="1m", **X), _there("heavy", "n2", cpu="1"))
    return Row("PodTopologySpread", found, {**X, **owned, "scheduler": "spread"}, "n1", "n2", given)


VICTIMS = tuple(
    _there(name, on, cpu="4", group="v", phase="Running", labels={"app": name})
    for name, on in (("a", "n1"), ("b", "n2"))
)
HIGH = {"cpu": "4", "priorityClassName": "high"}
LATE = node("n3", cpu="150m", labels={"late": "yes"})
TO_LATE: Json = {"nodeSelector": {"late": "yes"}}
BATCH: Json = {"scheduler": "volcano"}
NATIVE = native_group("g", 1, namespace="default")


def _group(name: str, **more: Any) -> Object:
    return pod_group(name, minimum=1, queue="q", namespace="default", **more)


def _takes(number: int) -> Object:
    return _storage(
        "CSINode", "n1", spec={"drivers": [{"name": "d", "nodeID": "n1", "allocatable": {"count": number}}]}
    )


ROWS = (
    Row("NodeAffinity", LATE, TO_LATE, "", "n3"),
    Row("NodePorts", _there("x", "n1", ports=[80]), {"ports": [80], **N1}, "n1", ""),
    Row(
        "InterPodAffinity",
        _of("Namespace", "other", metadata={"labels": {"team": "t"}}),
        TOGETHER,
        "",
        "n2",
        [_there("x", "n2", "other", **X)],
    ),
    Row("DefaultPreemption", _budget("b"), HIGH, "n2", "n1", (_class("high", 9), *VICTIMS)),
    *(Row("VolumeBinding", STATIC[at], CLAIMING, "", "n2", [LATER, STATIC[1 - at]]) for at in (0, 1)),
    Row("VolumeBinding", DYNAMIC[0], {**CLAIMING, **N1}, "", "n1", DYNAMIC[1:]),
    Row("VolumeBinding", SIZED, {**CLAIMING, **N1}, "n1", "", DYNAMIC),
    Row("VolumeBinding", CAPACITY, CLAIMING, "", "n1", (*DYNAMIC, SIZED)),
    Row(
        "VolumeZone",
        {**ATTACHED[0], "metadata": {"name": "pv", "labels": {"topology.kubernetes.io/zone": "b"}}},
        CLAIMING,
        "",
        "n2",
        [ATTACHED[2]],
    ),
    Row(
        "VolumeRestrictions",
        _there("x", "n1", **CLAIMING),
        {**CLAIMING, **N1},
        "n1",
        "",
        [ATTACHED[0], _claim("c", **_BOUND, accessModes=["ReadWriteOncePod"])],
    ),
    Row("NodeVolumeLimits", _takes(0), {**CLAIMING, **N1}, "n1", "", ATTACHED),
    Row(
        "NodeVolumeLimits",
        _storage(
            "VolumeAttachment",
            "x",
            spec={"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": "other"}},
        ),
        {**CLAIMING, **N1},
        "n1",
        "",
        [*ATTACHED, _takes(1)],
    ),
    *(
        Row("DynamicResources", each, WITH_DEVICE, "", "n2", [it for it in DRA if it is not each])
        for each in DRA
    ),
    *map(
        _spreading,
        (
            _owner("Service", "v1", ports=[{"port": 80}]),
            _owner("ReplicationController", "v1", replicas=0, template=_TEMPLATE),
            _owner("ReplicaSet", "apps/v1", replicas=0, template=_TEMPLATE),
            _owner("StatefulSet", "apps/v1", replicas=0, template=_TEMPLATE, serviceName="x"),
        ),
    ),
    Row(
        "GangScheduling",
        native_group("g", 1, namespace="default"),
        {"schedulingGroup": {"podGroupName": "g"}, **N1},
        "",
        "n1",
    ),
    Row("gang", _group("g"), {**BATCH, "group": "g", **N1}, "", "n1"),
    *(
        Row(
            plugin,
            queue("late", status={"state": "Open"}),
            {**BATCH, "annotations": in_queue("late"), **N1},
            "",
            "n1",
            text=EVERYTHING.replace("proportion", plugin),
        )
        for plugin in ("proportion", "capacity")
    ),
    Row(
        "priority",
        _class("high", 9),
        {**BATCH, "group": "high", **TO_LATE},
        "",
        "n3",
        (
            _group("first"),
            _group("high", priorityClassName="high"),
            pod("first", group="first", namespace="default", **BATCH, **TO_LATE),
        ),
        [LATE],
    ),
    Row(
        "pdb",
        _budget("a"),
        {**BATCH, "group": "high", "cpu": "4"},
        "n1",
        "n2",
        (
            _group("v", status={"phase": "Running"}),
            *({**each, "spec": {**each["spec"], "schedulerName": "volcano"}} for each in VICTIMS),
            _class("high", 9),
            _group("high", priorityClassName="high"),
        ),
    ),
    Row(
        "resourcequota",
        make(
            "ResourceQuota",
            "v1",
            "f",
            {"namespace": "default"},
            status={"hard": {"cpu": "2"}, "used": {"cpu": "1"}},
        ),
        {**BATCH, "group": "g", "cpu": "1", **N1},
        "n1",
        "",
        [_group("g", minResources={"cpu": "2500m"})],
    ),
    Row(
        "",
        node_shard("agent-scheduler", ["n2"]),
        {},
        "",
        "n2",
        [definition(CONFIG / "crd" / "shard.volcano.sh_nodeshards.yaml")],
        text=f"{EVERYTHING}\nsharding: {{mode: hard, leaseNamespace: agent-scheduler}}",
    ),
)


async def _put(it: EmbeddedCluster, body: Object) -> None:
    path = collection(body)
    answer = await it.call("POST", path, body)
    path = f"{path}/{body['metadata']['name']}"
    if answer.status == 409:
        await it.patch(path, body)
    else:
        assert answer.status < 300, (path, answer.body)
    if "status" in body and body["kind"] != "Node":
        below = "" if body["kind"] == "PodGroup" else "/status"
        await it.patch(f"{path}{below}", {"status": body["status"]})


async def _goes_to(row: Row, *objects: Object) -> str:
    async with installed(row.text, kinds=(*BUILTIN, *ALPHA)) as it:
        volumes = Storage(it)
        volumes.play()
        nodes = (node(f"n{at}", labels={"topology.kubernetes.io/zone": "-ab"[at]}) for at in (1, 2))
        for each in (*nodes, _of("Namespace", "other"), *row.given, *objects):
            await _put(it, each)
        await asyncio.sleep(1)
        for each in (pod("p", namespace="default", **row.pod), *row.then):
            await _put(it, each)
        await asyncio.sleep(3)
        found = await it.get(f"{PODS}/p")
        await volumes.hold()
        return str(found["spec"].get("nodeName") or found["status"].get("nominatedNodeName", ""))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.plugin}-{row.kind}")
async def test_a_pod_is_decided_otherwise_by_what_a_plugin_reads(row: Row) -> None:
    assert (await _goes_to(row), await _goes_to(row, row.object)) == (row.before, row.after)


async def test_all_that_is_watched_has_a_row_and_what_a_session_may_read_is_there() -> None:
    async with installed(EVERYTHING, kinds=(*BUILTIN, *ALPHA)) as it:
        kinds = {kind.name for kind, _ in it.fast_path._informers.watched}
        await _put(it, {**_class("all", 7), "globalDefault": True})
        await _put(it, make("ResourceQuota", "v1", "f", {"namespace": "default"}))
        for each in (_budget("a"), _group("g")):
            await _put(it, each)
        for name, about in (("g", {**BATCH, "group": "g"}), ("p", {"annotations": in_queue("q")})):
            await _put(it, pod(name, namespace="default", **about))
        await it.add_node("n1")
        await until(lambda: it.is_bound("g", "p"))
        await it.rest()
        view = it.batch.last.session.view
    rows = {(row.kind, row.plugin) for row in ROWS}
    assert kinds | {"NodeShard"} == {kind for kind, _ in rows}
    assert {name for readers in READERS.values() for name in readers} <= {name for _, name in rows}
    # Jobs that stand for themselves are none where others may be evicted, and shards are another configuration.
    absent = {name for name in View.__struct_fields__ if not getattr(view, name)}
    assert absent == {"settled", "unready", "shard_full"}


async def test_a_group_is_kept_out_by_a_quota_of_its_pods_and_let_in_when_that_changes() -> None:
    async with installed(EVERYTHING) as it:
        await it.add_node("n1", cpu="4")
        status = {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1"}}
        await _put(it, make("ResourceQuota", "v1", "f", {"namespace": "default"}, status=status))
        await it.gang("g", 0, minimum=2, minResources={"cpu": "2"})
        await it.rest()
        assert await it.is_in_phase("g", "Pending")
        status["used"]["requests.cpu"] = "0"
        await it.patch("/api/v1/namespaces/default/resourcequotas/f/status", {"status": status})
        await until(lambda: it.is_in_phase("g", "Inqueue"))


async def test_a_group_that_has_waited_for_long_enough_is_let_in_though_nothing_happens() -> None:
    # By a vote of the first tier, which keeps the second from being asked.
    tiers = (
        "tiers: [{plugins: [{name: sla}]}, {plugins: [{name: gang}, {name: predicates}, {name: overcommit}]}]"
    )
    async with installed(CONFIGURATION.replace("50ms}", f"50ms, {tiers}}}")) as it:
        await it.add_node("n1", cpu="1")
        await it.gang("g", 0, minResources={"cpu": "9"}, minimum=1, annotations={"sla-waiting-time": "1m"})
        await it.rest()
        for _ in range(5):
            await asyncio.sleep(10)
            assert await it.is_in_phase("g", "Pending") and await it.is_left_alone()
        await until(lambda: it.is_in_phase("g", "Inqueue"))
        before = await it.rest()
        await asyncio.sleep(600)
        assert it.sessions == before, "nobody is waited for any more"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "/api/v1/resourcequotas",
            ("plugin resourcequota reads ResourceQuota", "403", "list and watch resourcequotas,"),
        ),
        (
            "/apis/resource.k8s.io/v1/resourceclaims",
            ("plugin DynamicResources", "resourceclaims.resource.k8s.io,"),
        ),
        ("/api/v1/nodes", ("this process reads Node", "list and watch nodes,")),
    ],
)
async def test_a_process_that_may_not_read_what_a_plugin_decides_by_says_so_and_ends(
    path: str, words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        embedded_cluster(components=("default",), disturb=forbids(path)) as cluster,
        started(cluster, EVERYTHING) as (_, ending),
    ):
        assert await asyncio.wait_for(ending, 30) == 2
    told = [line for line in capsys.readouterr().out.splitlines() if "input refused" in line]
    assert len(told) == 1 and all(word in told[0] for word in ("error", *words)), told


async def test_without_the_kinds_of_batches_a_process_goes_on_and_names_who_reads_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with embedded_cluster(components=("default",)) as it, started(it, CONFIGURATION):
        await it.add_node("n1")
        await it.add_pod("p")
        await until(it.placed)
    told = [line for line in capsys.readouterr().out.splitlines() if "input not served" in line]
    missing = [
        (each.partition("lacking=")[2].split()[0], "gang" in each) for each in told if "warning" in each
    ]
    assert missing == [("queues.scheduling.volcano.sh", False), ("podgroups.scheduling.volcano.sh", True)]
