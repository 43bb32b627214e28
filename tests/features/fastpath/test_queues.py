"""Pods of the fast path under quotas, with the embedded API server: they count, and wait if their queue is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from agent_scheduler.objects.batch import NATIVE_API, QUEUE_ALLOCATION_GATE, QUEUE_NAME, QUEUES, queue_path
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.objects import native_group, pod
from tests.support.objects import queue as a_queue
from tests.support.places import CONFIG
from tests.support.running import Running, scheduling

CRD = CONFIG / "crd" / "scheduling.volcano.sh_queues.yaml"
GROUPS = f"{NATIVE_API}/namespaces/default/podgroups"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"


class Queues:
    def __init__(self, cluster: EmbeddedCluster, running: Running) -> None:
        self.cluster = cluster
        self.running = running
        self.usage = running.fast_path.ledger.usage

    async def set(self, name: str, cpu: str | None = None, *, parent: str = "", state: str = "Open") -> None:
        spec: dict[str, Any] = {"weight": 1, **({"parent": parent} if parent else {})}
        if cpu is not None:
            spec["capability"] = {"cpu": cpu}
        answer = await self.cluster.call("PATCH", queue_path(name), {"spec": spec}, content_type=MERGE)
        if answer.status == 404:
            await self.cluster.ask("POST", QUEUES, a_queue(name, **spec))
        await self.cluster.merge(f"{queue_path(name)}/status", {"status": {"state": state}})

        def seen() -> bool:
            info = self.usage.book.info(name)
            wanted = {} if cpu is None else {"cpu": int(cpu) * 1000}
            return info is not None and (info.capability or {}) == wanted and info.state == state

        await until(seen)

    async def add(self, name: str, queue: str = "", *, cpu: str = "1", opts_in: bool = False, **spec: Any) -> None:
        annotations = {QUEUE_NAME: queue} if queue else {}
        if opts_in:
            annotations[QUEUE_ALLOCATION_GATE] = "true"
        body = pod(name, cpu=cpu, memory="16Mi", annotations=annotations, **spec)
        await self.cluster.ask("POST", PODS, body)

    async def add_gang(
        self, name: str, members: int, queue: str, *, minimum: int = 0, cpu: str = "1", **more: Any
    ) -> None:
        await self.cluster.ask("POST", GROUPS, native_group(name, minimum or members))
        for number in range(members):
            own = {"podGroupName": name}
            await self.add(f"{name}-{number}", queue, cpu=cpu, schedulingGroup=own, **more)

    async def waits(self, name: str) -> str:
        """Wait until the API server has the report that the pod's queue is full; return the message."""
        await until(lambda: self.cluster.says_text(name, "QueueFull"))
        condition = await self.cluster.condition(name)
        assert condition is not None and condition["status"] == "False"
        message: str = condition["message"]
        return message

    async def wants_nodes(self, name: str) -> None:
        await until(lambda: self.cluster.says_text(name, "Unschedulable: "))

    async def placed(self, *names: str) -> None:
        async def are() -> bool:
            return set(await self.cluster.placed()) == set(names)

        await until(are)


@asynccontextmanager
async def queues(**changes: Any) -> AsyncIterator[Queues]:
    async with embedded_cluster(kinds=(*BUILTIN, *ALPHA)) as cluster:
        await cluster.ask("POST", CRDS, yaml.safe_load(CRD.read_text()))
        await cluster.add_node("n1", cpu="64")
        async with scheduling(cluster.transport, **changes) as running:
            found = Queues(cluster, running)
            await found.set("root")
            yield found
            assert running.reports.failures == []
            assert not list(found.usage.book.above_capability())


@pytest.mark.promise("S33")
@pytest.mark.parametrize("change", ["less", "closed", "gone"])
async def test_who_asks_for_nodes_does_so_no_more_once_its_queue_would_not_take_it(change: str) -> None:
    async with queues() as found:
        await found.set("a", "2")
        await found.add("p", "a", cpu="2", nodeSelector={"not": "there"})
        await found.wants_nodes("p")
        if change == "gone":
            await found.cluster.ask("DELETE", queue_path("a"))
        else:
            await found.set("a", "1" if change == "less" else "2", state="Closed" if change == "closed" else "Open")
        await found.waits("p")


@pytest.mark.promise("S33")
@pytest.mark.parametrize("other", ["is placed", "has room reserved"])
async def test_who_asks_for_nodes_does_so_no_more_once_others_have_what_was_left_in_its_queue(other: str) -> None:
    nowhere: dict[str, Any] = {"nodeSelector": {"not": "there"}}
    async with queues() as found:
        await found.set("a", "2")
        await found.add("p", "a", cpu="2", **nowhere)
        await found.wants_nodes("p")
        if other == "is placed":
            await found.add("other", "a")
        else:
            await found.add("other", "a", opts_in=True, **nowhere)
        assert await found.waits("p") == "queue a has too little capability left: 1 of cpu missing"
        await found.cluster.end_pod("other")
        await found.wants_nodes("p")


@pytest.mark.promise("S32", "GATE-11")
@pytest.mark.parametrize("loses", ["a member", "its object", "nothing"])
async def test_without_a_batch_scheduler_gated_members_of_a_gang_are_let_past_with_its_minimum_alone(
    loses: str,
) -> None:
    async with queues() as found:
        await found.set("a", "3")
        await found.add("first", "a", cpu="3")
        await found.placed("first")
        await found.add_gang("g", 3, "a", opts_in=True, gates=[QUEUE_ALLOCATION_GATE])
        waiting, held = found.usage.waiting, found.usage.gated.held
        name = "default/g (scheduling.k8s.io)"
        await until(lambda: len(held) == 3 and name in waiting)
        if loses == "a member":
            await found.cluster.end_pod("g-2")
            await until(lambda: len(held) == 2)
        elif loses == "its object":
            await found.cluster.ask("DELETE", f"{GROUPS}/g")
        if loses != "nothing":
            await until(lambda: name not in waiting)
        await found.cluster.end_pod("first")
        if loses == "nothing":
            await found.placed("g-0", "g-1", "g-2")
        else:
            await until(lambda: not found.usage.book.used("a"))
            assert held and not found.usage.gated.reserved


