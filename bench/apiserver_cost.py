"""What a request costs the embedded API server, in CPU time of its own process.

The server runs as a child process on a free loopback port; its CPU time (user and system) is read from the
kernel before and after each phase, so what the client costs does not count. The client is a lean raw one:
requests are prepared before the clock starts and sent over a few keep-alive connections, each with one request
in flight at a time.

    python -m bench.apiserver_cost [--objects 100000] [--requests 10000] [--json]

Phases, with next to nothing stored and again with `--objects` pods stored: creates, binds, binds with watchers
(the difference, divided by watchers and events, is what one event costs one watcher), GETs, memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson
import uvloop

from agent_scheduler.bench.measure import Usage, usage
from bench.tables import table

_CONNECTIONS = 16
_BATCH = 500


def pod(name: str) -> dict[str, Any]:
    """A plain pod, as an agent's sandbox asks for it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "agent", "wave": "1"}},
        "spec": {
            "schedulerName": "agent-scheduler",
            "containers": [
                {
                    "name": "agent",
                    "image": "registry.example/agent:1",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                }
            ],
        },
    }


def binding(name: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def post(path: str, body: dict[str, Any]) -> bytes:
    data = orjson.dumps(body)
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nUser-Agent: bench\r\nContent-Length: {len(data)}\r\n\r\n"
    ).encode() + data


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n".encode()


