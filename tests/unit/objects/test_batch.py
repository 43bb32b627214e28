"""The kinds Queue, PodGroup and Job, as `config/crd` defines them, on an API server, and as they are read of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent_scheduler.objects import batch
from agent_scheduler.objects.job import Job, TaskSpec, job_path, jobs
from tests.support.batched import add_group, add_queue, install, pod_group, queue
from tests.support.embedded import embedded_cluster
from tests.support.places import CONFIG

GROUPS = batch.pod_groups("default")
JOBS = jobs("default")
MERGE = "application/merge-patch+json"

WHOLE = yaml.safe_load(Path(__file__).with_name("whole.yaml").read_text(encoding="utf-8"))
LIMITS, STATUS = WHOLE["limits"], WHOLE["jobStatus"]
WHOLE_QUEUE = queue("research", **WHOLE["queue"])
WHOLE_GROUP = pod_group("whole", status=WHOLE["groupStatus"], **WHOLE["group"])
WHOLE_JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "whole"},
    "spec": WHOLE["job"],
}


async def test_a_job_with_every_field_of_volcanos_api_is_kept_whole_and_its_status_apart() -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        created = await cluster.ask("POST", JOBS, {**WHOLE_JOB, "status": STATUS})
        assert created["spec"] == WHOLE_JOB["spec"]
        assert "status" not in created
        path = job_path("default", "whole")
        patched = await cluster.ask("PATCH", f"{path}/status", {"status": STATUS}, content_type=MERGE)
        assert patched["status"] == STATUS
        unknown = {"status": {"state": {"phase": "Done"}}}
        answer = await cluster.call("PATCH", f"{path}/status", unknown, content_type=MERGE)
        assert answer.status == 422
        read = msgspec.json.decode(json.dumps(patched), type=Job)
        assert read.status.state.phase == "Running"
        assert json.loads(msgspec.json.encode(read.status)) == STATUS
        assert [task.minimum for task in read.spec.tasks or ()] == [2, 1]


def test_jobs_are_listed_with_volcanos_columns() -> None:
    (version,) = yaml.safe_load((CONFIG / "crd" / "batch.volcano.sh_jobs.yaml").read_text())["spec"]["versions"]
    assert [(each["name"], each["jsonPath"]) for each in version["additionalPrinterColumns"]] == [
        ("STATUS", ".status.state.phase"),
        ("minAvailable", ".status.minAvailable"),
        ("RUNNINGS", ".status.running"),
        ("AGE", ".metadata.creationTimestamp"),
        ("QUEUE", ".spec.queue"),
    ]


async def test_an_object_with_every_field_of_volcanos_api_is_kept_whole() -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        kept = await cluster.ask("POST", batch.QUEUES, WHOLE_QUEUE)
        assert kept["spec"] == WHOLE_QUEUE["spec"]
        kept = await cluster.ask("POST", GROUPS, WHOLE_GROUP)
        assert kept["spec"] == WHOLE_GROUP["spec"]
        # Its status is no subresource.
        assert kept["status"] == WHOLE_GROUP["status"]
        read = msgspec.convert(kept, batch.PodGroup)
        assert read.spec.min_task_member == {"ps": 1, "worker": 2}
        assert read.spec.min_resources == LIMITS
        assert read.spec.network_topology == batch.NetworkTopology("soft", 2)
        (policy,) = read.spec.sub_group_policy or ()
        assert (policy.sub_group_size, policy.min_sub_groups, policy.match_label_keys) == (2, 1, ("part",))
        assert (read.status.phase, read.status.running) == ("Inqueue", 1)
        (condition,) = read.status.conditions or ()
        told = condition.type, condition.status, condition.transition_id, condition.reason
        assert told == ("Unschedulable", "True", "t", "NotEnoughResources")
        answer = await cluster.call("GET", f"{GROUPS}/whole/status")
        assert answer.status == 404


async def test_the_status_of_a_queue_is_a_subresource() -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        status = WHOLE["queueStatus"]
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


async def test_what_says_nonsense_is_refused_at_its_place() -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        for path, body, place in (
            (batch.QUEUES, queue("q", weight=0), "spec.weight"),
            (batch.QUEUES, queue("q", weight=65536), "spec.weight"),
            (batch.QUEUES, queue("q", parent="No"), "spec.parent"),
            (batch.QUEUES, queue("q", priority=-1), "spec.priority"),
            (batch.QUEUES, queue("q", dequeueStrategy="lifo"), "spec.dequeueStrategy"),
            (batch.QUEUES, queue("q", capability={"cpu": "4 cores"}), "spec.capability.cpu"),
            (batch.QUEUES, queue("q", reclaimable="yes"), "spec.reclaimable"),
            (batch.QUEUES, queue("q", dra={"capability": {"gpu": {}}}), "spec.dra.capability.gpu.count"),
            (GROUPS, pod_group("g", minMember=-1), "spec.minMember"),
            (GROUPS, pod_group("g", minMember="two"), "spec.minMember"),
            (GROUPS, pod_group("g", queue="a/b"), "spec.queue"),
            (GROUPS, pod_group("g", minTaskMember={"ps": "x"}), "spec.minTaskMember.ps"),
            (GROUPS, pod_group("g", networkTopology={"mode": "near"}), "spec.networkTopology.mode"),
            (GROUPS, pod_group("g", subGroupPolicy=[{"subGroupSize": 0}]), "[0].subGroupSize"),
            (GROUPS, pod_group("g", status={"phase": "Done"}), "status.phase"),
            (GROUPS, pod_group("g", status={"running": -1}), "status.running"),
        ):
            answer = await cluster.call("POST", path, body)
            assert answer.status == 422, (place, answer.body)
            assert place in json.loads(answer.body)["message"]


def test_a_queue_is_read_with_what_was_left_out_as_volcano_takes_it() -> None:
    spec = {"capability": {"cpu": 4}, "guarantee": {"resource": {"cpu": "1"}}}
    queue = msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, batch.Queue)
    assert (queue.name, queue.spec.weight, queue.spec.reclaimable, queue.spec.parent) == ("q", 1, None, "")
    assert queue.spec.guarantee == batch.Guarantee({"cpu": "1"})
    assert queue.status == batch.QueueStatus()


def test_a_status_is_written_without_what_is_empty() -> None:
    status = batch.QueueStatus(state="Open", pending=2, allocated={"cpu": "1"})
    assert msgspec.to_builtins(status) == {"state": "Open", "pending": 2, "allocated": {"cpu": "1"}}


def test_a_native_pod_group_is_a_gang_or_basic() -> None:
    def read(policy: object) -> batch.SchedulingPolicy:
        spec = {"schedulingPolicy": policy, "podGroupTemplateRef": {"workload": {"workloadName": "w"}}}
        group = msgspec.convert({"metadata": {"name": "g"}, "spec": spec}, batch.NativePodGroup)
        return group.spec.scheduling_policy

    assert read({"gang": {"minCount": 8}}).gang == batch.GangPolicy(8)
    assert read({"basic": {}}) == batch.SchedulingPolicy(basic=batch.BasicPolicy())


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({"replicas": 4}, 4),
        ({"replicas": 4, "minAvailable": 0}, 0),
        ({"replicas": 6, "partitionPolicy": {"minPartitions": 2, "partitionSize": 2}}, 4),
        ({"replicas": 6, "partitionPolicy": {"totalPartitions": 3, "partitionSize": 2}}, 6),
        ({"replicas": 6, "minAvailable": 1, "partitionPolicy": {"minPartitions": 2, "partitionSize": 2}}, 1),
    ],
)
def test_a_task_needs_what_it_says_its_least_partitions_or_all(spec: dict[str, Any], minimum: int) -> None:
    assert msgspec.convert(spec, TaskSpec).minimum == minimum
