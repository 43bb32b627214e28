"""Workloads of other tools (docs/tools), with the settings of config/samples/tools: gangs, queues, gates and GPUs.

Their controllers are played by tests/support/tools.py; gates are added by config/gate-policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from agent_scheduler.engine.state.gpus import ANNOTATION
from agent_scheduler.objects.batch import GROUP_NAME, QUEUE_ALLOCATION_GATE, QUEUES, pod_group_path, queue_path
from agent_scheduler.process.controller_flags import PODGROUP, QUEUE
from embedded_kubernetes.controllers import run
from embedded_kubernetes.workloads.jobs import Jobs
from kube_client.testing.virtual import time_of_day
from tests.support import objects, tools
from tests.support.embedded import NODES, PODS, until
from tests.support.objects import GPU
from tests.support.places import CONFIG
from tests.support.tools import add_sample
from tests.support.whole import Whole, whole

#: Long enough for sessions, gates and controllers to do what they would do.
_WHILE = 3


class Tooled(Whole):
    """A cluster with the tools' kinds, the queue of config/samples/queue.yaml, and no nodes."""

    async def add_gpu_node(self, name: str, cpu: str = "8", devices: int = 1) -> None:
        amounts = {GPU: f"{devices}000"} if devices else {}
        await self.add(NODES, objects.node(name, cpu=cpu, memory="64Gi", extended=amounts))

    async def may_have(self, **capability: str) -> None:
        await self.patch(queue_path("research"), {"spec": {"capability": {"cpu": None, "memory": None, **capability}}})

    @property
    def charged(self) -> dict[str, int]:
        """The amounts that count in the queue for pods with a node, in thousandths of CPUs."""
        assert self.runtime.fast_path is not None
        return dict(self.runtime.fast_path.ledger.usage.book.used("research"))

    async def is_charged(self, cpu: str) -> bool:
        status = (await self.queue("research")).get("status") or {}
        return (status.get("allocated") or {}).get("cpu", "0") == cpu

    async def is_in_phase(self, group: str, phase: str) -> bool:
        return ((await self.groups())[group].get("status") or {}).get("phase") == phase

    async def has_pods(self, number: int) -> list[str]:
        """Return the names of the pods if there are this many; else nothing."""
        found = sorted(await self.pods())
        return found if len(found) == number else []

    async def are_leaving(self, number: int) -> bool:
        return len(await self.leaving()) == number

    async def gated(self) -> set[str]:
        gate = {"name": QUEUE_ALLOCATION_GATE}
        return {name for name, pod in (await self.pods()).items() if gate in (pod["spec"].get("schedulingGates") or ())}

    async def devices(self, *names: str) -> list[str | None]:
        pods = await self.pods()
        return [(pods[name]["metadata"].get("annotations") or {}).get(ANNOTATION) for name in names]

    async def only_stays_placed(self, *names: str) -> None:
        await until(lambda: self.only_placed(*names))
        await asyncio.sleep(_WHILE)
        assert await self.only_placed(*names), await self.placed()


@asynccontextmanager
async def tooled(*, kubelets: bool = False) -> AsyncIterator[Tooled]:
    async with whole(PODGROUP, QUEUE, made=Tooled, kubelets=kubelets) as it:
        await tools.install_tools(it)
        await tools.install_gate_policy(it)
        await it.add(QUEUES, yaml.safe_load((CONFIG / "samples" / "queue.yaml").read_text()))
        await it.until_states(research="Open")
        jobs = asyncio.create_task(run(Jobs(it.api), clock=time_of_day))
        try:
            yield it
        finally:
            jobs.cancel()


def names(base: str, numbers: Iterable[int]) -> list[str]:
    return [f"{base}{number}" for number in numbers]


# ---- Ray


async def test_the_pods_of_a_ray_cluster_are_agents_if_the_operator_leaves_their_scheduler() -> None:
    async with tooled() as it:
        await it.may_have(cpu="1")
        await it.add_gpu_node("n")
        await tools.ray_cluster(it, await add_sample(it, "ray", "RayCluster", "agents"), batch=False)
        # The queue has room for the head and one worker. The other one keeps its gate, and asks for no node.
        await it.only_stays_placed("agents-head", "agents-small-worker-0")
        assert await it.gated() == {"agents-small-worker-1"}
        assert await it.says("agents-small-worker-1", "SchedulingGated")
        assert it.charged["cpu"] == 1000
        assert await it.groups() == {}
        await it.may_have(cpu="2")
        await until(lambda: it.is_bound("agents-small-worker-1"))
        assert await it.gated() == set()


RAY_GANG = ("gang-head", "gang-rollout-worker-0", "gang-learner-worker-0", "gang-learner-worker-1")


