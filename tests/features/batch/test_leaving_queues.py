"""A pod that stops counting in its queue, or counts as less, wakes all pods that wait for that queue.

So does a pod that becomes impossible to place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.objects.batch import pod_group_path, queue_path
from tests.support import objects
from tests.support.batched import add_group
from tests.support.embedded import NODES, PODS, until
from tests.support.installation import CONFIGURATION, NOWHERE, Installation, gated

#: The pod with all 3 CPUs of the queue `full`; a group and a namespace that it may be in.
HOLDER, GROUP, NAMESPACE = f"{PODS}/holder", pod_group_path("default", "g"), "/api/v1/namespaces/default"
MOVED: Any = {"metadata": {"annotations": objects.in_queue("q")}}
Does = Callable[[Installation], Awaitable[Any]]


def patched(path: str, body: object) -> Does:
    return lambda world: world.patch(path, body)


def has(cpu: str) -> Does:
    """Return a step that reports, like a kubelet, that the pod is resized to `cpu`."""
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


async def test_a_pod_whose_node_is_gone_counts_until_it_is_collected() -> None:
    """The node may be created again under its name, and the pod continues on it, as in kube-scheduler."""
    async with gated(cpu="1") as world:
        await world.add_node("n")
        await world.agent("holder", "full")
        await until(lambda: world.is_bound("holder"))
        await world.add_node("other")
        await world.delete(f"{NODES}/n")
        await world.pod("gated", queue="full")
        await world.stays_held("gated")
        assert world.standing("holder") is Standing.BOUND
        # Delete the pod like the pod garbage collector, after a while.
        await world.end_pod("holder")
        await until(lambda: world.is_bound("gated"))


#: Ways in which an admitted pod becomes impossible to place; their ends; and the pod's message meanwhile.
STUCK: dict[str, tuple[Does, Does, str]] = {
    "its group goes": (
        lambda world: world.delete(GROUP),
        lambda world: add_group(world, "g", minMember=1, queue="child"),
        "PodGroup default/g does not exist",
    ),
    "its group moves to a queue that is closed": (
        patched(GROUP, {"spec": {"queue": "closed"}}),
        patched(GROUP, {"spec": {"queue": "child"}}),
        "queue closed takes no pods: its state is Closed",
    ),
    "its group moves to a queue that is not there": (
        patched(GROUP, {"spec": {"queue": "missing"}}),
        patched(GROUP, {"spec": {"queue": "child"}}),
        "queue missing does not exist",
    ),
    "its queue is closing": (
        lambda world: world.set_state("child", "Closing"),
        lambda world: world.set_state("child", "Open"),
        "queue child takes no pods: its state is Closing",
    ),
    "its queue goes": (
        lambda world: world.delete(queue_path("child")),
        lambda world: world.queue("child", parent="full"),
        "queue child does not exist",
    ),
    "its queue becomes smaller than it": (
        patched(queue_path("child"), {"spec": {"capability": {"cpu": "2"}}}),
        patched(queue_path("child"), {"spec": {"capability": {"cpu": "3"}}}),
        "queue child has too little capability left: 1 of cpu missing",
    ),
}
WITHOUT_ENQUEUE = CONFIGURATION.replace("{schedulePeriod", "{actions: 'allocate, backfill', schedulePeriod")


@pytest.mark.parametrize("text", [CONFIGURATION, WITHOUT_ENQUEUE], ids=["enqueue", "without enqueue"])
@pytest.mark.parametrize("way", STUCK)
async def test_room_that_nobody_can_use_is_others_until_somebody_can_again(way: str, text: str) -> None:
    stops, goes_on, why = STUCK[way]
    async with gated(text, cpu="3") as world:
        await world.add_node("n", cpu="8")
        for name in ("child", "sibling", "closed"):
            await world.queue(name, parent="full")
        await world.set_state("closed", "Closed")
        await add_group(world, "g", minMember=1, queue="child")
        await world.pod("holder", cpu="3", group="g", queue="child", **NOWHERE)
        await until(lambda: world.says("holder", "Unschedulable"))
        await world.pod("gated", cpu="600m", queue="sibling")
        await world.agent("agent", "sibling", cpu="600m")
        await world.gang("gang", 1, cpu="600m", queue="sibling")
        await until(lambda: world.says("agent", "QueueFull"))
        await stops(world)
        await until(lambda: world.is_bound("gated", "agent", "gang-0"))
        await world.rest()
        condition = await world.condition("holder")
        assert condition is not None and condition["reason"] != "Unschedulable"
        assert why in condition["message"] and world.standing("holder") is None
        await goes_on(world)
        await world.stands("holder", Standing.RESERVED)
        await until(lambda: world.says("holder", "QueueFull"))
        for name in ("gated", "agent", "gang-0"):
            await world.end_pod(name)
        await until(lambda: world.says("holder", "Unschedulable"))


async def test_a_pod_that_wants_a_node_says_of_a_full_queue_that_it_moves_to_that_it_is_full() -> None:
    async with gated(cpu="3") as world:
        await world.add_node("n", cpu="8")
        await agent(world)
        about: Any = {"annotations": objects.in_queue("q"), **NOWHERE}
        await world.add(PODS, objects.pod("wants", cpu="600m", **about))
        await until(lambda: world.says("wants", "Unschedulable"))
        await world.patch(f"{PODS}/wants", {"metadata": {"annotations": objects.in_queue("full")}})
        await until(lambda: world.says("wants", "QueueFull"))
