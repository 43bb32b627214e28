"""What lies between a scheduler and the embedded API server here, and breaks when a test says so.

Faults of watches need a connection that can be cut, or fall silent, while binds still arrive: requests go straight to
the server, watches through a `Relay`. Faults at the server itself are a `Server`'s `disturb`, here a `Tap`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, Response, Transport
from embedded_kubernetes.requests import Disturb, Disturbance, Request
from tests.support.embedded import EmbeddedCluster


class Relay:
    """Relays TCP to a port of this machine while it is entered. Owner of all connections through it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._passing = asyncio.Event()
        self._passing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Connections under way; the event is set when one is to pass nothing more.
        self._open: dict[asyncio.StreamWriter, asyncio.Event] = {}
        self.connections = 0

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Reset all connections, and hold up whoever connects until `restore`."""
        self._passing.clear()
        for writer in list(self._open):
            writer.transport.abort()

    def restore(self) -> None:
        self._passing.set()

    def fall_silent(self) -> None:
        """No connection of now passes anything more or ends, as when a peer has vanished. New ones do."""
        for silent in self._open.values():
            silent.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        silent = self._open[writer] = asyncio.Event()
        upstream: asyncio.StreamWriter | None = None
        try:
            await self._passing.wait()
            answers, upstream = await asyncio.open_connection("127.0.0.1", self._port)
            asking = asyncio.create_task(_pump(reader, upstream, silent))
            answering = asyncio.create_task(_pump(answers, writer, silent))
            try:
                await asyncio.wait((asking, answering), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (asking, answering):
                    each.cancel()
                await asyncio.gather(asking, answering, return_exceptions=True)
        except asyncio.CancelledError:
            pass
        finally:
            del self._open[writer]
            self._tasks.discard(task)
            for each_writer in (writer, upstream):
                if each_writer is not None:
                    each_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silent: asyncio.Event) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            if silent.is_set():
                await asyncio.Event().wait()
            writer.write(data)
            await writer.drain()


class _Split:
    """Requests on one transport, watches on another. Closes neither."""

    def __init__(self, requests: Transport, watches: Transport) -> None:
        self._requests = requests
        self._watches = watches

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109 - as in `Transport`
    ) -> Response:
        return await self._requests.request(
            method, path, body=body, content_type=content_type, timeout=timeout
        )

    def stream(
        self, path: str, *, read_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        return self._watches.stream(path, read_timeout=read_timeout)

    async def close(self) -> None: ...


@asynccontextmanager
async def watching_through_a_relay(cluster: EmbeddedCluster) -> AsyncIterator[tuple[Transport, Relay]]:
    """A transport whose watches alone go through the relay."""
    async with Relay(cluster.server.port) as relay:
        watches = Http1Transport(Endpoint(relay.url))
        try:
            yield _Split(cluster.transport, watches), relay
        finally:
            await watches.close()


@asynccontextmanager
async def relayed(cluster: EmbeddedCluster) -> AsyncIterator[tuple[Http1Transport, Relay]]:
    """A transport that goes through the relay with everything."""
    async with Relay(cluster.server.port) as relay:
        transport = Http1Transport(Endpoint(relay.url))
        try:
            yield transport, relay
        finally:
            await transport.close()


def forget_history(cluster: EmbeddedCluster) -> None:
    """As an etcd compaction does: a watch from before now is answered 410, and nobody is told what it missed."""
    store = cluster.api.store
    store.compact(store.rv)


class Tap:
    """A server's `disturb` that remembers every request and lets a test harm those that it picks."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.harm: Disturb = _nothing

    def __call__(self, request: Request) -> Disturbance | None:
        self.requests.append(request)
        return self.harm(request)

    def count(self, picked: Callable[[Request], bool]) -> int:
        return sum(picked(request) for request in self.requests)

    def binds(self, pod: str) -> int:
        """How often a pod was sent to be bound."""
        return self.count(lambda request: is_bind(request) and f"/{pod}/" in request.path)


def _nothing(_request: Request) -> Disturbance | None:
    return None


def is_bind(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/binding")


def is_watch(request: Request) -> bool:
    return request.method == "GET" and request.flag("watch")