async def test_a_ray_cluster_is_a_gang_with_groups_of_different_workers() -> None:
    async with tooled(kubelets=True) as it:
        await it.add_gpu_node("small", cpu="2")
        await tools.ray_cluster(it, await add_sample(it, "ray", "RayCluster", "gang"), batch=True)
        await it.only_stays_placed()
        for name in RAY_GANG:
            assert await it.says(name, "Unschedulable")
        await it.add_gpu_node("other", cpu="1", devices=0)
        await until(lambda: it.only_placed(*RAY_GANG))
        assert await it.devices(*RAY_GANG) == [None, None, "0", "0"]
        assert await it.gated() == set()
        await until(lambda: it.is_charged("3"))
        await until(lambda: it.is_in_phase("ray-gang-pg", "Running"))
        assert list(await it.groups()) == ["ray-gang-pg"]


async def test_a_ray_job_gets_its_cluster_whole_and_its_submitter_after_it() -> None:
    async with tooled() as it:
        await it.may_have(cpu="4")
        await it.add_gpu_node("n")
        first, second = [await add_sample(it, "ray", "RayJob", "evaluate", renamed=name) for name in ("one", "two")]
        await tools.ray_job(it, first)
        pods = ["one-xxxxx-head", "one-xxxxx-worker-worker-0", "one-xxxxx-worker-worker-1"]
        await until(lambda: it.only_placed(*pods))
        await tools.ray_job(it, second)
        await it.only_stays_placed(*pods)
        # The group needs room for its submitter, too, and reports the queue's lack of it, not a lack of nodes.
        assert await it.says("two-xxxxx-head", "QueueFull")
        await tools.ray_submitter(it, first)
        await until(lambda: it.has_placed("one-", 4))
        assert it.charged["cpu"] == 3500
        await it.delete(f"{tools.path_of('RayJob')}/one")
        await until(lambda: it.are_leaving(4))
        for name in await it.leaving():
            await it.end_pod(name)
        await until(lambda: it.has_placed("two-", 3))
        assert await it.count_placed("one-") == 0


async def test_the_replicas_of_workers_with_several_hosts_are_placed_whole() -> None:
    """KubeRay's feature RayMultiHostIndexing describes them as sub-groups."""
    async with tooled() as it:
        await it.add_gpu_node("n", cpu="3", devices=0)
        worker = {"ray.io/group": "tpu"}
        sub_groups = [
            {
                "name": "headgroup",
                "subGroupSize": 1,
                "minSubGroups": 1,
                "labelSelector": {"matchLabels": {"ray.io/group": "headgroup"}},
                "matchLabelKeys": ["ray.io/group"],
            },
            {
                "name": "tpu",
                "subGroupSize": 2,
                "minSubGroups": 1,
                "labelSelector": {"matchLabels": worker},
                "matchLabelKeys": ["ray.io/worker-group-replica-name"],
            },
        ]
        await tools.add_pod_group(it, "ray-hosts-pg", [], minMember=3, queue="research", subGroupPolicy=sub_groups)
        about: dict[str, Any] = {"scheduler": "volcano", "group": "ray-hosts-pg", "cpu": "1"}
        await it.add(PODS, objects.pod("head", labels={"ray.io/group": "headgroup"}, **about))
        for name, replica in (("a0", "a"), ("b0", "b"), ("b1", "b")):
            labels = {**worker, "ray.io/worker-group-replica-name": replica}
            await it.add(PODS, objects.pod(name, labels=labels, **about))
        await it.only_stays_placed("head", "b0", "b1")


# ---- Kubeflow Trainer


async def test_a_train_job_is_a_gang_that_waits_for_its_group_and_shares_a_gpu() -> None:
    async with tooled() as it:
        await it.add_gpu_node("n", cpu="1")
        runtime = await add_sample(it, "trainer", "TrainingRuntime", "torch-gang")
        await tools.train_job(it, await add_sample(it, "trainer", "TrainJob", "finetune"), runtime)
        pods = await until(lambda: it.has_pods(2))
        await it.only_stays_placed()
        await it.add_gpu_node("m", cpu="1", devices=0)
        await it.only_stays_placed()
        for name in pods:
            assert await it.says(name, "Unschedulable")
        await it.add_gpu_node("o", cpu="2")
        await until(lambda: it.only_placed(*pods))
        assert await it.devices(*pods) == ["0", "0"]
        assert await it.gated() == set()
        await until(lambda: it.is_charged("2"))
        assert list(await it.groups()) == ["finetune"]


async def test_a_train_job_without_a_policy_is_placed_on_the_fast_path() -> None:
    async with tooled() as it:
        await it.add_gpu_node("n", devices=0)
        runtime = await add_sample(it, "trainer", "TrainingRuntime", "evaluation")
        await tools.train_job(it, await add_sample(it, "trainer", "TrainJob", "evaluate"), runtime)
        await until(lambda: it.has_placed("evaluate-node-0-0", 1))
        assert it.charged["cpu"] == 250
        assert await it.groups() == {}


