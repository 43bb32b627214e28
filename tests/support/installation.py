"""A cluster with a scheduler's process, and the actions of tests on gangs and gated pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from agent_scheduler.config.load import load_text
from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, pod_group_path, queue_path
from agent_scheduler.process.scheduler import SchedulerProcess
from kube_client.testing.virtual import is_virtual
from tests.support import objects
from tests.support.batched import add_group, add_queue, install
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.transports import Faulty

CONFIGURATION = """
apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {port: 0}
leaderElection: {leaderElect: false}
batch: {schedulePeriod: 50ms}
"""
PREEMPTING = CONFIGURATION.replace(
    "batch: {schedulePeriod: 50ms}",
    """batch:
  schedulePeriod: 50ms
  actions: enqueue, allocate, preempt, backfill
  tiers:
    - plugins: [{name: priority}, {name: gang}, {name: conformance}]
    - plugins: [{name: predicates}, {name: capacity}, {name: nodeorder}]""",
)
GROUP = "/apis/scheduling.volcano.sh/v1beta1"
OTHER = "example.com/other"
#: The account of the scheduler if roles are installed.
ACCOUNT = "agent-scheduler"
#: For behavior that both schedulers share; `make test` runs one of them.
BOTH = pytest.mark.parametrize("scheduler", [pytest.param("agent-scheduler", marks=pytest.mark.wide), "volcano"])
#: For behavior that each scheduler implements separately.
EACH = pytest.mark.parametrize("scheduler", ["agent-scheduler", "volcano"])
NOWHERE: dict[str, Any] = {"nodeSelector": {"not": "there"}}
W = TypeVar("W", bound="Installation")


class Installation(EmbeddedCluster):
    """A cluster with one scheduler; `runtime` is its process."""

    def __init__(self, cluster: EmbeddedCluster, runtime: SchedulerProcess) -> None:
        super().__init__(cluster.api, cluster.transport, cluster._server)
        self.runtime = runtime

    # ---- what users do

    async def queue(self, name: str, **spec: Any) -> None:
        """Add an open queue, with the status of the queue controller."""
        await add_queue(self, name, **spec)
        await self.set_state(name, "Open")

    async def set_state(self, queue: str, state: str) -> None:
        await self.patch(f"{GROUP}/queues/{queue}/status", {"status": {"state": state}})

    async def set_capability(self, queue: str, **capability: str) -> None:
        await self.patch(queue_path(queue), {"spec": {"capability": capability}})

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
        await add_group(self, name, minMember=minimum or members, queue=queue, **spec)
        for number in range(members):
            await self.member(f"{name}-{number}", name, cpu=cpu, scheduler=scheduler)

    async def member(self, name: str, group: str, *, scheduler: str = "volcano", **more: Any) -> None:
        await self.add(PODS, objects.pod(name, **{"cpu": "1", **more}, scheduler=scheduler, group=group))

    async def agent(self, name: str, queue: str, *, cpu: str = "1") -> None:
        """Add a pod for the fast path."""
        await self.add(PODS, objects.pod(name, cpu=cpu, memory="16Mi", annotations=objects.in_queue(queue)))

    async def pod(
        self,
        name: str,
        *,
        scheduler: str = "volcano",
        queue: str = "q",
        cpu: str = "1",
        group: str = "",
        role: str = "",
        gates: tuple[str, ...] = (QUEUE_ALLOCATION_GATE,),
        annotation: str = "true",
        **spec: Any,
    ) -> None:
        """Add a pod with the gate of its queue's capacity."""
        annotations = {QUEUE_ALLOCATION_GATE: annotation, **objects.in_queue(queue)}
        if role:
            annotations["volcano.sh/task-spec"] = role
        requests = {"cpu": cpu, "memory": "16Mi"} if cpu else {}
        spec |= {"scheduler": scheduler, "group": group, "gates": gates, "annotations": annotations}
        await self.add(PODS, objects.pod(name, requests=requests, **spec))

    async def ungated(self, name: str, **more: Any) -> None:
        await self.pod(name, gates=(), annotation="false", **more)

    async def gated_gang(self, name: str, members: int, *, minimum: int = 0, queue: str = "q", **more: Any) -> None:
        await add_group(self, name, minMember=minimum or members, queue=queue)
        for number in range(members):
            await self.pod(f"{name}-{number}", group=name, queue=queue, **more)

    # ---- what there is

    async def group_status(self, name: str) -> dict[str, Any]:
        return (await self.get(pod_group_path("default", name))).get("status") or {}

    async def is_in_phase(self, name: str, phase: str) -> bool:
        return (await self.group_status(name)).get("phase") == phase

    async def gates(self, name: str) -> list[str]:
        pod = await self.get(f"{PODS}/{name}")
        return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]

    async def is_let_past(self, name: str) -> bool:
        return not await self.gates(name)

    async def is_gated_by(self, name: str, *gates: str) -> bool:
        return tuple(await self.gates(name)) == gates

    async def all_let_past(self, prefix: str, number: int) -> bool:
        return await self.let_past(prefix) == number

    async def let_past(self, prefix: str) -> int:
        pods = (await self.pods()).items()
        return sum(name.startswith(prefix) and not pod["spec"].get("schedulingGates") for name, pod in pods)

    async def told(self, name: str) -> list[str]:
        """Return the notes of events that report that its queue's gate holds the pod."""
        events = await self.items("/apis/events.k8s.io/v1/namespaces/default/events")
        return [each["note"] for each in events if each["reason"] == "QueueFull" and each["regarding"]["name"] == name]

    async def has_told(self, name: str, number: int) -> bool:
        return len(await self.told(name)) == number

    async def stays_held(self, *names: str) -> None:
        """Wait until no session is due, and verify that these pods are gated.

        Their conditions must not make an autoscaler add nodes.
        """
        await self.rest()
        for name in names:
            assert QUEUE_ALLOCATION_GATE in await self.gates(name)
            assert await self.says(name, "SchedulingGated")

    # ---- the scheduler

    @property
    def fast_path(self) -> Any:
        assert self.runtime.fast_path is not None
        return self.runtime.fast_path

    @property
    def batch(self) -> Any:
        assert self.runtime.batch is not None
        return self.runtime.batch

    @property
    def sessions(self) -> int:
        found: int = self.batch.sessions
        return found

    async def rest(self) -> int:
        """Wait until no session is due; return the number of sessions so far."""
        quiet = 0
        async with asyncio.timeout(120):
            while quiet < 10:
                before = self.sessions
                await asyncio.sleep(0.06)
                quiet = quiet + 1 if self.sessions == before and not self.batch.waiting.due.is_set() else 0
        return self.sessions

    async def is_left_alone(self) -> bool:
        """Return whether no session runs for a while."""
        before = self.sessions
        await asyncio.sleep(0.3)
        return self.sessions == before

    def standing(self, name: str) -> Standing | None:
        uid = next((pod.uid for pod in self.fast_path.cluster.pods.values() if pod.name == name), "")
        entry = self.fast_path.ledger.usage.book.entry(uid)
        return None if entry is None else entry.standing

    async def stands(self, name: str, standing: Standing | None) -> None:
        await until(lambda: self.standing(name) is standing)


