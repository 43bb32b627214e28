"""Sends a workload's objects to the API server, in time and without losing an answer.

Arrivals are open-loop: a pod is sent when its time has come, whether or not earlier ones were answered, so that
queueing shows up in the measured latency instead of slowing the load down. The number in flight is bounded by
the connections; what waits for one counts as late, and the lateness is reported.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agent_scheduler.kube.errors import RequestFailed, classify
from agent_scheduler.kube.transport import Transport, TransportError

from .asking import PATIENCE, ask, first_of
from .manifests import node_object, pod_object
from .specs import NodeSpec, PodSpec


@dataclass(slots=True)
class PodTimes:
    """When a pod was due, sent, answered, and first seen bound: seconds of one monotonic clock."""

    name: str
    due: float
    sent: float = 0.0
    answered: float = 0.0
    bound: float = 0.0


@dataclass(slots=True)
class LoadResult:
    """What came of a load. Owned by `PodLoad`; `times` is shared with the observer, which fills in `bound`."""

    times: dict[str, PodTimes] = field(default_factory=dict)
    created: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    latest: float = 0.0


async def _for_each(
    items: Iterable[bytes], send: Callable[[bytes], Awaitable[None]], *, parallel: int
) -> None:
    """Sends every item, `parallel` at a time; the first failure ends it."""
    iterator = iter(items)

    async def worker() -> None:
        for item in iterator:
            await send(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(worker())


async def create_nodes(transport: Transport, nodes: Sequence[NodeSpec]) -> None:
    """Creates the nodes, ready and without taints. Raises `RequestFailed` for the first refusal."""

    async def send(body: bytes) -> None:
        await ask(transport, "POST", "/api/v1/nodes", body=body)

    first: BaseException | None = None
    try:
        await _for_each((node_object(node) for node in nodes), send, parallel=16)
    except* RequestFailed as failures:
        # Raised below: before Python 3.11.4 what is raised in here comes out in a group again.
        first = first_of(failures)
    if first is not None:
        raise first


class PodLoad:
    """Creates pods when they are due. `result` is live while `run` is under way."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        scheduler_name: str,
        clock: Callable[[], float],
        parallel: int = 32,
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._scheduler_name = scheduler_name
        self._clock = clock
        self._parallel = parallel
        self.result = LoadResult()

    async def run(self, pods: Sequence[PodSpec]) -> None:
        """Sends every pod at its arrival, counted from now; returns when all are answered or have failed."""
        start = self._clock()
        due: asyncio.Queue[tuple[PodSpec, bytes] | None] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._parallel):
                group.create_task(self._sender(due))
            for index, pod in enumerate(pods):
                body = pod_object(pod, namespace=self._namespace, scheduler_name=self._scheduler_name)
                wait = start + pod.arrival - self._clock()
                if wait > 0:
                    await asyncio.sleep(wait)
                elif index % 64 == 0:
                    # Pods that are all due at once must not starve the senders of the loop.
                    await asyncio.sleep(0)
                self.result.times[pod.name] = PodTimes(pod.name, due=max(start + pod.arrival, start))
                due.put_nowait((pod, body))
            for _ in range(self._parallel):
                due.put_nowait(None)

    async def _sender(self, due: asyncio.Queue[tuple[PodSpec, bytes] | None]) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        result = self.result
        while (item := await due.get()) is not None:
            pod, body = item
            times = result.times[pod.name]
            times.sent = self._clock()
            result.latest = max(result.latest, times.sent - times.due)
            try:
                response = await self._transport.request("POST", path, body=body, timeout=PATIENCE)
            except TransportError as error:
                # The pod may or may not exist; the audit reads what is really there.
                result.errors[str(error)[:200]] += 1
                continue
            times.answered = self._clock()
            result.answers[response.status] += 1
            failure = classify(response)
            if failure is None:
                result.created += 1
            else:
                result.errors[str(failure)[:200]] += 1