async def test_a_group_that_counts_pods_of_later_stages_never_starts() -> None:
    """Trainer counts the pods of all stages, and JobSet creates those of the second when the first has ended."""
    async with tooled() as it:
        await it.add_gpu_node("n")
        runtime = await add_sample(it, "trainer", "TrainingRuntime", "torch-gang")
        (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        ended = [{"name": "dataset-initializer", "status": "Complete"}]
        runtime["spec"]["template"]["spec"]["replicatedJobs"] = [
            {**node, "name": "dataset-initializer"},
            {**node, "dependsOn": ended},
        ]
        await tools.train_job(it, await add_sample(it, "trainer", "TrainJob", "finetune"), runtime)
        (name,) = await until(lambda: it.has_pods(1))
        await it.only_stays_placed()
        assert (await it.groups())["finetune"]["spec"]["minMember"] == 3
        assert await it.says(name, "SchedulingGated")
        (condition,) = (await it.groups())["finetune"]["status"]["conditions"]
        assert condition["reason"] == "NotEnoughTasks"


# ---- Argo Workflows


async def test_the_steps_of_a_workflow_are_agents_that_pass_the_gate_in_turn() -> None:
    async with tooled() as it:
        await it.may_have(cpu="1")
        await it.add_gpu_node("n", devices=0)
        flow = await add_sample(it, "argo", "Workflow", "agents")
        await tools.workflow_step(it, flow, "agent", 10)
        await until(lambda: it.has_placed("agents-agent-", 5))
        await asyncio.sleep(_WHILE)
        assert len(await it.gated()) == 5
        for name in await it.placed():
            await it.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})
        await until(lambda: it.has_placed("agents-agent-", 10))
        assert await it.gated() == set()


async def test_the_parallel_steps_of_a_workflow_are_a_gang_of_the_group_that_a_step_makes() -> None:
    async with tooled() as it:
        await it.add_gpu_node("n", cpu="1")
        flow = await add_sample(it, "argo", "Workflow", "gang")
        await tools.workflow_step(it, flow, "group")
        await until(lambda: it.only_placed("gang-group-0"))
        await tools.workflow_step(it, flow, "member", 3)
        await it.only_stays_placed("gang-group-0")
        await it.add_gpu_node("m", cpu="1")
        members = names("gang-member-", range(3))
        await until(lambda: it.is_bound(*members))
        assert await it.devices(*members) == ["0"] * 3
        await until(lambda: it.is_charged("1500m"))
        (group,) = (await it.groups()).values()
        assert group["metadata"]["ownerReferences"][0]["kind"] == "Workflow"


# ---- LeaderWorkerSet

SERVE = [["serve-0", "serve-0-1", "serve-0-2"], ["serve-1", "serve-1-1", "serve-1-2"]]


async def test_each_replica_of_a_leader_worker_set_is_a_gang() -> None:
    async with tooled() as it:
        await it.add_gpu_node("n", cpu="3")
        await tools.leader_worker_set(it, await add_sample(it, "leaderworkerset", "LeaderWorkerSet", "serve"))
        await until(lambda: it.has_placed("serve-", 3))
        await asyncio.sleep(_WHILE)
        placed = await it.placed()
        first, second = SERVE if SERVE[0][0] in placed else SERVE[::-1]
        assert sorted(placed) == sorted(first)
        for name in second:
            assert await it.says(name, "Unschedulable")
        assert await it.devices(*first) == [None, "0", "0"]
        await it.add_gpu_node("m", cpu="2")
        await until(lambda: it.has_placed("serve-", 6))
        assert await it.gated() == set()
        await until(lambda: it.is_charged("4"))
        # The StatefulSets get no groups of their own.
        assert len(await it.groups()) == 2


async def test_a_leader_that_starts_first_waits_for_room_for_its_workers_in_the_queue() -> None:
    async with tooled() as it:
        await it.may_have(cpu="1500m")
        await it.add_gpu_node("n")
        lws = await add_sample(it, "leaderworkerset", "LeaderWorkerSet", "serve")
        lws["spec"] |= {"startupPolicy": "LeaderReady", "replicas": 1}
        await tools.leader_worker_set(it, lws, workers=False)
        await it.only_stays_placed()
        await it.may_have(cpu="2")
        await until(lambda: it.only_placed("serve-0"))
        await tools.lws_workers(it, lws, 0)
        await until(lambda: it.only_placed(*SERVE[0]))


# ---- agent-sandbox


