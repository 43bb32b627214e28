"""A server with real sockets whose timers a test drives, and a client that writes bytes and reads answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from embedded_kubernetes.certificates import make_certificates, server_context
from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from embedded_kubernetes.server import Server

from .support import PODS, World


class Timers:
    """A wrapper of an event loop whose timers become due only in `advance`."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self.now = 0.0
        self.waiting: list[Timer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, action: Callable[..., object], *arguments: object) -> Timer:
        timer = Timer(self, when, lambda: action(*arguments))
        self.waiting.append(timer)
        return timer

    def call_later(self, delay: float, action: Callable[..., object], *arguments: object) -> Any:
        if delay <= 0 and self._loop is not None:
            return self._loop.call_soon(action, *arguments)
        return self.call_at(self.now + delay, action, *arguments)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := min((each for each in self.waiting if each.at <= end), key=lambda each: each.at, default=None):
            self.waiting.remove(due)
            self.now = due.at
            due.action()
        self.now = end


class Timer:
    def __init__(self, timers: Timers, at: float, action: Callable[[], object]) -> None:
        self.timers, self.at, self.action = timers, at, action

    def cancel(self) -> None:
        if self in self.timers.waiting:
            self.timers.waiting.remove(self)

    def when(self) -> float:
        return self.at


class Client:
    """A connection. The time limits only end a hang."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, text: str, body: bytes = b"") -> None:
        self.writer.write(text.replace("\n", "\r\n").encode() + body)

    def post(self, path: str, body: Any, more: str = "") -> None:
        data = orjson.dumps(body)
        head = f"POST {path} HTTP/1.1\nHost: localhost\nContent-Type: application/json\n{more}"
        self.send(f"{head}Content-Length: {len(data)}\n\n", data)

    def get(self, path: str, more: str = "") -> None:
        self.send(f"GET {path} HTTP/1.1\nHost: localhost\n{more}\n")

    def delete(self, path: str) -> None:
        self.send(f"DELETE {path} HTTP/1.1\n\n")

    async def head(self) -> tuple[int, dict[str, str]]:
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = text.strip().split("\r\n")
        return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines)

    async def answer(self) -> tuple[int, bytes]:
        status, headers = await self.head()
        return status, await self.reader.readexactly(int(headers["content-length"]))

    async def object(self) -> Any:
        """Return the object of an answer with any status."""
        return orjson.loads((await self.answer())[1])

    async def statuses(self, count: int = 1) -> list[int]:
        return [(await self.answer())[0] for _ in range(count)]

    async def is_alive(self) -> bool:
        self.get("/healthz")
        return await self.answer() == (200, b"ok")

    async def watch(self, path: str) -> None:
        """Open a watch and read the head of its answer."""
        self.get(path)
        assert (await self.head())[0] == 200

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def event(self) -> str:
        """Return the type and name of the object in a chunk that is one event; `?` if it cannot be read."""
        return shown(await self.chunk())

    async def rest(self) -> tuple[bytes, str]:
        """Return the remaining bytes, and whether the connection is then `closed` or `reset`."""
        found = b""
        try:
            while data := await asyncio.wait_for(self.reader.read(1 << 16), 60):
                found += data
        except ConnectionResetError:
            return found, "reset"
        return found, "closed"

    async def ended(self) -> bool:
        """Return whether the server closes the connection, with nothing more to read."""
        return (await self.rest())[0] == b""

    async def silent(self) -> bool:
        """Return whether nothing arrives, not even an end. A slow machine cannot make this false."""
        try:
            await asyncio.wait_for(self.reader.read(1), 0.05)
        except TimeoutError:
            return True
        return False


def shown(line: bytes) -> str:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "?"
    return f"{event['type']} {event['object']['metadata']['name']}"


class Served:
    def __init__(self, world: World, server: Server, timers: Timers) -> None:
        self.world, self.server, self.timers = world, server, timers
        self.hub = world.api.registry.stored(("", "pods")).hub
        self._clients: list[Client] = []

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._clients.append(client)
        return client

    async def watching(self) -> Client:
        """Return a client whose watch of pods from now on was answered with 200."""
        client = await self.client()
        await client.watch(f"{PODS}?watch=1&resourceVersion={self.world.store.rv}")
        return client

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def serving(world: World | None = None, *, real_time: bool = False, **options: Any) -> AsyncIterator[Served]:
    world = world or World(auth=options.pop("auth", None))
    async with Server(world.api, **options) as server:
        timers = Timers(asyncio.get_running_loop())
        assert server._shared is not None
        if not real_time:
            server._shared.loop = timers  # type: ignore[assignment]
        served = Served(world, server, timers)
        try:
            yield served
        finally:
            served.close()


def injector(*rules: dict[str, Any], seed: int = 1) -> Injector:
    return Injector(plan_of(orjson.dumps({"seed": seed, "rules": rules}).decode()))


@asynccontextmanager
async def faulty(*rules: dict[str, Any], **options: Any) -> AsyncIterator[Served]:
    async with serving(disturb=injector(*rules), **options) as served:
        yield served


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler, *names: str) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the address of an HTTPS server with a certificate for these names, and its authority."""
    made = make_certificates(names, now=time.time())
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(made))
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr, attr-defined]
        yield f"127.0.0.1:{port}", made.authority
    finally:
        await runner.cleanup()
