"""PodGroups of Kubernetes' own API in a whole process: scheduled, and with the gate of their queue's capacity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.engine.queues.entries import Standing
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from tests.support.batched import install
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.installation import BOTH, EACH, NOWHERE, OTHER, Installation, process, samples
from tests.support.native import GROUPS, NativeGangs, native_gangs


@asynccontextmanager
async def gated(cpu: str) -> AsyncIterator[Installation]:
    """Yield an installation; such a group is in its members' queue, and with the batch scheduler in the default one."""
    async with native_gangs() as world:
        await world.set_capability("default", cpu=cpu)
        yield world


async def group(world: Installation, name: str, minimum: int) -> None:
    body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}}}
    await world.add(GROUPS, body)


async def member(world: Installation, name: str, scheduler: str, **more: Any) -> None:
    own = {"podGroupName": name.partition("-")[0]}
    await world.pod(name, scheduler=scheduler, queue="default", schedulingGroup=own, **more)


@BOTH
async def test_it_is_let_past_whole_or_not_at_all(scheduler: str) -> None:
    async with gated("3") as world:
        await world.add_node("a", cpu="8")
        for name, minimum in (("g", 3), ("large", 4)):
            await group(world, name, minimum)
            for number in range(minimum):
                await member(world, f"{name}-{number}", scheduler)
        await until(lambda: world.all_let_past("g", 3))
        await world.stays_held(*(f"large-{number}" for number in range(4)))
        await until(lambda: world.has_placed("g", 3))


@BOTH
@pytest.mark.parametrize("loses", ["a member", "its object"])
async def test_one_that_has_not_its_minimum_any_more_is_not_let_past_when_room_comes(
    scheduler: str, loses: str
) -> None:
    async with gated("3") as world:
        await world.pod("first", scheduler=scheduler, queue="default", **NOWHERE)
        await until(lambda: world.is_let_past("first"))
        await group(world, "g", 3)
        for number in range(3):
            await member(world, f"g-{number}", scheduler)
        await world.stays_held("g-0", "g-1", "g-2")
        if loses == "a member":
            await world.end_pod("g-2")
        else:
            await world.delete(f"{GROUPS}/g")
        await world.end_pod("first")
        await world.stays_held("g-0", "g-1")


@EACH
async def test_room_of_one_that_is_gone_is_others_until_it_is_there_again(scheduler: str) -> None:
    async with gated("1") as world:
        await world.add_node("a")
        await group(world, "g", 1)
        await member(world, "g-0", scheduler, **NOWHERE)
        await until(lambda: world.says("g-0", "Unschedulable"))
        await world.pod("late", queue="default")
        await world.stays_held("late")
        await world.delete(f"{GROUPS}/g")
        await until(lambda: world.is_bound("late"))
        await group(world, "g", 1)
        await world.stands("g-0", Standing.RESERVED)


async def _lacks_members(world: NativeGangs) -> None:
    await asyncio.sleep(5)
    assert await world.says("g-0", "NotEnoughPods")
    assert (await world.said("g") or ("", ""))[1] == "NotEnoughPods"


@EACH
@pytest.mark.promise("S33")
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("last", ["members", "room"])
async def test_one_that_lacks_members_and_room_says_the_same_whatever_came_last_and_in_a_new_process(
    scheduler: str, gated: bool, last: str
) -> None:
    async with embedded_cluster(kinds=(*BUILTIN, *ALPHA)) as cluster:
        await install(cluster)
        async with process(cluster) as runtime:
            world = NativeGangs(cluster, runtime)
            await world.queue("default")
            await group(world, "g", 2)
            for number in range(2):
                await member(world, f"g-{number}", scheduler, gates=(), annotation="false")
            await until(lambda: world.says("g-0", "Unschedulable"))
            for lost in ("room", "members") if last == "members" else ("members", "room"):
                if lost == "room":
                    await world.set_capability("default", cpu="1")
                else:
                    await world.end_pod("g-1")
                if lost == "members" and gated:
                    await member(world, "g-1", scheduler, gates=(OTHER,), annotation="false")
                await asyncio.sleep(5)
            await _lacks_members(world)
        async with process(cluster) as runtime:
            await _lacks_members(NativeGangs(cluster, runtime))


