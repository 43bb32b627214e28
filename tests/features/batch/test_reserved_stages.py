"""Jobs that reserve room for later tasks (`agent-scheduler.io/depends-on-gang: reserve`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from agent_scheduler.objects.batch import STAGE_GATE
from agent_scheduler.objects.job import DEPENDS_ON_GANG, RESERVE
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from tests.support.embedded import NODES, until
from tests.support.whole import Whole, stage, whole

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
WORKERS = ("j-worker-0", "j-worker-1")


class Reserved(Whole):
    """An installation whose pods start only by the test."""

    async def run_job(self, *, master: str = "1", minimum: int = 3) -> None:
        tasks = [stage("master", 1, 1, cpu=master), stage("worker", 2, 2, dependsOn={"name": ["master"]})]
        await self.make_job("j", *tasks, minimum=minimum, annotations={DEPENDS_ON_GANG: RESERVE})

    async def standing_by(self) -> dict[str, str]:
        """Return pod -> its nominated node."""
        return {
            name: pod["status"].get("nominatedNodeName", "")
            for name, pod in (await self.pods()).items()
            if {"name": STAGE_GATE} in (pod["spec"].get("schedulingGates") or [])
        }

    def assumed(self) -> int:
        """Return the number of pods whose bind was not answered."""
        fast_path = self.runtime.fast_path
        return 0 if fast_path is None else fast_path.ledger.assumed

    async def names_of_nodes(self) -> set[str]:
        return {node["metadata"]["name"] for node in await self.items(NODES)}

    async def uses_nodes(self, number: int) -> bool:
        """Return whether `number` nodes are used, each by a pod or for one that stands by."""
        used = {*(await self.standing_by()).values(), *(await self.placed()).values()}
        return len(used) == number and used == await self.names_of_nodes()

    async def stand_by_on(self, node: str) -> bool:
        return await self.standing_by() == dict.fromkeys(WORKERS, node)


def reserved() -> AbstractAsyncContextManager[Reserved]:
    return whole(JOB, PODGROUP, QUEUE, made=Reserved, kubelets=False)


@asynccontextmanager
async def standing_by() -> AsyncIterator[Reserved]:
    """Yield a node just large enough for a Job whose workers stand by on it."""
    async with reserved() as it:
        await it.add_node("n1", cpu="3")
        await it.run_job()
        await until(lambda: it.stand_by_on("n1"))
        yield it


@pytest.mark.parametrize("scheduler", ["agent-scheduler", "volcano"])
async def test_nobody_takes_the_room_of_tasks_that_wait_for_the_first(scheduler: str) -> None:
    async with standing_by() as it:
        assert await it.only_placed("j-master-0")
        await it.add_pod("other", cpu="1", scheduler=scheduler)
        await until(lambda: it.condition("other"))
        assert await it.only_placed("j-master-0")
        for _ in range(30):
            assert it.assumed() == 2, "no bind is sent that the API server would refuse"
            await asyncio.sleep(0.01)
        await it.starts("j-master-0")
        await until(lambda: it.only_placed("j-master-0", *WORKERS))
        assert await it.standing_by() == {}


async def test_the_binds_of_a_stage_are_told_when_they_are_carried_out() -> None:
    async with standing_by() as it:

        async def are_told(*pods: str) -> bool:
            found = {each["note"] for each in await it.items(EVENTS) if each["reason"] == "Scheduled"}
            return {f"Successfully assigned {text} to 1 node" for text in pods} <= found

        await until(lambda: are_told("1 pod"))
        await it.starts("j-master-0")
        await until(lambda: are_told("1 pod", "2 pods"))


async def test_a_scheduler_that_is_started_anew_keeps_the_room_for_them() -> None:
    async with standing_by() as it:
        await it.stop_scheduler()
        await it.add_pod("other", cpu="1")
        it.start_scheduler()
        await until(lambda: it.condition("other"))
        await it.starts("j-master-0")
        await until(lambda: it.only_placed("j-master-0", *WORKERS))


async def test_where_they_are_to_go_is_told_until_they_say_so() -> None:
    async with standing_by() as it:
        for name in WORKERS:
            await it.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"nominatedNodeName": None}})
        await until(lambda: it.stand_by_on("n1"))


async def test_those_whose_node_goes_have_room_kept_on_another() -> None:
    async with standing_by() as it:
        await it.add_node("n2", cpu="3")
        await it.delete("/api/v1/nodes/n1")
        await until(lambda: it.stand_by_on("n2"))


async def test_those_who_are_to_run_first_are_given_room_that_others_stand_by_with() -> None:
    async with reserved() as it:
        await it.add_node("n1", cpu="4")
        await it.run_job(master="2", minimum=1)
        await until(lambda: it.stand_by_on("n1"))
        pod = (await it.pods())["j-master-0"]
        # With the workers' room there is enough for the master alone.
        for field in ("capacity", "allocatable"):
            await it.patch("/api/v1/nodes/n1/status", {"status": {field: {"cpu": "3"}}})
        await it.end_pod("j-master-0")

        await until(lambda: it.is_another("j-master-0", pod))
        await until(lambda: it.only_placed("j-master-0"))


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_an_autoscaler_adds_the_nodes_that_all_stages_need_together(number: int) -> None:
    """The autoscaler adds this number of nodes for one pod each.

    A pod that stands by asks for a node until it has one, and not while it keeps that for its task's turn.
    """
    more = ["cpu=1,memory=4Gi,name=more,max=9,delay=4,idle=20"]
    async with whole(JOB, PODGROUP, QUEUE, made=Reserved, kubelets=False, autoscaler=more) as it:
        for each in range(number):
            await it.add_node(f"n{each}", cpu="1")
        await it.run_job()
        await until(lambda: it.uses_nodes(3))
        assert await it.only_placed("j-master-0")
        nodes = await it.names_of_nodes()
        await asyncio.sleep(60)
        assert {(await it.condition(each) or {})["reason"] for each in WORKERS} == {"SchedulingGated"}
        await it.starts("j-master-0")
        await until(lambda: it.only_placed("j-master-0", *WORKERS))
        assert await it.names_of_nodes() == nodes
