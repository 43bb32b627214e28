"""Writes to an embedded API server that calls the webhook, or that has the policy which only adds the gate."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from agent_scheduler.objects.batch import QUEUES, pod_groups
from agent_scheduler.objects.job import jobs
from agent_scheduler.webhook.configurations import MUTATING, VALIDATING
from tests.support import objects
from tests.support.embedded import MERGE, PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.places import CONFIG
from tests.support.reviews import GATE, pod, queue
from tests.support.webhooks import NAME, World, manifest, webhooks

pytestmark = pytest.mark.real_time

_API = "/apis/admissionregistration.k8s.io/v1"


@asynccontextmanager
async def reached() -> AsyncIterator[World]:
    """Yield a cluster whose API server calls a webhook, with the shipped configurations but for its port."""
    async with webhooks() as world:
        process = world.start()
        await world.trusted()
        await until(lambda: process.port and process._is_synced)
        service = manifest("service.yaml")
        service["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        await world.cluster.ask("POST", "/api/v1/namespaces/agent-scheduler/services", service)
        for path, file in ((MUTATING, "mutating.yaml"), (VALIDATING, "validating.yaml")):
            shipped = {each["name"]: each for each in manifest(file)["webhooks"]}
            found = (await world.cluster.ask("GET", f"{path}/{NAME}"))["webhooks"]
            for each in found:
                each["failurePolicy"] = shipped[each["name"]]["failurePolicy"]
                each["clientConfig"]["service"]["port"] = process.port
            await world.merge(f"{path}/{NAME}", {"webhooks": found})
        yield world


@asynccontextmanager
async def governed() -> AsyncIterator[EmbeddedCluster]:
    """Yield a cluster with the policy and without a webhook."""
    policy, binding = yaml.safe_load_all((CONFIG / "gate-policy" / "policy.yaml").read_text())
    async with embedded_cluster() as cluster:
        await cluster.ask("POST", f"{_API}/mutatingadmissionpolicies", policy)
        await cluster.ask("POST", f"{_API}/mutatingadmissionpolicybindings", binding)
        yield cluster


async def known(world: World, name: str, state: str = "") -> None:
    """Wait until the webhook sees this queue in this state."""
    (process,) = world._running
    picture = process._picture
    assert picture is not None
    await until(lambda: name in picture.queues and picture.queues[name].status.state == state)


async def gates(cluster: EmbeddedCluster, made: Any, *, namespace: str = "default") -> list[str]:
    """Return the gates of the pod as it was stored."""
    stored = await cluster.ask("POST", PODS.replace("default", namespace), made)
    return [each["name"] for each in stored["spec"].get("schedulingGates") or ()]


async def refused(cluster: EmbeddedCluster, method: str, path: str, body: Any = None) -> str:
    content_type = MERGE if method == "PATCH" else "application/json"
    answer = await cluster.call(method, path, body, content_type=content_type)
    assert answer.status >= 400, answer.body
    return str(json.loads(answer.body)["message"])


CASES = {
    "asks": (pod(), [GATE]),
    "is of the other scheduler": (pod(scheduler="agent-scheduler"), [GATE]),
    "has another gate": (pod("a.example/x"), ["a.example/x", GATE]),
    "has it already": (pod(GATE, "a.example/x"), [GATE, "a.example/x"]),
    "is of others": (pod(scheduler="default-scheduler"), []),
    "says it in another way": (pod(annotation="True"), []),
    "does not ask": (pod(annotation=None), []),
}


async def test_the_webhook_and_the_policy_gate_the_same_pods() -> None:
    async with reached() as world, governed() as cluster:
        for number, (made, expected) in enumerate(CASES.values()):
            made["metadata"]["name"] = f"p{number}"
            assert await gates(world.cluster, json.loads(json.dumps(made))) == expected
            assert await gates(cluster, json.loads(json.dumps(made))) == expected
        # Pods that the cluster needs to start are not gated.
        for namespace in ("kube-system", "agent-scheduler"):
            for one in (world.cluster, cluster):
                await one.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
                assert await gates(one, pod(), namespace=namespace) == []


async def test_queues_are_made_changed_and_deleted_as_the_webhook_says() -> None:
    async with reached() as world:
        cluster = world.cluster
        await cluster.ask("POST", QUEUES, queue("parent", capability={"cpu": "4"}))
        await known(world, "parent")
        denied = 'admission webhook "queues.validate.agent-scheduler" denied the request: '
        child = queue("child", parent="parent", capability={"cpu": "5"})
        told = "queue child capability[cpu]=5 exceeds its ancestor's capability=4"
        assert await refused(cluster, "POST", QUEUES, child) == denied + told
        child["spec"]["capability"]["cpu"] = "3"
        await cluster.ask("POST", QUEUES, child)
        await known(world, "child")
        told = "queue parent can not be deleted because it has 1 child queues: child"
        assert await refused(cluster, "DELETE", f"{QUEUES}/parent") == denied + told
        told = "queue parent cannot have the queue child as parent, which is below it"
        below = {"spec": {"parent": "child"}}
        assert await refused(cluster, "PATCH", f"{QUEUES}/parent", below) == denied + told
        hierarchy = {"volcano.sh/hierarchy": "sci", "volcano.sh/hierarchy-weights": "2"}
        stored = await cluster.ask("POST", QUEUES, queue("sci", annotations=hierarchy))
        assert stored["metadata"]["annotations"] == {
            "volcano.sh/hierarchy": "root/sci",
            "volcano.sh/hierarchy-weights": "1/2",
        }


async def test_a_group_is_in_the_queue_of_its_namespace_if_that_is_open() -> None:
    async with reached() as world:
        cluster = world.cluster
        await cluster.ask("POST", QUEUES, queue("research"))
        annotations = {"scheduling.volcano.sh/queue-name": "research"}
        await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team", "annotations": annotations}})
        await known(world, "research")
        (process,) = world._running
        await until(lambda: process._picture is not None and "team" in process._picture.namespaces)
        group = objects.pod_group("g", minimum=1)
        told = await refused(cluster, "POST", pod_groups("team"), group)
        assert "can only submit PodGroup to queue with state `Open`, queue `research` status is ``." in told
        await world.merge(f"{QUEUES}/research/status", {"status": {"state": "Open"}})
        await known(world, "research", "Open")
        stored = await cluster.ask("POST", pod_groups("team"), group)
        assert stored["spec"]["queue"] == "research"


async def test_a_job_gets_its_defaults_and_is_refused_where_its_tasks_wait_in_a_circle() -> None:
    async with reached() as world:
        cluster = world.cluster
        await cluster.ask("POST", QUEUES, queue("default"))
        await world.merge(f"{QUEUES}/default/status", {"status": {"state": "Open"}})
        await known(world, "default", "Open")
        tasks = [objects.task("ps", 2, dependsOn={"name": ["worker"]}), objects.task("worker", 3, minimum=1)]
        made = objects.job("j", *tasks)
        stored = await cluster.ask("POST", jobs("default"), made)
        assert stored["spec"]["minAvailable"] == 3
        assert stored["metadata"]["annotations"] == {"dependent-job": "true"}
        tasks[1]["dependsOn"] = {"name": ["ps"]}
        told = await refused(cluster, "POST", jobs("default"), objects.job("k", *tasks))
        assert told.startswith('admission webhook "jobs.validate.agent-scheduler" denied the request: ')
        assert "ps -> worker -> ps" in told
        # The minimum of one of several tasks differs from that of the Job.
        told = await refused(cluster, "PATCH", f"{jobs('default')}/j", {"spec": {"minAvailable": 2}})
        assert "allowed: 3 (ps 2 + worker 1)" in told


async def test_while_no_webhook_answers_pods_are_made_and_queues_are_not() -> None:
    async with reached() as world:
        await world.end()
        assert await gates(world.cluster, pod()) == []
        told = await refused(world.cluster, "POST", QUEUES, queue("q"))
        assert 'failed calling webhook "queues.mutate.agent-scheduler"' in told
