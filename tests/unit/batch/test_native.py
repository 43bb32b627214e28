"""PodGroups of Kubernetes' own API, whose members ask for the batch scheduler, in a whole process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_scheduler.objects.batch import NATIVE_API
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from tests.support.batched import install
from tests.support.embedded import PODS, embedded_cluster, until

from .test_end_to_end import Gangs, process

GROUPS = f"{NATIVE_API}/namespaces/default/podgroups"


class NativeGangs(Gangs):
    async def native_gang(self, name: str, members: int, *, minimum: int = 0, cpu: str = "1") -> None:
        policy = {"gang": {"minCount": minimum or members}}
        body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
        await self.cluster.ask("POST", GROUPS, body)
        for number in range(members):
            await self.native_member(f"{name}-{number}", name, cpu=cpu)

    async def native_member(self, name: str, group: str, *, cpu: str = "1") -> None:
        await self.cluster.add_pod(
            name, scheduler="volcano", cpu=cpu, schedulingGroup={"podGroupName": group}
        )

    async def said(self, group: str) -> tuple[str, str, str] | None:
        """PodGroupScheduled: status, reason and message."""
        found = await self.cluster.ask("GET", f"{GROUPS}/{group}")
        for each in (found.get("status") or {}).get("conditions") or ():
            if each["type"] == "PodGroupScheduled":
                return each["status"], each["reason"], each.get("message", "")
        return None

    async def says(self, group: str, *condition: str) -> bool:
        return await self.said(group) == condition

    @property
    def remembered(self) -> int:
        """Groups of which a condition is kept."""
        assert self.runtime.batch is not None
        return len(self.runtime.batch._messages._said.groups._last)


@asynccontextmanager
async def native_gangs() -> AsyncIterator[NativeGangs]:
    async with embedded_cluster(kinds=(*BUILTIN, *ALPHA)) as cluster:
        await install(cluster)
        async with process(cluster) as runtime:
            world = NativeGangs(cluster, runtime)
            await world.queue("default")
            yield world


async def test_a_group_says_whether_its_minimum_is_scheduled_in_kube_schedulers_words() -> None:
    async with native_gangs() as world:
        await world.cluster.add_node("a", cpu="4")
        await world.native_gang("g", 3, cpu="2")
        await until(lambda: world.says("g", "False", "Unschedulable", "pod group is unschedulable"))
        await world.rest()
        assert await world.placed("g") == 0
        await world.cluster.add_node("b", cpu="4")
        await until(lambda: world.has_placed("g", 3))
        await until(lambda: world.says("g", "True", "Scheduled", ""))
        await world.rest()


async def test_a_group_that_is_scheduled_stays_so_whatever_becomes_of_later_members() -> None:
    async with native_gangs() as world:
        await world.cluster.add_node("a", cpu="4")
        await world.native_gang("g", 3, minimum=2, cpu="2")
        await until(lambda: world.has_placed("g", 2))
        await until(lambda: world.says("g", "True", "Scheduled", ""))
        await world.rest()
        assert await world.says("g", "True", "Scheduled", "")


async def test_nothing_is_said_of_a_group_whose_members_are_not_there_and_nothing_kept_of_one_that_is_gone() -> (
    None
):
    async with native_gangs() as world:
        await world.native_gang("g", 2, minimum=3)
        await world.rest()
        assert await world.said("g") is None and world.remembered == 0
        await world.native_member("g-2", "g")
        await until(lambda: world.says("g", "False", "Unschedulable", "pod group is unschedulable"))
        assert world.remembered == 1
        await world.cluster.ask("DELETE", f"{GROUPS}/g")
        await until(lambda: not world.remembered)
        for number in range(3):
            await world.cluster.ask("DELETE", f"{PODS}/g-{number}?gracePeriodSeconds=0")