async def test_sandboxes_of_a_pool_are_agents_that_a_claim_takes_over_as_they_are() -> None:
    async with tooled() as it:
        await it.add_gpu_node("n")
        template = await add_sample(it, "agent-sandbox", "SandboxTemplate", "python")
        found = await tools.warm_pool(it, await add_sample(it, "agent-sandbox", "SandboxWarmPool", "python"), template)
        pods = [each["metadata"]["name"] for each in found]
        await until(lambda: it.only_placed(*pods))
        assert await it.devices(*pods) == ["0"] * 3
        assert it.charged["cpu"] == 750
        before = await it.pods()
        await tools.claim(it, await add_sample(it, "agent-sandbox", "SandboxClaim", "session"), found[0])
        await asyncio.sleep(_WHILE)
        after = await it.pods()
        assert [after[name]["metadata"]["uid"] for name in pods] == [before[name]["metadata"]["uid"] for name in pods]
        assert await it.devices(*pods) == ["0"] * 3
        assert it.charged["cpu"] == 750


async def test_gated_sandboxes_that_a_pool_replaces_hold_no_room_of_the_queue() -> None:
    """A pool deletes sandboxes that are not ready in time, unless their pods report Unschedulable."""
    async with tooled() as it:
        await it.may_have(cpu="500m")
        await it.add_gpu_node("n")
        template = await add_sample(it, "agent-sandbox", "SandboxTemplate", "python")
        about = template["spec"]["podTemplate"]["metadata"]
        about["annotations"] = {**about["annotations"], QUEUE_ALLOCATION_GATE: "true"}
        pool = await add_sample(it, "agent-sandbox", "SandboxWarmPool", "python")
        found = [each["metadata"]["name"] for each in await tools.warm_pool(it, pool, template)]
        await until(lambda: it.has_placed("python-", 2))
        for _ in range(3):
            (waits,) = await it.gated()
            assert await it.says(waits, "SchedulingGated")
            await it.delete(f"{tools.path_of('Sandbox')}/{waits}")
            await until(lambda: it.has_pods(2))
            found += [each["metadata"]["name"] for each in await tools.warm_pool(it, pool, template, 1)]
            await asyncio.sleep(_WHILE)
            assert len(await it.gated()) == 1 and it.charged["cpu"] == 500
        await it.delete(f"{tools.path_of('Sandbox')}/{found[0]}")
        await it.end_pod(found[0])
        await until(lambda: it.is_bound(found[-1]))
        assert it.charged["cpu"] == 500


async def test_a_sandbox_without_a_pool_waits_behind_the_gate_of_its_queue() -> None:
    async with tooled() as it:
        await it.may_have(cpu="100m")
        await it.add_gpu_node("n", devices=0)
        await tools.sandbox(it, await add_sample(it, "agent-sandbox", "Sandbox", "alone"))
        await it.only_stays_placed()
        assert await it.says("alone", "SchedulingGated")
        await it.may_have(cpu="250m")
        await until(lambda: it.only_placed("alone"))


# ---- what makes no gang


@pytest.mark.parametrize("scheduler", ["agent-scheduler", "default-scheduler"])
async def test_a_group_whose_members_have_another_scheduler_counts_only_what_they_use(scheduler: str) -> None:
    """Tools create PodGroups whatever the scheduler of the pods is. A session admits this group without its members."""
    async with tooled() as it:
        await it.may_have(cpu="4")
        await it.add_gpu_node("n", devices=0)
        await tools.add_pod_group(it, "g", [], minMember=2, minResources={"cpu": "2"}, queue="research")
        for name in "ab":
            await it.add(PODS, objects.pod(name, cpu="1", scheduler=scheduler, annotations={GROUP_NAME: "g"}))
            if scheduler == "default-scheduler":
                await it.bind(name, "n")
        await until(lambda: it.is_in_phase("g", "Inqueue"))
        await until(lambda: it.only_placed("a", "b"))
        await asyncio.sleep(0.5)
        assert it.charged["cpu"] == 2000
        await it.add(PODS, objects.pod("c", cpu="2", annotations=objects.in_queue("research")))
        await until(lambda: it.is_bound("c"), seconds=_WHILE)


@pytest.mark.parametrize(
    ("scheduler", "about"),
    [
        ("volcano", {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}),
        ("volcano", {"labels": {GROUP_NAME: "g"}}),
        ("agent-scheduler", {"annotations": {GROUP_NAME: "g"}}),
    ],
)
async def test_pods_are_no_members_by_labels_of_other_schedulers_or_on_the_fast_path(
    scheduler: str, about: dict[str, Any]
) -> None:
    async with tooled() as it:
        await it.add_gpu_node("n", cpu="1", devices=0)
        await tools.add_pod_group(it, "g", [], minMember=2, queue="research")
        for name in "ab":
            await it.add(PODS, objects.pod(name, cpu="1", scheduler=scheduler, **about))
        await until(lambda: it.all_placed(1))
        assert (await it.get(pod_group_path("default", "g")))["spec"]["minMember"] == 2
