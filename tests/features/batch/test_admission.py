"""One account of a queue's room for gates, admitted groups, sessions and stages.

Whole processes run with the shipped configuration, and with actions in each order and each plugin of queues that
Volcano allows.
"""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from agent_scheduler.objects.job import DEPENDS_ON_GANG, RESERVE
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from tests.support import objects
from tests.support.batched import add_group, add_queue
from tests.support.embedded import PODS, until
from tests.support.installation import CONFIGURATION, NOWHERE
from tests.support.whole import Whole, stage, whole

GPU = "nvidia.com/gpu"
ACTIONS = sorted(
    {
        ", ".join(order)
        for more in ((), ("preempt",), ("reclaim",), ("preempt", "reclaim"))
        for enqueue in ((), ("enqueue",))
        for order in permutations((*enqueue, "allocate", "backfill", *more))
    }
)
TIERS = """
  tiers:
    - plugins: [{name: priority}, {name: gang}, {name: conformance}]
    - plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: nodeorder}PLUGIN]
"""


def configured(actions: str, plugin: str) -> str:
    batch = f"batch:\n  schedulePeriod: 50ms\n  actions: {actions}"
    tiers = TIERS.replace("PLUGIN", f", {{name: {plugin}}}" if plugin else "")
    return CONFIGURATION.replace("batch: {schedulePeriod: 50ms}", batch + tiers)


#: The shipped configuration, and others that Volcano allows.
EACH_WAY = pytest.mark.parametrize(
    "configuration",
    [
        pytest.param(CONFIGURATION, id="default"),
        pytest.param(configured("enqueue, allocate, backfill", "capacity"), id="capacity"),
        pytest.param(configured("backfill, allocate, enqueue", "proportion"), id="enqueue last"),
        *(
            pytest.param(configured(actions, plugin), id=f"{actions}; {plugin}", marks=pytest.mark.wide)
            for actions in ACTIONS
            for plugin in ("proportion", "capacity", "")
        ),
    ],
)


class Queued(Whole):
    async def pod(self, name: str, *, queue: str = "full", gated: bool = True, **spec: Any) -> None:
        annotations = objects.in_queue(queue)
        if gated:
            annotations[QUEUE_ALLOCATION_GATE] = "true"
            spec["gates"] = (QUEUE_ALLOCATION_GATE,)
        spec = {"scheduler": "volcano", "annotations": annotations, "cpu": "1", "memory": "16Mi", **spec}
        await self.add(PODS, objects.pod(name, **spec))

    async def held(self, *names: str) -> bool:
        """Return whether these pods, and no others, have the gate."""
        pods = (await self.pods()).items()
        return set(names) == {name for name, pod in pods if pod["spec"].get("schedulingGates")}

    async def says_only(self, **reasons: str) -> bool:
        """Return the reasons of the pods that have no node."""
        said = {
            name.replace("-", "_"): (await self.condition(name) or {}).get("reason")
            for name in (await self.pods()).keys() - (await self.placed()).keys()
        }
        return said == reasons


def queued(configuration: str = CONFIGURATION, **more: Any) -> Any:
    return whole(JOB, PODGROUP, QUEUE, made=Queued, configuration=configuration, **more)


@EACH_WAY
@pytest.mark.promise("GATE-1")
async def test_the_figure_of_the_design(configuration: str) -> None:
    """The pods pod-1, pod-2 and pod-3 of one `kubectl apply` in a queue with room for one; no node fits pod-2."""
    async with queued(configuration) as it:
        await it.add_node("n", cpu="8")
        await add_queue(it, "full", capability={"cpu": "1", "memory": "1Gi"})
        await it.pod("pod-1")
        await it.pod("pod-2", **NOWHERE)
        await it.pod("pod-3")
        await until(lambda: it.only_placed("pod-1"))
        await asyncio.sleep(5)
        assert await it.held("pod-2", "pod-3")
        await it.end_pod("pod-1")
        await until(lambda: it.says_only(pod_2="Unschedulable", pod_3="SchedulingGated"))
        await asyncio.sleep(5)
        assert await it.says_only(pod_2="Unschedulable", pod_3="SchedulingGated")
        await it.delete(f"{PODS}/pod-2")
        await until(lambda: it.only_placed("pod-3"))


@EACH_WAY
@pytest.mark.promise("GATE-11")
async def test_who_is_let_into_a_queue_is_let_past_its_gate(configuration: str) -> None:
    async with queued(configuration) as it:
        await it.add_node("n", cpu="8")
        await add_queue(it, "full", capability={"cpu": "1", "memory": "1Gi"})
        least = {"minMember": 1, "minResources": {"cpu": "1", "memory": "1Gi"}, "queue": "full"}
        await add_group(it, "early", **least)
        await asyncio.sleep(3)
        await add_group(it, "late", **least)
        await it.pod("late-0", group="late")
        await asyncio.sleep(3)
        await it.pod("early-0", group="early")
        first, second = (
            ("early", "late") if "enqueue" in configuration or "actions" not in configuration else ("late", "early")
        )
        await until(lambda: it.only_placed(f"{first}-0"))
        await asyncio.sleep(3)
        assert await it.held(f"{second}-0")
        await it.end_pod(f"{first}-0")
        await until(lambda: it.only_placed(f"{second}-0"))