class Client(asyncio.Protocol):
    """One keep-alive connection: sends prepared requests one after another, reads only lengths and statuses."""

    def __init__(self) -> None:
        self._requests: Iterator[bytes] = iter(())
        self._done: asyncio.Future[None] | None = None
        self._wanted = b""
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def run(self, requests: Iterator[bytes], wanted: int) -> asyncio.Future[None]:
        """Send requests until there are no more; the future fails with the first unwanted answer."""
        self._requests = requests
        self._wanted = f"HTTP/1.1 {wanted} ".encode()
        self._done = asyncio.get_running_loop().create_future()
        self._next()
        return self._done

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif self._done is not None and not self._done.done():
            self._done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        start = self._buffer.find(b"Content-Length: ") + 16
        length = int(self._buffer[start : self._buffer.find(b"\r\n", start)])
        if len(self._buffer) < end + 4 + length:
            return
        if not self._buffer.startswith(self._wanted):
            self._fail(bytes(self._buffer[: end + 400]).decode())
            return
        self._buffer.clear()
        self._next()

    def _fail(self, why: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(RuntimeError(why))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the server closed the connection: {exc}")

    def close(self) -> None:
        self._done = None
        self._transport.close()


class Load:
    """A few connections that share the requests of a batch."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = clients

    @classmethod
    async def connect(cls, port: int) -> Load:
        loop = asyncio.get_running_loop()
        made = [await loop.create_connection(Client, "127.0.0.1", port) for _ in range(_CONNECTIONS)]
        return cls([client for _, client in made])

    async def send(self, requests: list[bytes], *, wanted: int = 201) -> None:
        source = iter(requests)
        await asyncio.gather(*[client.run(source, wanted) for client in self._clients])

    def close(self) -> None:
        for client in self._clients:
            client.close()


class Counter(asyncio.Protocol):
    """A watcher that counts events by their newlines."""

    def __init__(self, path: str) -> None:
        self.events = 0
        self._path = path

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(get(self._path))

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b"}\n")

    def close(self) -> None:
        self._transport.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with one thread, from sched's nanosecond clock where there is one."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return used_by(pid).cpu_seconds


def used_by(pid: int) -> Usage:
    used = usage(pid)
    assert used is not None, "the server is gone, or this system has no /proc"
    return used


class Meter:
    """CPU microseconds an operation of one process, by batches.

    On a shared machine a neighbour slows the caches down, so that the same work costs more CPU time: the median
    over batches says what it cost here, the least batch what it costs.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def __call__(
        self, batches: Iterable[list[Any]], work: Callable[[list[Any]], Awaitable[None]]
    ) -> Cost:
        costs = []
        for batch in batches:
            before = cpu_seconds(self._pid)
            await work(batch)
            costs.append((cpu_seconds(self._pid) - before) / len(batch) * 1e6)
        return Cost(statistics.median(costs), min(costs))


class Cost(NamedTuple):
    median: float
    least: float


def batched(requests: list[bytes]) -> list[list[bytes]]:
    return [requests[start : start + _BATCH] for start in range(0, len(requests), _BATCH)]


async def phase(pid: int, port: int, load: Load, label: str, count: int, watchers: int) -> dict[str, Any]:
    """Costs at the present number of objects; adds 2 x `count` pods, and binds them."""
    loop = asyncio.get_running_loop()
    meter = Meter(pid)
    names = [f"{label}-{number:06d}" for number in range(2 * count)]
    pods = "/api/v1/namespaces/default/pods"
    creates = [post(pods, pod(name)) for name in names]
    binds = [
        post(f"{pods}/{name}/binding", binding(name, f"node-{number % 1000:05d}"))
        for number, name in enumerate(names)
    ]
    gets = [get(f"{pods}/{name}") for name in names[:count]]
    result: dict[str, Any] = {}
    result["create_us"] = await meter(batched(creates), load.send)
    result["bind_us"] = await meter(batched(binds[:count]), load.send)
    result["get_us"] = await meter(batched(gets), lambda batch: load.send(batch, wanted=200))
    version = await current_version(port)
    counters = []
    for _ in range(watchers):
        counter = Counter(f"/api/v1/pods?watch=1&resourceVersion={version}")
        await loop.create_connection(lambda counter=counter: counter, "127.0.0.1", port)  # type: ignore[misc]
        counters.append(counter)
    await asyncio.sleep(0.2)
    due = 0

    async def bind_watched(batch: list[bytes]) -> None:
        nonlocal due
        due += len(batch)
        await load.send(batch)
        deadline = time.monotonic() + 60
        while min(counter.events for counter in counters) < due:
            if time.monotonic() > deadline:
                raise RuntimeError(f"watchers saw {[counter.events for counter in counters]} of {due} events")
            await asyncio.sleep(0.001)

    watched = await meter(batched(binds[count:]), bind_watched)
    for counter in counters:
        counter.close()
    result["watched_bind_us"] = watched
    result["watcher_event_us"] = Cost(
        max(watched.median - result["bind_us"].median, 0.0) / watchers,
        max(watched.least - result["bind_us"].least, 0.0) / watchers,
    )
    result["resident_mb"] = round(used_by(pid).rss / 1e6)
    return result


async def current_version(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(get("/api/v1/namespaces/default/pods?limit=1"))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = orjson.loads(await reader.readexactly(length))
    writer.close()
    return str(body["metadata"]["resourceVersion"])


async def serve(fd: int) -> None:
    """The child: a server on a free port, which is written to `fd`."""
    from embedded_kubernetes.builtin import BUILTIN
    from embedded_kubernetes.handlers import Api
    from embedded_kubernetes.server import Server, calm_gc
    from embedded_kubernetes.store import Store, random_uids

    api = Api(Store(clock=time.time, uid=random_uids()), BUILTIN)
    server = Server(api)
    await server.start()
    calm_gc()
    os.write(fd, f"{server.port}\n".encode())
    os.close(fd)
    await asyncio.Event().wait()


async def run(objects: int, count: int, watchers: int) -> dict[str, Any]:
    mine, theirs = socket.socketpair()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.apiserver_cost",
        "--serve",
        str(theirs.fileno()),
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    try:
        port = int(await asyncio.get_running_loop().run_in_executor(None, mine.recv, 64))
        load = await Load.connect(port)
        await load.send([post("/api/v1/namespaces/default/pods", pod(f"warm-{n}")) for n in range(2000)])
        result: dict[str, Any] = {"2,000": await phase(child.pid, port, load, "a", count, watchers)}
        stored = 2000 + 2 * count
        filling = [
            post("/api/v1/namespaces/default/pods", pod(f"filler-{number:06d}"))
            for number in range(max(objects - stored, 0))
        ]
        await load.send(filling)
        result[f"{max(objects, stored):,}"] = await phase(child.pid, port, load, "b", count, watchers)
        load.close()
        return result
    finally:
        child.terminate()
        await child.wait()
        mine.close()


def _shown(figure: Cost | int) -> str:
    return f"{figure.median:.1f} ({figure.least:.1f})" if isinstance(figure, Cost) else str(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--objects", type=int, default=100_000, help="pods stored in the second round")
    parser.add_argument("--requests", type=int, default=5_000, help="requests in each phase")
    parser.add_argument("--watchers", type=int, default=10, help="watchers in the watched phase")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--serve", type=int, metavar="FD", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        uvloop.run(serve(args.serve))
        return
    result = uvloop.run(run(args.objects, args.requests, args.watchers))
    if args.json:
        plain = {
            label: {name: c._asdict() if isinstance(c, Cost) else c for name, c in figures.items()}
            for label, figures in result.items()
        }
        print(json.dumps(plain))
        return
    print("CPU microseconds of the server's process: median of the batches (least)\n")
    watched = f"bind, {args.watchers} watchers"
    header = ("pods stored", "create", "bind", "get", watched, "an event, each watcher", "resident MB")
    print(table(header, ((label, *map(_shown, figures.values())) for label, figures in result.items())))


if __name__ == "__main__":
    main()