def samples(runtime: SchedulerProcess) -> dict[str, float]:
    """Return every sample of its metrics by its name and labels, as a scraper reads it."""
    lines = runtime.metrics.exposition()[0].decode().splitlines()
    found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in found}


@asynccontextmanager
async def started(
    cluster: EmbeddedCluster, text: str, **more: Any
) -> AsyncIterator[tuple[SchedulerProcess, asyncio.Task[int]]]:
    """Run a process, which is stopped at the end; yield it and the task of its run."""
    way = cluster.way(account=ACCOUNT if cluster.has_roles and "transport" not in more else "")
    runtime = SchedulerProcess(load_text(text), **{"source": None, **way, **more})
    ending = asyncio.create_task(runtime.run(signals=False))
    try:
        yield runtime, ending
    finally:
        runtime.stop()
        await asyncio.wait_for(ending, 60)


@asynccontextmanager
async def process(cluster: EmbeddedCluster, text: str = CONFIGURATION, **more: Any) -> AsyncIterator[SchedulerProcess]:
    async with started(cluster, text, **more) as (runtime, _):
        await until(lambda: runtime.batch is not None and runtime.batch.sessions)
        yield runtime
        assert runtime.fast_path is not None and contradictions(runtime.fast_path.ledger) == []


@asynccontextmanager
async def installed(
    text: str = CONFIGURATION,
    made: type[W] = Installation,  # type: ignore[assignment]
    *,
    queue: str = "q",
    full: dict[str, str] | None = None,
    through: Callable[[EmbeddedCluster], Any] | None = None,
    **cluster: Any,
) -> AsyncIterator[W]:
    """Start a cluster and a scheduler with its installed rights; add an open `queue`, and `full` with that capability.

    `through` creates the process's transport from its default one.
    """
    components = ("default",) if is_virtual() else ()
    async with embedded_cluster(**{"components": components, **cluster}) as found:
        await install(found)
        seen = found.of_account(ACCOUNT) if found.has_roles else found
        way = {} if through is None else {"transport": through(seen)}
        async with process(found, text, **way) as runtime:
            world = made(found, runtime)
            await world.queue(queue)
            if full is not None:
                await world.queue("full", capability=full)
            yield world


def gated(text: str = CONFIGURATION, **capability: str) -> Any:
    """Start `installed` with a queue `full` of this capability, one CPU by default."""
    return installed(text, full=capability or {"cpu": "1"})


@asynccontextmanager
async def faulty(*, at_once: bool = False, **more: Any) -> AsyncIterator[tuple[Installation, Faulty]]:
    transports: list[Faulty] = []

    def through(cluster: EmbeddedCluster) -> Faulty:
        transports.append(Faulty(cluster.transport, at_once=at_once))
        return transports[0]

    async with installed(through=through, **more) as world:
        yield world, transports[0]
