"""Creates a batch's pods and deletes them again: in a closed loop, or in an open one that nothing slows down.

A create without a response, or with a response to retry, is repeated; its pod exists if the server reports so. Any
other rejection ends the run, because the load was not carried out.

`bare_rate` measures the limit of the API server: only binds, by a client that does nothing else. A scheduler's rate on
the same cluster is given as a share of it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence

from agent_scheduler.objects.batch import pod_groups
from kube_client.errors import RequestFailed
from kube_client.transport import Transport

from .manifests import BATCH_SCHEDULER, encode, in_group, pod_group, pod_maker
from .model import Batch, Template
from .requests import BULK, NOW, create_all, first_of, for_each, retry
from .watching import Track

#: Maximum requests of an open loop in flight; a pod that waits for one of them is late, which is reported.
OPEN_LOOP_REQUESTS = 128


class Load:
    """Creates one batch's pods, and records the times of each in its track."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        track: Track,
        scheduler_name: str,
        selector: dict[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._groups = pod_groups(namespace)
        self._track = track
        self._clock = clock
        gang = self._gang = track.batch.gang
        name = scheduler_name if gang is None else BATCH_SCHEDULER
        self._makers = [
            pod_maker(template, scheduler_name=name, selector=selector, in_group=gang is not None)
            for template in track.batch.templates
        ]
        #: Maximum seconds by which a pod of an open loop was sent late.
        self.latest = 0.0

    @property
    def batch(self) -> Batch:
        return self._track.batch

    async def create(self, number: int) -> None:
        """Create one pod."""
        track = self._track
        body = self._makers[number % len(self._makers)](track.name(number))
        if self._gang is not None:
            group = f"{self.batch.name}-g{number // self._gang.size:05d}"
            body = in_group(body, group)
            if number % self._gang.size == 0:
                await retry(self._transport, "POST", self._groups, encode(pod_group(group, self._gang)))
        track.sent[number] = self._clock()
        await retry(self._transport, "POST", self._path, body)
        track.answered[number] = self._clock()
        track.created += 1

    async def run(self) -> None:
        """Create all of them by the batch's arrival. Raises RequestFailed."""
        schedule = self.batch.schedule
        if schedule is None:
            creators = self.batch.arrival.creators  # type: ignore[union-attr]
            await for_each(range(self.batch.count), self.create, parallel=creators)
            return
        first: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                queue: asyncio.Queue[int] = asyncio.Queue()
                for _ in range(min(OPEN_LOOP_REQUESTS, self.batch.count)):
                    tasks.create_task(self._sender(queue))
                await self._release(schedule.due(self.batch.count), queue)
                for _ in range(min(OPEN_LOOP_REQUESTS, self.batch.count)):
                    queue.put_nowait(-1)
        except* RequestFailed as errors:
            first = first_of(errors)
        if first is not None:
            raise first

    async def _release(self, due: Sequence[float], queue: asyncio.Queue[int]) -> None:
        """Put each number into the queue at its time."""
        start = self._clock()
        for number, offset in enumerate(due):
            at = self._track.due[number] = start + offset
            wait = at - self._clock()
            if wait > 0:
                await asyncio.sleep(wait)
            elif number % 64 == 0:
                # Pods that are due at one moment must not keep the senders from running.
                await asyncio.sleep(0)
            queue.put_nowait(number)

    async def _sender(self, queue: asyncio.Queue[int]) -> None:
        while (number := await queue.get()) >= 0:
            await self.create(number)
            self.latest = max(self.latest, self._track.sent[number] - self._track.due[number])


class Ends:
    """Deletes pods whose life is over, until canceled.

    `begun` counts the pods whose life has begun, `asked` those whose deletion was requested. `kubelets` returns how
    many pods kubelets have ended; then none is deleted.
    """

    def __init__(
        self, transport: Transport, namespace: str, track: Track, *, kubelets: Callable[[], int] | None = None
    ) -> None:
        self._transport = transport
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        lives = track.batch.lives
        self._lives: Sequence[float | None] = lives.seconds(track.batch.count) if lives else ()
        self._track = track
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._kubelets = kubelets
        self._deleted = 0
        self.begun = 0
        self.asked = 0

    @property
    def ended(self) -> int:
        """Return the number of pods whose life has begun and is over."""
        return self._deleted if self._kubelets is None else self._kubelets()

    def bound(self, name: str, track: Track, number: int) -> None:
        """Start the pod's life."""
        if track is self._track and self._lives:
            life = self._lives[number]
            if life is not None:
                self.begun += 1
                if self._kubelets is None:
                    asyncio.get_running_loop().call_later(life, self._due.put_nowait, name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(BULK):
                tasks.create_task(self._deleter())

    async def _deleter(self) -> None:
        while True:
            name = await self._due.get()
            self.asked += 1
            await retry(self._transport, "DELETE", f"{self._path}/{name}", NOW, ignore=404)
            self._deleted += 1


NOBODY = "agent-scheduler-bench-nobody"
CONNECTIONS = 32
_WARM_UP = 64


async def bare_rate(
    transport: Transport, namespace: str, nodes: Sequence[str], *, pods: int, selector: dict[str, str] | None
) -> float:
    """Return the binds per second of a bare client.

    Pods that no scheduler handles are bound to the nodes in turn over some keep-alive connections, as fast as the
    server answers. Raises RequestFailed.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    names = [f"bare-{number:06d}" for number in range(_WARM_UP + pods)]
    maker = pod_maker(Template(requests={}), scheduler_name=NOBODY, selector=selector)
    await create_all(transport, path, map(maker, names))
    turns = itertools.cycle(nodes)
    requests = [(f"{path}/{name}/binding", binding(name, next(turns))) for name in names]

    async def bind(request: tuple[str, bytes]) -> None:
        # A rejection because the pod is bound already: the retry of a bind whose response was lost.
        await retry(transport, "POST", *request, ignore=409)

    await for_each(requests[:_WARM_UP], bind, parallel=CONNECTIONS)
    began = time.monotonic()
    await for_each(requests[_WARM_UP:], bind, parallel=CONNECTIONS)
    return pods / (time.monotonic() - began)


def binding(name: str, node: str) -> bytes:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return encode({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target})
