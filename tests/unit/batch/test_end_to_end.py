"""Gangs from their objects to their binds, in a whole process on an embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent_scheduler.config.load import load_text
from agent_scheduler.engine.state.recount import contradictions
from agent_scheduler.process.runtime import Runtime
from tests.support.batched import add_group, add_queue, install
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until

CONFIGURATION = """
apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {port: 0}
leaderElection: {leaderElect: false}
batch: {schedulePeriod: 50ms}
"""
GROUP = "/apis/scheduling.volcano.sh/v1beta1"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


class Gangs:
    def __init__(self, cluster: EmbeddedCluster, runtime: Runtime) -> None:
        self.cluster = cluster
        self.runtime = runtime

    async def queue(self, name: str, **spec: Any) -> None:
        """One that is open, as the queue controller says."""
        await add_queue(self.cluster, name, **spec)
        await self.set_state(name, "Open")

    async def set_state(self, queue: str, state: str) -> None:
        body = {"status": {"state": state}}
        await self.cluster.ask("PATCH", f"{GROUP}/queues/{queue}/status", body, content_type=MERGE)

    async def gang(
        self,
        name: str,
        members: int,
        *,
        minimum: int = 0,
        cpu: str = "1",
        queue: str = "q",
        scheduler: str = "volcano",
        **spec: Any,
    ) -> None:
        await add_group(self.cluster, name, minMember=minimum or members, queue=queue, **spec)
        for number in range(members):
            await self.member(f"{name}-{number}", name, cpu=cpu, scheduler=scheduler)

    async def member(self, name: str, group: str, *, cpu: str = "1", scheduler: str = "volcano") -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
        metadata = {"name": name, "annotations": {"scheduling.k8s.io/group-name": group}}
        spec = {"schedulerName": scheduler, "containers": [container]}
        await self.cluster.ask("POST", PODS, {"metadata": metadata, "spec": spec})

    async def agent(self, name: str, queue: str, *, cpu: str = "1") -> None:
        """A pod of the fast path."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
        metadata = {"name": name, "annotations": {"scheduling.volcano.sh/queue-name": queue}}
        spec = {"schedulerName": "agent-scheduler", "containers": [container]}
        await self.cluster.ask("POST", PODS, {"metadata": metadata, "spec": spec})

    async def status(self, name: str) -> dict[str, Any]:
        group = await self.cluster.ask("GET", f"{GROUP}/namespaces/default/podgroups/{name}")
        status: dict[str, Any] = group.get("status") or {}
        return status

    async def is_in_phase(self, name: str, phase: str) -> bool:
        return (await self.status(name)).get("phase") == phase

    async def placed(self, name: str) -> int:
        return sum(each.startswith(name) for each in await self.cluster.placed())

    async def has_placed(self, name: str, number: int) -> bool:
        return await self.placed(name) == number

    @property
    def sessions(self) -> int:
        assert self.runtime.batch is not None
        return self.runtime.batch.sessions

    async def rest(self) -> int:
        """Returns once no session is due any more; how many there were."""
        batch = self.runtime.batch
        assert batch is not None
        quiet = 0
        async with asyncio.timeout(20):
            while quiet < 10:
                before = batch.sessions
                await asyncio.sleep(0.06)
                quiet = quiet + 1 if batch.sessions == before and not batch.waiting.due.is_set() else 0
        return batch.sessions

    async def is_left_alone(self) -> bool:
        """Whether no session is held for a while."""
        before = self.sessions
        await asyncio.sleep(0.3)
        return self.sessions == before


@asynccontextmanager
async def gangs(text: str = CONFIGURATION, *, kubelets: bool = False) -> AsyncIterator[Gangs]:
    async with embedded_cluster(kubelets=kubelets) as cluster:
        await install(cluster)
        async with process(cluster, text) as runtime:
            found = Gangs(cluster, runtime)
            await found.queue("q")
            yield found


@asynccontextmanager
async def process(cluster: EmbeddedCluster, text: str = CONFIGURATION, **more: Any) -> AsyncIterator[Runtime]:
    runtime = Runtime(load_text(text), **{**cluster.way(), **more})
    ending = asyncio.create_task(runtime.run(signals=False))
    try:
        await until(lambda: runtime.batch is not None and runtime.batch.sessions)
        yield runtime
        assert runtime.fast_path is not None and contradictions(runtime.fast_path.ledger) == []
    finally:
        runtime.stop()
        await asyncio.wait_for(ending, 10)


