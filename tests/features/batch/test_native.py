"""PodGroups of Kubernetes' own API, whose members ask for the batch scheduler, in a whole process."""

from __future__ import annotations

from tests.support.embedded import until
from tests.support.native import GROUPS, native_gangs


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


async def test_a_group_that_is_scheduled_stays_so_whatever_becomes_of_later_members() -> None:
    async with native_gangs() as world:
        await world.add_node("a", cpu="4")
        await world.native_gang("g", 3, minimum=2, cpu="2")
        await until(lambda: world.has_placed("g", 2))
        await until(lambda: world.says_of_group("g", "True", "Scheduled", ""))
        await world.rest()
        assert await world.says_of_group("g", "True", "Scheduled", "")


async def test_nothing_is_said_of_a_group_whose_members_are_not_there_and_nothing_kept_of_one_that_is_gone() -> (
    None
):
    async with native_gangs() as world:
        await world.native_gang("g", 2, minimum=3)
        await world.rest()
        assert await world.said("g") is None and world.remembered == 0
        await world.native_member("g-2", "g")
        await until(lambda: world.says_of_group("g", "False", "Unschedulable", "pod group is unschedulable"))
        assert world.remembered == 1
        await world.delete(f"{GROUPS}/g")
        await until(lambda: not world.remembered)
        for number in range(3):
            await world.end_pod(f"g-{number}")
