"""The events of pods that are bound with their group: one of the PodGroup, or one of each pod."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.embedded import until
from tests.support.installation import CONFIGURATION, Installation, faulty, installed
from tests.support.transports import Held, lost, refused

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
OF_MEMBERS = f"{CONFIGURATION}events: {{members: true}}\n"


async def told(world: Installation) -> set[tuple[str, str, str]]:
    """Return kind, name and note of the events `Scheduled`."""
    found = [each for each in await world.items(EVENTS) if each["reason"] == "Scheduled"]
    return {(each["regarding"]["kind"], each["regarding"]["name"], each["note"]) for each in found}


async def test_one_event_of_the_group_tells_that_its_members_are_bound() -> None:
    async with installed() as world:
        await world.add_node("a", cpu="2")
        await world.add_node("b", cpu="2")
        await world.gang("g", 3)
        await world.add_pod("alone")
        bound = ("PodGroup", "g", "Successfully assigned 3 pods to 2 nodes")
        await until(lambda: world.has_placed("g", 3))

        async def is_told() -> bool:
            found = await told(world)
            return bound in found and any(name == "alone" for _, name, _ in found)

        await until(is_told)
        await world.rest()
        found = await told(world)
        assert {name for kind, name, _ in found if kind == "Pod"} == {"alone"}
        assert {note for kind, _, note in found if kind == "PodGroup"} == {bound[2]}


async def test_members_that_are_bound_later_are_told_by_a_later_event() -> None:
    async with faulty() as (world, transport):
        transport.ways["POST", "/pods/g-1/binding"] = [refused(422, "Invalid")]
        await world.add_node("a")
        await world.gang("g", 3)
        await until(lambda: world.has_placed("g", 3))
        both = {("PodGroup", "g", f"Successfully assigned {text} to 1 node") for text in ("2 pods", "1 pod")}

        async def is_told() -> bool:
            return both <= await told(world)

        await until(is_told)
        assert world.batch._binds._in_progress == {}


async def test_each_member_gets_an_event_if_the_configuration_says_so() -> None:
    async with installed(OF_MEMBERS) as world:
        await world.add_node("a")
        await world.gang("g", 2)
        await until(lambda: world.has_placed("g", 2))
        pods = {("Pod", f"g-{n}", f"Successfully assigned default/g-{n} to a") for n in range(2)}

        async def is_told() -> bool:
            return pods <= await told(world)

        await until(is_told)
        assert not any("assigned" in note for kind, _, note in await told(world) if kind == "PodGroup")


async def test_members_that_are_bound_while_the_scheduler_stops_are_told() -> None:
    async with faulty() as (world, transport):
        held = Held()
        transport.ways["POST", "/pods/g-1/binding"] = [held]
        await world.add_node("a")
        await world.gang("g", 2)
        await held.came.wait()
        world.runtime.stop()
        await asyncio.sleep(0.2)
        held.go.set()

        async def is_told() -> bool:
            return ("PodGroup", "g", "Successfully assigned 2 pods to 1 node") in await told(world)

        await until(is_told)


@pytest.mark.parametrize(("end", "pods"), [("deleted", "1 pod"), ("lost", "2 pods"), ("bound elsewhere", "1 pod")])
async def test_a_member_counts_if_its_bind_was_carried_out(end: str, pods: str) -> None:
    async with faulty() as (world, transport):
        held = Held()
        transport.ways["POST", "/pods/g-1/binding"] = [lost if end == "lost" else held]
        await world.add_node("a")
        await world.gang("g", 2)
        if end != "lost":
            await held.came.wait()
            if end == "deleted":
                await world.delete("/api/v1/namespaces/default/pods/g-1")
            else:
                await world.add_node("b")
                await world.bind("g-1", "b")
            held.go.set()

        async def is_told() -> bool:
            return ("PodGroup", "g", f"Successfully assigned {pods} to 1 node") in await told(world)

        await until(is_told)
        assert world.batch._binds._in_progress == {}