async def test_a_gang_is_bound_whole_and_one_that_does_not_fit_waits_until_a_node_comes() -> None:
    async with gangs() as world:
        cluster = world.cluster
        await cluster.add_node("a", cpu="4")
        await world.gang("fits", 3)
        await until(lambda: world.has_placed("fits", 3))
        await world.gang("large", 3, cpu="2")

        async def is_told() -> Any:
            conditions = (await world.status("large")).get("conditions") or []
            of_all = "3/3 tasks in gang unschedulable"
            return next(
                (
                    each
                    for each in conditions
                    if each["type"] == "Unschedulable" and of_all in each["message"]
                ),
                None,
            )

        condition = await until(is_told)
        assert condition["reason"] == "NotEnoughResources"
        assert (await world.status("large"))["phase"] in ("Pending", "Inqueue")
        pod = await cluster.condition("large-0")
        assert pod is not None and (pod["status"], pod["reason"]) == ("False", "Unschedulable")
        sessions = await world.rest()
        assert await world.placed("large") == 0
        assert world.runtime.fast_path is not None
        report = await world.runtime.fast_path.selfcheck.run()
        assert report.differences == () and not report.not_listed
        await asyncio.sleep(0.3)
        assert world.sessions == sessions, "a session was held though nothing had changed"

        await cluster.add_node("b", cpu="8")
        await until(lambda: world.has_placed("large", 3))

        async def is_held() -> bool:
            status = (await cluster.ask("GET", f"{GROUP}/queues/q"))["status"]
            return bool(status.get("allocated", {}).get("cpu") == "9" and status["state"] == "Open")

        await until(is_held)
        await until(lambda: world.is_in_phase("large", "Running"))


async def test_a_gang_that_nodes_refused_is_not_looked_at_again_for_the_sake_of_others() -> None:
    async with gangs() as world:
        for name in ("a", "b", "c", "d"):
            await world.cluster.add_node(name, cpu="2")
        await world.gang("large", 2, cpu="3")
        await until(lambda: world.is_in_phase("large", "Inqueue"))
        await world.rest()
        await world.gang("small", 2)
        await until(lambda: world.has_placed("small", 2))
        await world.rest()
        batch = world.runtime.batch
        assert batch is not None and batch.last is not None
        session = batch.last.session
        assert {job.name for job in session.jobs.values()} == {"large", "small"}
        assert "large" not in {job.name for job in session.fresh}

        await world.cluster.add_node("e", cpu="6")
        await until(lambda: world.has_placed("large", 2))


async def test_a_gang_that_has_lost_its_pods_is_let_in_again() -> None:
    async with gangs() as world:
        await world.cluster.add_node("n1", cpu="4")
        await world.gang("g", 2)
        await until(lambda: world.is_in_phase("g", "Running"))
        now = {"gracePeriodSeconds": 0}
        for number in range(2):
            await world.cluster.ask("DELETE", f"{PODS}/g-{number}", now)
        # Pending first, as it has no pods; and nothing happens after that but what a session decides.
        await until(lambda: world.is_in_phase("g", "Inqueue"))


async def test_pods_of_both_schedulers_share_nodes_and_none_is_filled_twice() -> None:
    async with gangs() as world:
        cluster = world.cluster
        for name in "abc":
            await cluster.add_node(name, cpu="4")
        for number in range(4):
            await world.gang(f"g{number}", 2)
            await cluster.add_pod(f"p{number}", cpu="1")

        async def all_placed() -> bool:
            return len(await cluster.placed()) == 12

        await until(all_placed)
        nodes = list((await cluster.placed()).values())
        assert {name: nodes.count(name) for name in "abc"} == {"a": 4, "b": 4, "c": 4}


async def test_pods_of_both_schedulers_share_a_queue_and_it_is_never_above_its_capability() -> None:
    async with gangs() as world:
        cluster = world.cluster
        await cluster.add_node("a", cpu="16")
        await world.queue("shared", capability={"cpu": "3"})
        await world.agent("agent", "shared")
        await until(lambda: world.has_placed("agent", 1))
        await world.gang("gang", 3, queue="shared")

        async def is_told() -> Any:
            return await cluster.condition("gang-0")

        await until(is_told)
        await world.rest()
        assert await world.placed("gang") == 0
        await cluster.ask("DELETE", f"{PODS}/agent?gracePeriodSeconds=0")
        await until(lambda: world.has_placed("gang", 3))
        await world.agent("late", "shared")

        async def is_full() -> Any:
            condition = await cluster.condition("late")
            return condition is not None and condition["reason"] == "QueueFull"

        await until(is_full)
        await cluster.ask("DELETE", f"{PODS}/gang-1?gracePeriodSeconds=0")
        await until(lambda: world.has_placed("late", 1))


