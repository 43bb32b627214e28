"""A supervisor and its children in one event loop: all of them as they ship, but for the processes around them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from agent_scheduler.config import Configuration, load_text
from agent_scheduler.kube.transport import Endpoint
from agent_scheduler.processes.channel import Channel
from agent_scheduler.processes.child import Child
from agent_scheduler.processes.supervisor import Supervisor
from agent_scheduler.processes.wire import Hello, Order, read_order
from agent_scheduler.runtime import Runtime
from tests.embedded import EmbeddedCluster

HEAD = "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\nserving: {port: 0}\n"


class InLoop:
    """One start of a child, which is a task. Killed, it sends nothing any more."""

    def __init__(self, way: Channel[Order], task: asyncio.Task[int]) -> None:
        self.way = way
        self.task = task
        self.child: Child | None = None

    async def ended(self) -> int:
        await asyncio.wait({self.task})
        self.way.close()
        return -9 if self.task.cancelled() else self.task.result()

    def kill(self) -> None:
        self.task.cancel()


class World:
    """Owner of the supervisor, and of every start of each of its children, the newest last."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.starts: dict[int, list[InLoop]] = {}
        self.supervisor: Supervisor

    @staticmethod
    def configuration(text: str, processes: int) -> Configuration:
        election = "" if "leaderElection" in text else "leaderElection: {leaderElect: false}\n"
        return load_text(f"{HEAD}processes: {processes}\n{election}{text}")

    def make(self, processes: int, text: str = "", **more: Any) -> None:
        self.supervisor = Supervisor(
            self.configuration(text, processes),
            spawn=self.spawn,
            endpoint=Endpoint(self.cluster.server.url),
            **more,
        )

    async def spawn(self, number: int) -> tuple[InLoop, socket.socket]:
        ours, theirs = socket.socketpair()
        told: asyncio.Queue[Order] = asyncio.Queue()
        way: Channel[Order] = Channel(read_order, told=told.put_nowait, ended=lambda: None)
        await way.over(theirs)

        async def live() -> int:
            hello = await told.get()
            assert isinstance(hello, Hello) and hello.number == number
            child = Child(way, hello)
            way.ended = started.task.cancel  # type: ignore[assignment]
            child.runtime = Runtime(
                load_text(hello.configuration),
                endpoint=Endpoint(self.cluster.server.url),
                identity=hello.identity,
                part=child,
            )
            started.child = child
            way.told = child.told
            while not told.empty():
                child.told(told.get_nowait())
            try:
                return await child.runtime.run(signals=False)
            finally:
                way.close()

        started = InLoop(way, asyncio.create_task(live(), name=f"child {number}"))
        self.starts.setdefault(number, []).append(started)
        return started, ours

    def child(self, number: int) -> Child:
        found = self.starts[number][-1].child
        assert found is not None
        return found

    def nodes(self, number: int) -> frozenset[str]:
        """Those that a child uses now."""
        child = self.starts[number][-1].child
        fast_path = None if child is None else child._fast_path
        return frozenset() if fast_path is None else fast_path.part.membership.nodes  # type: ignore[union-attr]

    def outcomes(self, number: int) -> float:
        """The binds that a child has made."""
        runtime = self.child(number).runtime
        assert runtime is not None
        series = runtime.metrics.bind_outcomes_total.series
        runtime.metrics.families.text()
        return sum(each.value for each in series.values())

    async def uses(self, *parts: int) -> None:
        """Waits until the children use so many nodes each."""
        await eventually(lambda: [len(self.nodes(number)) for number in self.starts], list(parts))

    async def placed(self, *names: str) -> dict[str, str]:
        found: dict[str, str] = {}

        async def missing() -> set[str]:
            nonlocal found
            found = await self.cluster.placed()
            return set(names) - found.keys()

        await eventually(missing, set())
        return found


async def eventually(what: Callable[[], Any], wanted: Any, *, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds) as limit:
        answer = None
        try:
            while True:
                answer = what()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer == wanted:
                    return
                await asyncio.sleep(0.01)
        finally:
            if limit.expired() or answer != wanted:
                print(f"in the end {answer!r}, not {wanted!r}")


@asynccontextmanager
async def world(
    cluster: EmbeddedCluster, processes: int, text: str = "", **more: Any
) -> AsyncIterator[World]:
    """Children that have been divided nodes and pods. They end in order with the block."""
    made = World(cluster)
    made.make(processes, text, **more)
    ending = asyncio.create_task(made.supervisor.run(signals=False))
    try:
        begun = asyncio.create_task(eventually(lambda: made.supervisor.exchange.begun, True))
        await asyncio.wait({begun, ending}, return_when=asyncio.FIRST_COMPLETED)
        begun.result()
        yield made
    finally:
        made.supervisor.stop()
        try:
            assert await asyncio.wait_for(asyncio.shield(ending), 30) == 0
        finally:
            ending.cancel()
            with suppress(asyncio.CancelledError):
                await ending
        assert all(start.task.done() for starts in made.starts.values() for start in starts)