@EACH_WAY
@pytest.mark.promise("GATE-8")
async def test_an_autoscaler_adds_just_the_nodes_that_a_queue_of_gpus_may_use(configuration: str) -> None:
    rule = f"cpu=8,memory=32Gi,{GPU}=2,name=gpu,max=8,delay=4,idle=600"
    async with queued(configuration, autoscaler=[rule]) as it:
        await it.add_node("n", cpu="8")
        await add_queue(it, "full", capability={"cpu": "100", "memory": "100Gi", GPU: "4"})
        limits = {GPU: "1"}
        containers = [objects.container(requests={"cpu": "1", **limits}, limits=limits)]
        for number in range(8):
            await it.pod(f"gpu-{number}", containers=containers)
        await until(lambda: it.has_placed("gpu", 4), seconds=60)
        await asyncio.sleep(10)
        assert await it.held(*(f"gpu-{number}" for number in range(4, 8)))
        assert len(await it.items("/api/v1/nodes")) == 3
        for number in range(4):
            await it.end_pod(f"gpu-{number}")
        await until(lambda: it.has_placed("gpu", 4), seconds=60)
        assert len(await it.items("/api/v1/nodes")) == 3


@pytest.mark.promise("GATE-8")
async def test_a_job_that_is_larger_than_the_cluster_asks_for_nodes() -> None:
    async with queued(autoscaler=["cpu=4,memory=8Gi,name=more,max=4,delay=4,idle=600"]) as it:
        await it.add_node("n", cpu="1")
        await it.make_job("j", stage("only", 3, 3, cpu="2"), minimum=3)
        await until(lambda: it.has_placed("j-only", 3), seconds=60)


@pytest.mark.promise("GATE-21")
@pytest.mark.parametrize("gated", [False, True])
async def test_after_a_restart_stages_that_stand_by_have_their_room_of_the_queue(gated: bool) -> None:
    async with queued(kubelets=False) as it:
        await it.add_node("n", cpu="8")
        await add_queue(it, "full", capability={"cpu": "3", "memory": "3Gi"})
        tasks = [stage("a", 1, 1), stage("b", 2, 2, dependsOn={"name": ["a"]}, gated=gated)]
        annotations = {DEPENDS_ON_GANG: RESERVE}
        await it.add(
            "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs",
            objects.job("j", *tasks, minimum=3, queue="full", annotations=annotations),
        )
        await until(lambda: it.only_placed("j-a-0"))
        for name in ("x", "y"):
            await it.pod(name)
        await asyncio.sleep(3)
        await it.stop_scheduler()
        it.start_scheduler()
        await asyncio.sleep(5)
        assert await it.only_placed("j-a-0")
        await it.starts("j-a-0")
        await until(lambda: it.only_placed("j-a-0", "j-b-0", "j-b-1"))


@pytest.mark.promise("L3")
@pytest.mark.parametrize("scheduler", ["agent-scheduler", "volcano"])
@pytest.mark.parametrize(("queue", "reason"), [("nowhere", "QueueFull"), ("full", "Unschedulable")])
async def test_a_condition_of_an_earlier_process_that_is_written_over_is_written_again(
    scheduler: str, queue: str, reason: str
) -> None:
    """The API server may carry out an earlier condition after the end of the process that sent it."""
    async with queued(kubelets=False) as it:
        await add_queue(it, "full", capability={"cpu": "3", "memory": "3Gi"})
        await it.add_node("n", cpu="500m")
        await it.pod("p", queue=queue, gated=False, scheduler=scheduler)
        await until(lambda: it.says("p", reason))
        before = await it.condition("p") or {}
        await it.stop_scheduler()
        it.start_scheduler()
        await asyncio.sleep(20)
        late = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "of earlier"}
        await it.patch(f"{PODS}/p/status", {"status": {"conditions": [late]}})
        await until(lambda: it.says_text("p", before["reason"], before["message"]))


@pytest.mark.promise("JOB-5")
async def test_room_is_kept_for_stages_that_come_later() -> None:
    async with queued(kubelets=False) as it:
        await it.add_node("n", cpu="8")
        await add_queue(it, "full", capability={"cpu": "3", "memory": "3Gi"})
        tasks = [stage("a", 1, 1), stage("b", 2, 2, dependsOn={"name": ["a"]})]
        await it.add(
            "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs", objects.job("j", *tasks, minimum=3, queue="full")
        )
        await until(lambda: it.only_placed("j-a-0"))
        await it.pod("rival", gated=False)
        await it.pod("agent", gated=False, scheduler="agent-scheduler")
        await it.pod("held")
        await asyncio.sleep(3)
        assert await it.only_placed("j-a-0")
        await it.stop_scheduler()
        it.start_scheduler()
        await asyncio.sleep(40)
        assert await it.only_placed("j-a-0")
        await it.starts("j-a-0")
        await until(lambda: it.only_placed("j-a-0", "j-b-0", "j-b-1"))


