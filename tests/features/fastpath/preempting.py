"""Nodes that are full of pods without priority, a fast path for them, and faults of its evictions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.transport import Response, Transport
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling
from tests.support.transports import Through, failure

HIGH = "system-cluster-critical"
HIGHEST = "system-node-critical"
TERMINATING = "not eligible due to a terminating pod on the nominated node."
#: Settings with which no pod is retried by itself.
PATIENT = {"initial_backoff": 60.0, "max_backoff": 60.0, "pop_from_backoff": False}


class Full:
    """A cluster and its fast path."""

    def __init__(self, cluster: EmbeddedCluster, running: Running, transport: Any) -> None:
        self.cluster, self.running, self.transport = cluster, running, transport
        self.reports, self.queue = running.reports, running.fast_path.queue
        self.preemption = running.fast_path.preemption

    async def settled(self, pods: int) -> None:
        await until(lambda: len(self.running.fast_path.ledger.placements) == pods)

    async def add(self, name: str, *, cpu: str = "2", priority: str = HIGH, **spec: Any) -> None:
        await self.cluster.add_pod(name, cpu=cpu, priorityClassName=priority, **spec)

    async def run(self, name: str, node: str, **spec: Any) -> None:
        """Let another scheduler place a pod there, and wait until this one sees it."""
        placed = len(self.running.fast_path.ledger.placements)
        await self.cluster.add_pod(name, scheduler="other", **spec)
        await self.cluster.bind(name, node)
        await self.settled(placed + 1)

    async def uid(self, name: str) -> str:
        """Return the UID of a pod, once the fast path knows it."""
        pods = self.running.fast_path.cluster.pods
        found: str = await until(lambda: next((uid for uid in pods if pods[uid].name == name), ""))
        return found

    async def nominated(self, name: str) -> str | None:
        node: str | None = (await self.cluster.pod(name))["status"].get("nominatedNodeName")
        return node

    async def is_not_nominated(self, name: str) -> bool:
        return not await self.nominated(name)

    async def node_of(self, name: str) -> str:
        """Return the node of a pod, once it has one."""
        node: str = await until(lambda: self._node_of(name))
        return node

    async def _node_of(self, name: str) -> str | None:
        return (await self.cluster.placed()).get(name)

    async def victims(self, number: int = 1) -> set[str]:
        """Return the pods that are leaving, once there are `number`."""

        async def found() -> set[str] | None:
            names = await self.cluster.leaving()
            return names if len(names) == number else None

        names: set[str] = await until(found)
        return names


@asynccontextmanager
async def full(
    *nodes: str,
    pods: int = 1,
    through: Callable[[EmbeddedCluster], Transport] | None = None,
    disturb: Any = None,
    **settings: Any,
) -> AsyncIterator[Full]:
    """Yield nodes of 2 CPUs, each full of `pods` of no priority: `low-0`...

    on n1, or prefixed by each name of `nodes`.

    `through` makes the transport of the fast path's requests.
    """
    async with embedded_cluster(**({} if disturb is None else {"disturb": disturb})) as cluster:
        for number, prefix in enumerate(nodes or ("low",), 1):
            await cluster.add_node(f"n{number}", cpu="2")
            for which in range(pods):
                name = f"{prefix}-{which}"
                await cluster.add_pod(name, cpu=f"{2000 // pods}m", labels={"app": prefix})
                await cluster.bind(name, f"n{number}")
        transport = cluster.transport if through is None else through(cluster)
        async with scheduling(transport, **settings) as running:
            found = Full(cluster, running, transport)
            await found.settled(pods * len(nodes or ("low",)))
            yield found


class HeldEvictions:
    """Delays evictions, or only the `first`, until they may `go`; has their results in the order of sending."""

    def __init__(self, world: Full, *, first: bool = False) -> None:
        preemption = world.preemption
        self.go, self.begun, self.results = asyncio.Event(), 0, dict[int, str]()
        evict = preemption._evict

        async def held(victim: Any, **more: Any) -> Any:
            number = self.begun
            self.begun += 1
            if number == 0 or not first:
                await self.go.wait()
            answer = await evict(victim, **more)
            self.results[number] = answer[0].value
            return answer

        preemption._evict = held  # type: ignore[method-assign, assignment]


class Refusing(Through):
    """Answers deletions with 403."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster.transport)
        self.deletions = 0

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == "DELETE":
            self.deletions += 1
            return failure(403)
        return await super().request(method, path, **more)


def show_nobody_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide from the watch that pods are being deleted or evicted."""
    set_pod = Cluster.set_pod

    def late(self: Cluster, pod: PodInfo) -> None:
        if not pod.deleting and not pod.preempted:
            set_pod(self, pod)

    monkeypatch.setattr(Cluster, "set_pod", late)
