"""Measures what a request costs the embedded API server, in CPU time of its own process.

The server runs in its own process, without TLS, controllers and kubelets; its CPU time (user and system) is read from
the kernel before and after each batch, so the client's cost does not count.

   python -m bench.apiserver_cost [--objects 100000] [--requests 10000]

Phases, with an almost empty store and again with `--objects` stored pods: creates, binds, binds with watchers (the
difference, divided by watchers and events, is what one event costs one watcher), GETs, memory.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import uvloop

from bench.harness.embedded import cluster
from bench.harness.load import binding
from bench.harness.manifests import pod_maker
from bench.harness.measure import usage
from bench.harness.model import Batch, Case, Nodes, Template
from bench.harness.requests import ask, create_all, for_each
from bench.harness.run import until
from bench.tables import table
from kube_client.transport import Transport

PODS = "/api/v1/namespaces/default/pods"
_CONNECTIONS = 16
_BATCH = 500
_FEW = 2000
_pod = pod_maker(Template(labels={"app": "agent", "wave": "1"}), scheduler_name="agent-scheduler")


class OperationCost(NamedTuple):
    """CPU microseconds per operation, as the median over batches and the minimum.

    On a shared machine other work slows the caches down, so the same work costs more CPU time: the median is the cost
    under these conditions, the minimum the cost of the work.
    """

    median: float
    least: float


class Server(NamedTuple):
    """A transport to the server, and its process."""

    transport: Transport
    pid: int

    def cpu_seconds(self) -> float:
        """Return user and system time, from the kernel's nanosecond clock if it exists: the server has one thread."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError):
            used = usage(self.pid)
            assert used is not None, "the server is gone, or this system has no /proc"
            return used.cpu_seconds

    async def cost(
        self, requests: Sequence[tuple[str, str, bytes | None]], after: Callable[[int], Awaitable[None]] | None = None
    ) -> OperationCost:
        """Measure each of these requests; `after` receives the size of each batch, which has ended when it returns."""
        costs = []
        for batch in _batches(requests):
            before = self.cpu_seconds()
            await for_each(batch, self._send, parallel=_CONNECTIONS)
            if after is not None:
                await after(len(batch))
            costs.append((self.cpu_seconds() - before) / len(batch) * 1e6)
        return OperationCost(statistics.median(costs), min(costs))

    async def _send(self, request: tuple[str, str, bytes | None]) -> None:
        method, path, body = request
        await ask(self.transport, method, path, body=body)


def _batches(requests: Iterable[tuple[str, str, bytes | None]]) -> Iterator[list[tuple[str, str, bytes | None]]]:
    left = iter(requests)
    while batch := list(islice(left, _BATCH)):
        yield batch


class Watchers:
    """Watches of all pods, which only count their events."""

    def __init__(self, transport: Transport, version: str, count: int) -> None:
        self._transport = transport
        self._path = f"/api/v1/pods?watch=1&resourceVersion={version}"
        self.seen = [0] * count
        self.open = 0
        self._due = 0

    async def run(self, number: int) -> None:
        async with self._transport.stream(self._path, read_timeout=60) as batches:
            self.open += 1
            async for lines in batches:
                self.seen[number] += len(lines)

    async def all_seen(self, events: int) -> None:
        """Wait until each has received this number of further events. Raises TimeoutError."""
        self._due += events
        async with asyncio.timeout(60):
            await until(lambda: min(self.seen) >= self._due, tick=0.001)


async def phase(server: Server, label: str, count: int, watchers: int) -> tuple[OperationCost | int, ...]:
    """Measure the costs at the current number of objects; adds 2 x `count` pods, and binds them."""
    names = [f"{label}-{number:06d}" for number in range(2 * count)]
    binds = [
        ("POST", f"{PODS}/{name}/binding", binding(name, f"node-{number % 1000:05d}"))
        for number, name in enumerate(names)
    ]
    create = await server.cost([("POST", PODS, _pod(name)) for name in names])
    bind = await server.cost(binds[:count])
    get = await server.cost([("GET", f"{PODS}/{name}", None) for name in names[:count]])
    listed = msgspec.json.decode(await ask(server.transport, "GET", f"{PODS}?limit=1"))
    watching = Watchers(server.transport, listed["metadata"]["resourceVersion"], watchers)
    tasks = [asyncio.create_task(watching.run(number)) for number in range(watchers)]
    await until(lambda: watching.open == watchers)
    watched = await server.cost(binds[count:], watching.all_seen)
    for task in tasks:
        task.cancel()
    event = OperationCost(
        max(watched.median - bind.median, 0.0) / watchers, max(watched.least - bind.least, 0.0) / watchers
    )
    used = usage(server.pid)
    return create, bind, get, watched, event, round(used.rss / 1e6) if used else 0


async def run(objects: int, count: int, watchers: int) -> dict[str, tuple[OperationCost | int, ...]]:
    case = Case(name="", nodes=Nodes(count=0), load=Batch(name="pod", count=count))
    bare = ("--no-kubelets", "--no-tls", "--controllers", "")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        process, transport = await stack.enter_async_context(cluster(case.nodes, folder=folder, arguments=bare))
        server = Server(transport, process.pid)
        await create_all(transport, PODS, (_pod(f"warm-{number}") for number in range(_FEW)))
        figures = {f"{_FEW:,}": await phase(server, "a", count, watchers)}
        stored = _FEW + 2 * count
        await create_all(transport, PODS, (_pod(f"filler-{number:06d}") for number in range(objects - stored)))
        figures[f"{max(objects, stored):,}"] = await phase(server, "b", count, watchers)
        return figures


def _shown(figure: OperationCost | int) -> str:
    return f"{figure.median:.1f} ({figure.least:.1f})" if isinstance(figure, OperationCost) else str(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--objects", type=int, default=100_000, help="pods stored in the second round")
    parser.add_argument("--requests", type=int, default=5_000, help="requests in each phase")
    parser.add_argument("--watchers", type=int, default=10, help="watchers in the watched phase")
    args = parser.parse_args()
    result = uvloop.run(run(args.objects, args.requests, args.watchers))
    print("CPU microseconds of the server's process: median of the batches (least)\n")
    watched = f"bind, {args.watchers} watchers"
    header = ("pods stored", "create", "bind", "get", watched, "an event, each watcher", "resident MB")
    print(table(header, ((label, *map(_shown, figures)) for label, figures in result.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