async def test_a_pod_without_a_group_is_a_group_of_one() -> None:
    async with gangs() as world:
        await world.queue("default")
        await world.cluster.add_node("a")
        await world.cluster.add_pod("single", scheduler="volcano")
        await until(lambda: world.has_placed("single", 1))


async def test_members_above_the_minimum_follow_when_there_is_room() -> None:
    async with gangs() as world:
        await world.cluster.add_node("a", cpu="2")
        await world.gang("g", 3, minimum=2)
        await until(lambda: world.has_placed("g", 2))
        await world.rest()
        assert await world.placed("g") == 2
        await world.cluster.add_node("b", cpu="1")
        await until(lambda: world.has_placed("g", 3))


async def test_a_closed_queue_holds_its_gangs_until_it_is_open() -> None:
    async with gangs() as world:
        await world.cluster.add_node("a")
        await world.set_state("q", "Closed")
        await world.rest()
        await world.gang("g", 2)
        await world.rest()
        assert await world.placed("g") == 0
        await world.set_state("q", "Open")
        await until(lambda: world.has_placed("g", 2))


async def test_members_whose_group_comes_last_wait_for_it() -> None:
    async with gangs() as world:
        await world.cluster.add_node("a")
        for number in range(2):
            await world.member(f"g-{number}", "g")
        await world.rest()
        assert await world.placed("g") == 0
        await add_group(world.cluster, "g", minMember=2, queue="q")
        await until(lambda: world.has_placed("g", 2))


async def test_room_that_a_pod_of_the_fast_path_leaves_is_found() -> None:
    async with gangs() as world:
        await world.cluster.add_node("a", cpu="4")
        await world.cluster.add_pod("p", cpu="3")

        async def is_placed() -> bool:
            return "p" in await world.cluster.placed()

        await until(is_placed)
        await world.gang("g", 2)
        await world.rest()
        assert await world.placed("g") == 0
        await world.cluster.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
        await until(lambda: world.has_placed("g", 2))


async def test_what_one_process_has_begun_another_goes_on_with() -> None:
    async with gangs() as world:
        await world.cluster.add_node("a", cpu="1")
        await world.gang("g", 2, minResources={"cpu": "1"})
        await until(lambda: world.is_in_phase("g", "Inqueue"))
        world.runtime.stop()
        async with process(world.cluster) as other:
            await world.cluster.add_node("b", cpu="1")
            await until(lambda: world.has_placed("g", 2))
            await until(lambda: world.is_in_phase("g", "Running"))
            assert other.batch is not None


async def test_a_gang_has_a_claim_on_the_room_that_is_about_to_be_free_and_the_fast_path_leaves_it_alone() -> (
    None
):
    async with gangs() as world:
        await world.cluster.add_node("a", cpu="2")
        await world.gang("old", 1, cpu="2")
        await until(lambda: world.has_placed("old", 1))
        await world.cluster.ask("DELETE", f"{PODS}/old-0")
        await world.gang("g", 1, cpu="2")
        fast_path = world.runtime.fast_path
        assert fast_path is not None
        nominated = fast_path.queue.nominator.nominated
        await until(lambda: list(nominated.values()) == ["a"])
        await world.cluster.add_pod("p", cpu="1")
        await until(lambda: world.cluster.condition("p"))
        await world.cluster.ask("DELETE", f"{PODS}/old-0?gracePeriodSeconds=0")
        await until(lambda: world.has_placed("g", 1))
        await until(lambda: not nominated)
        assert not await world.placed("p")


async def test_actions_are_others_from_the_next_session_on() -> None:
    without = CONFIGURATION.replace("schedulePeriod", 'actions: "enqueue, backfill", schedulePeriod')
    async with gangs(without) as world:
        await world.cluster.add_node("a")
        await world.gang("g", 2)
        await world.rest()
        assert await world.placed("g") == 0
        world.runtime._apply(load_text(CONFIGURATION))
        await until(lambda: world.has_placed("g", 2))
