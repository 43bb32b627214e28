"""Queues that list the namespaces that may use them: both schedulers, gates and groups."""

from __future__ import annotations

from agent_scheduler.engine.quotas.access import NAMESPACE_SELECTOR, NAMESPACES
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, queue_path
from tests.support import objects
from tests.support.batched import add_group
from tests.support.embedded import PODS, until
from tests.support.installation import EACH, Installation, installed, samples

WHY = "namespace default is not among those that may use queue q"


async def lists(world: Installation, **annotations: str | None) -> None:
    keys = {"namespaces": NAMESPACES, "selector": NAMESPACE_SELECTOR}
    said = {keys[name]: text for name, text in annotations.items()}
    await world.patch(queue_path("q"), {"metadata": {"annotations": said}})


async def refused(world: Installation, *names: str) -> None:
    for name in names:
        await until(lambda name=name: world.says_text(name, "QueueNotAllowed", WHY))


@EACH
async def test_a_pod_waits_for_a_queue_of_others_and_says_so_until_its_namespace_is_listed(scheduler: str) -> None:
    async with installed() as world:
        await world.add_node("n", cpu="8")
        await lists(world, namespaces="others")
        await world.ungated("a", scheduler=scheduler)
        await refused(world, "a")
        # Others' pods, and queues without a list, are as always.
        await world.queue("open")
        await world.ungated("b", scheduler=scheduler, queue="open")
        await world.add("/api/v1/namespaces", {"metadata": {"name": "others"}})
        theirs = PODS.replace("/default/", "/others/")
        body = objects.pod("c", cpu="1", scheduler=scheduler, annotations=objects.in_queue("q"), namespace="others")
        await world.add(theirs, body)

        async def is_theirs_bound() -> bool:
            return bool((await world.get(f"{theirs}/c"))["spec"].get("nodeName"))

        await until(is_theirs_bound)
        await until(lambda: world.is_bound("b"))
        assert await world.only_placed("b")
        assert world.fast_path.ledger.usage.book.used("q")["cpu"] == 1000
        await lists(world, namespaces="others,default")
        await until(lambda: world.is_bound("a", "b"))


@EACH
async def test_a_namespace_is_let_in_by_its_labels_as_soon_as_it_has_them(scheduler: str) -> None:
    async with installed() as world:
        await world.add_node("n", cpu="8")
        await lists(world, selector="team=a")
        await world.ungated("a", scheduler=scheduler)
        await refused(world, "a")
        await world.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "a"}}})
        await until(lambda: world.is_bound("a"))
        await world.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "b"}}})
        await world.ungated("b", scheduler=scheduler)
        await refused(world, "b")
        assert world.fast_path.ledger.usage.book.used("q").get("cpu", 0) == 0, "it runs, and counts nowhere"


@EACH
async def test_the_gate_stays_while_the_queue_does_not_list_the_namespace(scheduler: str) -> None:
    async with installed() as world:
        await world.add_node("n", cpu="8")
        await lists(world, namespaces="others")
        await world.pod("a", scheduler=scheduler)
        await world.stays_held("a")
        assert await world.gates("a") == [QUEUE_ALLOCATION_GATE]
        await lists(world, namespaces=None)
        await until(lambda: world.is_bound("a"))


async def test_a_gang_waits_for_a_queue_of_others_and_neither_counts_nor_evicts() -> None:
    async with installed() as world:
        await world.add_node("n", cpu="8")
        await lists(world, namespaces="others")
        await world.gang("g", 2)
        await refused(world, "g-0", "g-1")
        await add_group(world, "coming", minMember=1, queue="q", minResources={"cpu": "1"})
        await world.rest()
        assert world.fast_path.ledger.usage.book.used("q").get("cpu", 0) == 0
        conditions = (await world.group_status("g"))["conditions"]
        assert [(each["reason"], each["message"]) for each in conditions] == [("QueueNotAllowed", WHY)]
        assert not await world.is_in_phase("coming", "Inqueue")
        sessions = world.sessions
        assert await world.is_left_alone() and world.sessions == sessions
        assert any("queue" in name or "access" in name for name in samples(world.runtime))
        await lists(world, namespaces="default")
        await until(lambda: world.is_bound("g-0", "g-1"))
        await until(lambda: world.is_in_phase("coming", "Inqueue"))
