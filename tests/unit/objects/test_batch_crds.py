"""The kinds Queue and PodGroup, as `config/crd` defines them, on an API server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agent_scheduler.objects import batch
from tests.batched import add_group, add_queue, install, pod_group, queue
from tests.embedded import EmbeddedCluster, embedded_cluster

GROUPS = batch.pod_groups("default")
MERGE = "application/merge-patch+json"

LIMITS = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": 2}
WHOLE_QUEUE = queue(
    "research",
    weight=3,
    capability=LIMITS,
    deserved=LIMITS,
    guarantee={"resource": {"cpu": "500m"}},
    reclaimable=False,
    parent="root",
    priority=7,
    dequeueStrategy="fifo",
    type="x",
    affinity={
        "nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["a"]},
        "nodeGroupAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["b"]},
    },
    extendClusters=[{"name": "c", "weight": 1, "capacity": {"cpu": 1}}],
    dra={"capability": {"gpu": {"count": 4, "capacity": {"memory": "80Gi"}}}},
)
WHOLE_GROUP = pod_group(
    "whole",
    minMember=3,
    minTaskMember={"ps": 1, "worker": 2},
    queue="research",
    priorityClassName="high",
    minResources=LIMITS,
    networkTopology={"mode": "soft", "highestTierAllowed": 2},
    subGroupPolicy=[
        {
            "name": "part",
            "subGroupSize": 2,
            "minSubGroups": 1,
            "labelSelector": {
                "matchLabels": {"app": "x"},
                "matchExpressions": [{"key": "part", "operator": "Exists"}],
            },
            "matchLabelKeys": ["part"],
            "networkTopology": {"mode": "hard", "highestTierName": "rack"},
        }
    ],
    status={
        "phase": "Inqueue",
        "running": 1,
        "succeeded": 2,
        "failed": 3,
        "conditions": [
            {
                "type": "Unschedulable",
                "status": "True",
                "transitionID": "t",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "reason": "NotEnoughResources",
                "message": "m",
            }
        ],
    },
)


async def test_an_object_with_every_field_of_volcanos_api_is_kept_whole() -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        kept = await cluster.ask("POST", batch.QUEUES, WHOLE_QUEUE)
        assert kept["spec"] == WHOLE_QUEUE["spec"]
        kept = await cluster.ask("POST", GROUPS, WHOLE_GROUP)
        assert kept["spec"] == WHOLE_GROUP["spec"]
        # Its status is no subresource.
        assert kept["status"] == WHOLE_GROUP["status"]
        assert msgspec.convert(kept, batch.PodGroup).status.phase == "Inqueue"
        answer = await cluster.call("GET", f"{GROUPS}/whole/status")
        assert answer.status == 404


async def test_the_status_of_a_queue_is_a_subresource() -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        status = {
            "state": "Open",
            **dict.fromkeys(("pending", "inqueue", "running", "unknown", "completed"), 1),
            "allocated": LIMITS,
            "reservation": {"nodes": ["n"], "resource": LIMITS},
        }
        created = await cluster.ask("POST", batch.QUEUES, {**queue("q"), "status": status})
        assert "status" not in created
        path = f"{batch.queue_path('q')}/status"
        patched = await cluster.ask("PATCH", path, {"status": status}, content_type=MERGE)
        assert patched["status"] == status
        assert msgspec.convert(patched, batch.Queue).status.allocated == LIMITS


async def test_what_is_left_out_is_as_volcano_has_it() -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        assert (await add_queue(cluster, "q"))["spec"] == {"weight": 1, "dequeueStrategy": "traverse"}
        made = await add_group(cluster, "g", networkTopology={}, subGroupPolicy=[{"name": "part"}])
        assert made["spec"] == {
            "queue": "default",
            "networkTopology": {"mode": "hard"},
            "subGroupPolicy": [{"name": "part", "subGroupSize": 1, "minSubGroups": 0}],
        }


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"weight": 0}, "spec.weight"),
        ({"weight": 65536}, "spec.weight"),
        ({"parent": "No"}, "spec.parent"),
        ({"priority": -1}, "spec.priority"),
        ({"dequeueStrategy": "lifo"}, "spec.dequeueStrategy"),
        ({"capability": {"cpu": "4 cores"}}, "spec.capability.cpu"),
        ({"reclaimable": "yes"}, "spec.reclaimable"),
        ({"dra": {"capability": {"gpu": {}}}}, "spec.dra.capability.gpu.count"),
    ],
)
async def test_a_queue_that_says_nonsense_is_refused(spec: dict[str, Any], place: str) -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        assert place in await refused(cluster, batch.QUEUES, queue("q", **spec))


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"minMember": -1}, "spec.minMember"),
        ({"minMember": "two"}, "spec.minMember"),
        ({"queue": "a/b"}, "spec.queue"),
        ({"minTaskMember": {"ps": "x"}}, "spec.minTaskMember.ps"),
        ({"networkTopology": {"mode": "near"}}, "spec.networkTopology.mode"),
        ({"subGroupPolicy": [{"subGroupSize": 0}]}, "spec.subGroupPolicy[0].subGroupSize"),
        ({"status": {"phase": "Done"}}, "status.phase"),
        ({"status": {"running": -1}}, "status.running"),
    ],
)
async def test_a_pod_group_that_says_nonsense_is_refused(more: dict[str, Any], place: str) -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        assert place in await refused(cluster, GROUPS, pod_group("g", **more))


async def refused(cluster: EmbeddedCluster, path: str, body: dict[str, Any]) -> str:
    answer = await cluster.call("POST", path, body)
    assert answer.status == 422, answer.body
    return str(json.loads(answer.body)["message"])