async def test_groups_of_either_kind_may_have_one_name() -> None:
    async with gated("3") as world:
        await world.add_node("a", cpu="8")
        await world.queue("q", capability={"cpu": "3"})
        await group(world, "g", 2)
        await world.gated_gang("g", 2)
        for number in range(2):
            own = {"podGroupName": "g"}
            await world.pod(f"own-{number}", queue="default", schedulingGroup=own)
        await until(lambda: world.has_placed("g", 2))
        await until(lambda: world.has_placed("own", 2))


async def test_a_member_that_has_succeeded_counts_for_its_gang_as_in_sessions() -> None:
    async with gated("3") as world:
        await world.add_node("a", cpu="8")
        await group(world, "g", 1)
        await member(world, "g-0", "volcano")
        await until(lambda: world.is_bound("g-0"))
        await world.patch(f"{PODS}/g-0/status", {"status": {"phase": "Succeeded"}})
        spec = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        await world.patch(f"{GROUPS}/g", spec)
        await member(world, "g-1", "volcano")
        await until(lambda: world.is_bound("g-1"))


async def test_a_group_says_whether_its_minimum_is_scheduled_in_kube_schedulers_words() -> None:
    async with native_gangs() as world:
        await world.add_node("a", cpu="4")
        await world.native_gang("g", 3, cpu="2")
        await until(lambda: world.says_of_group("g", "False", "Unschedulable", "pod group is unschedulable"))
        await world.rest()
        assert await world.count_placed("g") == 0
        await world.add_node("b", cpu="4")
        await until(lambda: world.has_placed("g", 3))
        await until(lambda: world.says_of_group("g", "True", "Scheduled", ""))
        await world.rest()
        group = await world.get(f"{GROUPS}/g")
        (condition,) = group["status"]["conditions"]
        assert condition["observedGeneration"] == group["metadata"]["generation"] == 1


async def test_nothing_is_said_of_a_group_whose_members_are_not_there_or_another_schedulers_and_nothing_kept() -> None:
    async with native_gangs() as world:
        await group(world, "h", 1)
        await world.add_pod("h-0", schedulingGroup={"podGroupName": "h"})
        await until(lambda: world.says_of_group("h", "False", "Unschedulable", "pod group is unschedulable"))
        await world.native_gang("g", 2, minimum=3)
        await world.rest()
        assert await world.said("g") is None and world.remembered == 0
        assert (await world.said("h") or ("", ""))[1] == "Unschedulable"
        assert samples(world.runtime)['agent_scheduler_batch_groups_waiting{reason="members"}'] == 1
        await world.native_member("g-2", "g")
        await until(lambda: world.says_of_group("g", "False", "Unschedulable", "pod group is unschedulable"))
        assert world.remembered == 1
        await world.delete(f"{GROUPS}/g")
        await until(lambda: not world.remembered)
        for number in range(3):
            await world.end_pod(f"g-{number}")


@pytest.mark.parametrize("scheduler", ["agent-scheduler", "volcano"])
@pytest.mark.parametrize("conditions", [None, [{"type": "PodGroupScheduled", "status": "False", "reason": "No"}]])
async def test_a_condition_that_others_take_away_or_write_over_is_written_again(
    scheduler: str, conditions: Any
) -> None:
    async with gated("3") as world:
        await world.add_node("a", cpu="8")
        await group(world, "g", 1)
        await member(world, "g-0", scheduler)
        said = await world.seen(f"{GROUPS}/g", lambda found: found.get("status"))
        await asyncio.sleep(10)
        await world.patch(f"{GROUPS}/g/status", {"status": {"conditions": conditions}})
        again = await world.seen(f"{GROUPS}/g", lambda found: "Scheduled" in str(found["status"]))
        assert again["status"]["conditions"][0]["reason"] == said["status"]["conditions"][0]["reason"]


async def test_sessions_leave_a_group_alone_whose_members_are_of_the_fast_path() -> None:
    async with native_gangs() as world:
        await group(world, "g", 2)
        for number in range(2):
            own = {"podGroupName": "g"}
            await world.add_pod(f"g-{number}", schedulingGroup=own)
        await until(lambda: world.says_of_group("g", "False", "Unschedulable", "pod group is unschedulable"))
        await world.gang("other", 1)
        await world.rest()
        assert (await world.said("g") or ("", ""))[1] == "Unschedulable"
        assert not samples(world.runtime)['agent_scheduler_batch_groups_waiting{reason="members"}']