@pytest.mark.promise("S28")
async def test_of_pods_that_come_together_no_more_are_bound_than_their_queue_holds() -> None:
    async with queues() as found:
        await found.set("a", "3")
        for number in range(12):
            await found.add(f"pod-{number}", "a")
        await until(lambda: found.cluster.all_placed(3))
        for number in range(12):
            if f"pod-{number}" not in await found.cluster.placed():
                await found.waits(f"pod-{number}")
        assert len(await found.cluster.placed()) == 3
        for name in list(await found.cluster.placed()):
            await found.cluster.end_pod(name)
        await until(lambda: found.cluster.all_placed(3))


@pytest.mark.promise("S28")
async def test_pods_that_workers_decide_on_at_the_same_time_do_not_share_the_rest_of_a_queue() -> None:
    async with embedded_cluster() as cluster:
        await cluster.ask("POST", CRDS, yaml.safe_load(CRD.read_text()))
        await cluster.add_node("n1", cpu="64")
        async with scheduling(cluster.transport, profiles=()) as running:
            before = Queues(cluster, running)
            await before.set("root")
            await before.set("a", "3")
            for number in range(12):
                await before.add(f"pod-{number}", "a")
        async with scheduling(cluster.transport, workers=4) as running:
            after = Queues(cluster, running)
            await until(lambda: running.reports.attempts["scheduled"] == 3)
            await until(lambda: len(after.usage.waiting) == 9)
            assert len(await cluster.placed()) == 3
            assert not list(after.usage.book.above_capability())


async def test_one_that_no_node_takes_does_not_keep_the_room_that_it_was_called_for() -> None:
    async with queues() as found:
        await found.set("a", "2")
        await found.add("large", "a", cpu="2")
        await found.placed("large")
        # The pod created first is tried first.
        await found.add("nowhere", "a", cpu="2", nodeSelector={"is": "missing"})
        await found.waits("nowhere")
        await found.add("small", "a")
        await found.waits("small")
        await found.cluster.end_pod("large")
        await found.placed("small")


async def test_no_room_is_kept_on_a_node_for_a_pod_whose_queue_is_full() -> None:
    async with queues() as found:
        await found.set("a", "2")
        await found.add("lesser", cpu="64")
        await found.placed("lesser")
        await found.add("nominated", "a", cpu="2", priorityClassName="system-cluster-critical")

        def is_nominated(pod: Any) -> bool:
            return bool(pod["status"].get("nominatedNodeName"))

        nominated = found.running.fast_path.queue.nominator.nominated
        await found.cluster.seen(f"{PODS}/nominated", is_nominated)
        await found.add("other", cpu="64")
        await until(lambda: found.cluster.condition("other"))
        await found.set("a", "1")
        # The end of its victim wakes the pod, which then waits for its queue.
        await found.cluster.end_pod("lesser")
        assert await found.waits("nominated")
        await found.placed("other")
        await found.cluster.seen(f"{PODS}/nominated", lambda pod: not is_nominated(pod))
        assert not nominated


async def test_nobody_waits_when_the_last_queue_is_gone() -> None:
    async with queues() as found:
        await found.add("one", "absent")
        await found.waits("one")
        await found.cluster.ask("DELETE", queue_path("root"))
        await found.placed("one")


@pytest.mark.promise("S33")
@pytest.mark.parametrize("reserved", ["all", "none", "the last, and one has a node while it is tried"])
async def test_a_gang_that_wants_nodes_does_so_no_more_once_its_queue_has_not_room_for_all(reserved: str) -> None:
    async with queues() as found:
        await found.set("a", "3")
        elsewhere = {"nodeSelector": {"not": "there"}}
        first = 1 if "last" in reserved else 2
        await found.add_gang("g", first, "a", minimum=2, opts_in=reserved == "all", **elsewhere)
        if first == 1:
            own = {"podGroupName": "g"}
            await found.add("g-1", "a", opts_in=True, schedulingGroup=own, **elsewhere)
            await found.cluster.add_node("n2", cpu="1", labels={"not": "there"})
        for number in range(2):
            await found.wants_nodes(f"g-{number}")
        if first == 1:
            # The pod has returned from its backoff.
            await asyncio.sleep(30)
        if reserved == "none":
            await found.add("one", "a", cpu="2")
            await found.placed("one")
        else:
            await found.set("a", "1")
        for number in range(2):
            await found.waits(f"g-{number}")
        if first == 2:
            await found.set("a", "4")
            for number in range(2):
                await found.wants_nodes(f"g-{number}")


async def test_a_gang_whose_members_were_kept_out_one_by_one_goes_when_there_is_room_for_all() -> None:
    async with queues() as found:
        await found.set("a", "3")
        await found.add("large", "a", cpu="3")
        await found.placed("large")
        await found.add_gang("g", 3, "a")
        for number in range(3):
            await found.waits(f"g-{number}")
        await found.set("a", "4")

        async def is_told() -> bool:
            return await found.waits("g-0") == "queue a has too little capability left: 2 of cpu missing"

        await until(is_told)
        await found.set("a", "5")
        await found.set("a", "6")
        await found.placed("large", "g-0", "g-1", "g-2")
