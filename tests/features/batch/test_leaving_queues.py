"""Every way in which a pod stops counting in its queue, or counts as less there, wakes all that wait for that queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent_scheduler.objects.batch import pod_group_path
from tests.support import objects
from tests.support.batched import add_group
from tests.support.embedded import PODS, until
from tests.support.installation import NOWHERE, Installation, gated

#: The pod that has all 3 CPUs of the queue `full`; a group and a namespace that it may be in.
HOLDER, GROUP, NAMESPACE = f"{PODS}/holder", pod_group_path("default", "g"), "/api/v1/namespaces/default"
MOVED: Any = {"metadata": {"annotations": objects.in_queue("q")}}
Does = Callable[[Installation], Awaitable[Any]]


def patched(path: str, body: object) -> Does:
    return lambda world: world.patch(path, body)


def has(cpu: str) -> Does:
    """As the kubelet says of a pod that asks for one CPU by now."""
    said = {"resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
    return patched(f"{HOLDER}/status", {"status": said})


async def agent(world: Installation) -> None:
    about: Any = {"annotations": objects.in_queue("full"), "resources": {"requests": {"cpu": "1"}}}
    await world.add(PODS, objects.pod("holder", requests={}, **about))
    await until(lambda: world.is_bound("holder"))
    await has("3")(world)


async def member(world: Installation) -> None:
    for name, queue in (("g", "full"), ("other", "q")):
        await add_group(world, name, minMember=1, queue=queue)
    await world.member("holder", "g", cpu="3", annotations=objects.in_queue("q"))


async def of_namespace(world: Installation) -> None:
    await world.patch(NAMESPACE, {"metadata": {"annotations": objects.in_queue("full")}})
    await world.add(PODS, objects.pod("holder", cpu="3"))


async def reserved(world: Installation) -> None:
    await world.pod("holder", cpu="3", queue="full", **NOWHERE)


OTHER = {"metadata": {"annotations": {objects.GROUP_ANNOTATION: "other"}}}
WAYS: dict[str, tuple[Does, Does]] = {
    "moves": (agent, patched(HOLDER, MOVED)),
    "moves with reserved room": (reserved, patched(HOLDER, MOVED)),
    "joins another group": (member, patched(HOLDER, OTHER)),
    "its group moves": (member, patched(GROUP, {"spec": {"queue": "q"}})),
    "its group goes": (member, lambda world: world.delete(GROUP)),
    "its namespace moves": (of_namespace, patched(NAMESPACE, MOVED)),
    "finishes": (agent, patched(f"{HOLDER}/status", {"status": {"phase": "Succeeded"}})),
    "shrinks": (agent, has("1")),
    "is deleted": (member, lambda world: world.end_pod("holder")),
}


@pytest.mark.parametrize("way", WAYS)
async def test_who_waits_for_a_queue_goes_when_a_pod_stops_counting_there(way: str) -> None:
    holds, leaves = WAYS[way]
    async with gated(cpu="3") as world:
        await world.add_node("n", cpu="8")
        await holds(world)
        await until(lambda: world.fast_path.ledger.usage.book.used("full").get("cpu") == 3000)
        await world.pod("gated", cpu="600m", queue="full")
        await world.agent("agent", "full", cpu="600m")
        await world.gang("gang", 1, cpu="600m", queue="full")
        await until(lambda: world.says("agent", "QueueFull"))
        await until(lambda: world.condition("gang-0"))
        await world.rest()
        await leaves(world)
        await until(lambda: world.is_bound("gated", "agent", "gang-0"))


async def test_a_pod_that_wants_a_node_says_of_a_full_queue_that_it_moves_to_that_it_is_full() -> None:
    async with gated(cpu="3") as world:
        await world.add_node("n", cpu="8")
        await agent(world)
        about: Any = {"annotations": objects.in_queue("q"), **NOWHERE}
        await world.add(PODS, objects.pod("wants", cpu="600m", **about))
        await until(lambda: world.says("wants", "Unschedulable"))
        await world.patch(f"{PODS}/wants", {"metadata": {"annotations": objects.in_queue("full")}})
        await until(lambda: world.says("wants", "QueueFull"))