@pytest.mark.promise("GATE-11")
async def test_members_of_one_gang_are_let_past_by_minimum_and_number() -> None:
    async with queued() as it:
        await add_queue(it, "full", capability={"cpu": "5"})
        roles = {"master": 3, "work": 2}
        await add_group(it, "g", minMember=5, minTaskMember=roles, queue="full")
        for number in range(5):
            for role in reversed(roles):
                name = f"g-{role}-{number}"
                more = {"volcano.sh/task-spec": role, QUEUE_ALLOCATION_GATE: "true", **objects.in_queue("full")}
                await it.pod(name, group="g", annotations=more)
        kept = ("g-master-3", "g-master-4", "g-work-2", "g-work-3", "g-work-4")
        await until(lambda: it.held(*kept))
        await it.patch("/apis/scheduling.volcano.sh/v1beta1/queues/full", {"spec": {"capability": {"cpu": "7"}}})
        await until(lambda: it.held("g-master-4", "g-work-3", "g-work-4"))


@pytest.mark.promise("GATE-11")
async def test_members_without_a_gate_have_room_when_the_others_are_let_past() -> None:
    """The group has no minResources."""
    async with queued() as it:
        await it.add_node("n", cpu="1")
        await add_queue(it, "full", capability={"cpu": "3"})
        await add_group(it, "g", minMember=2, queue="full")
        await it.pod("g-0", group="g")
        await it.pod("g-1", group="g", gated=False)
        await until(lambda: it.says_only(g_0="Unschedulable", g_1="Unschedulable"))
        await it.add_priorities(first=1000)
        for name, scheduler in (("x", "volcano"), ("y", "agent-scheduler")):
            await it.pod(name, cpu="2", gated=False, scheduler=scheduler, priorityClassName="first")
        await asyncio.sleep(5)
        await it.stop_scheduler()
        it.start_scheduler()
        await asyncio.sleep(5)
        await it.add_node("more", cpu="8")
        await until(lambda: it.is_bound("g-0", "g-1"))


@pytest.mark.promise("GATE-11")
async def test_what_a_pod_gave_back_is_not_kept_for_its_group() -> None:
    async with queued(CONFIGURATION + "queueReservationTimeout: 20s\n") as it:
        await it.add_node("n", cpu="8")
        await add_queue(it, "full", capability={"cpu": "1"})
        await it.pod("a", **NOWHERE)
        await until(lambda: it.says_only(a="Unschedulable"))
        await it.pod("b")
        await until(lambda: it.only_placed("b"), seconds=30)
        await until(lambda: it.says_only(a="QueueFull"))


async def test_who_is_not_let_into_its_queue_keeps_no_nodes_from_others() -> None:
    async with queued() as it:
        await it.add_node("n", cpu="3")
        await add_queue(it, "full", capability={"cpu": "2"})
        await add_group(it, "large", minMember=1, minResources={"cpu": "3"}, queue="full")
        for number in range(3):
            await it.pod(f"large-{number}", group="large", gated=False)
        await asyncio.sleep(3)
        await it.pod("beyond-its-share", cpu="3", queue="default")
        await until(lambda: it.only_placed("beyond-its-share"))


@pytest.mark.promise("GATE-8")
async def test_who_is_above_the_minimum_waits_for_nodes_though_its_group_was_promised_more() -> None:
    async with queued() as it:
        await it.add_node("n", cpu="3")
        await add_queue(it, "full", capability={"cpu": "4"})
        await it.pod("g-0", group="g", cpu="2")
        await it.pod("g-1", group="g", gated=False)
        await it.pod("g-2", group="g", cpu="2", gated=False)
        await add_group(it, "g", minMember=1, minResources={"cpu": "3"}, queue="full")
        await until(lambda: it.only_placed("g-2"))
        await asyncio.sleep(5)
        assert await it.says_only(g_0="Unschedulable", g_1="QueueFull")


@pytest.mark.promise("GATE-11")
async def test_a_group_whose_queue_has_become_too_small_for_it_keeps_nothing_there() -> None:
    full = "/apis/scheduling.volcano.sh/v1beta1/queues/full"
    async with queued() as it:
        await it.add_node("n", cpu="2")
        await add_queue(it, "full", capability={"cpu": "3"})
        await it.pod("a", gated=False)
        await until(lambda: it.only_placed("a"))
        await it.pod("b", cpu="2", gated=False)
        await until(lambda: it.says_only(b="Unschedulable"))
        await it.patch(full, {"spec": {"capability": {"cpu": "2"}}})
        await it.pod("c")
        await until(lambda: it.only_placed("a", "c"))
