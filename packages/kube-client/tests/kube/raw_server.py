"""A server that sends exactly the bytes of a script, well-formed or not, and its client.

`saying` listens on a socket; `wired` has none, so time may be virtual.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Any

from kube_client.http1 import Http1Transport
from kube_client.testing import scripted
from kube_client.testing.scripted import eventually, listening, port_of, reset
from kube_client.testing.wires import OK, Network, Wire

__all__ = ["OK", "End", "Raw", "Step", "client", "get", "post", "saying", "wired"]


class End(Enum):
    CLOSE = auto()
    RESET = auto()


Step = bytes | asyncio.Event | End
Script = Sequence[Sequence[Step]]


class Raw:
    """The record of a scripted server. `requests` are whole requests, with the number of their connection."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.scripts = scripts
        self.requests: list[tuple[int, bytes]] = []
        self.connections = 0
        self.open = 0
        self.port = 80
        self.url = Network.url
        self.dial: Any = None
        self.stop_listening: Callable[[], None] = lambda: None

    @property
    def lines(self) -> list[str]:
        return [text.split(b" HTTP/")[0].decode() for _, text in self.requests]

    async def arrived(self, count: int) -> None:
        await eventually(lambda: len(self.requests) >= count)

    async def serve(
        self,
        request: Callable[[], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
        reset: Callable[[], None],
    ) -> None:
        """Serve one connection, from its first request until the script closes it."""
        number = self.connections
        self.connections += 1
        self.open += 1
        try:
            for steps in self.scripts[min(number, len(self.scripts) - 1)]:
                self.requests.append((number, await request()))
                for step in steps:
                    if isinstance(step, bytes):
                        await write(step)
                    elif isinstance(step, asyncio.Event):
                        await step.wait()
                    else:
                        if step is End.RESET:
                            reset()
                        return
            while True:
                await request()
        finally:
            self.open -= 1


@asynccontextmanager
async def saying(
    *scripts: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Raw]:
    """Start a server whose nth connection follows the nth script, and further ones the last.

    A script has the steps after each request: bytes are sent, an event is awaited. After the last step, the server
    stays silent.
    """
    raw = Raw(scripts)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        await raw.serve(lambda: _request(reader), write, lambda: reset(writer))

    async with listening(connected, tls=tls, host=host, port=port) as server:
        raw.stop_listening = server.close
        raw.port = port_of(server)
        named = f"[{host}]" if ":" in host else host
        raw.url = f"{'https' if tls else 'http'}://{named}:{raw.port}"
        yield raw


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)


@asynccontextmanager
async def wired(*scripts: Script) -> AsyncIterator[Raw]:
    """Start the server of `saying` without sockets."""
    raw = Raw(scripts)
    network = _Scripted(raw)
    raw.dial, raw.stop_listening = network.dial, network.refuse
    try:
        yield raw
    finally:
        for task in network.tasks.values():
            task.cancel()
        await asyncio.gather(*network.tasks.values(), return_exceptions=True)


class _Scripted(Network):
    def __init__(self, raw: Raw) -> None:
        super().__init__(lambda wire, request: self.asked[wire].put_nowait(request))
        self.raw = raw
        self.asked: dict[Wire, asyncio.Queue[bytes]] = {}
        self.tasks: dict[Wire, asyncio.Task[None]] = {}

    def refuse(self) -> None:
        self.refuses = True

    def began(self, wire: Wire) -> None:
        self.asked[wire] = asyncio.Queue()
        self.tasks[wire] = asyncio.create_task(self._serve(wire))

    async def _serve(self, wire: Wire) -> None:
        async def write(data: bytes) -> None:
            wire.deliver(data)

        await self.raw.serve(self.asked[wire].get, write, lambda: wire.end(ConnectionResetError()))
        wire.end()

    def ended(self, wire: Wire) -> None:
        super().ended(wire)
        self.tasks[wire].cancel()


def client(server: Raw | Network | str, **options: Any) -> Any:
    """Return a client of the server or URL, closed at the end. Without sockets, its random numbers are fixed."""
    if isinstance(server, str):
        return scripted.client(server, **options)
    wired = {} if server.dial is None else {"dial": server.dial, "rng": random.Random(1)}
    return scripted.client(server.url, **{**wired, **options})


async def get(transport: Http1Transport, path: str = "/", *, timeout: float = 5) -> bytes:  # noqa: ASYNC109
    return (await transport.request("GET", path, timeout=timeout)).body


async def post(transport: Http1Transport, path: str = "/", *, timeout: float = 5) -> int:  # noqa: ASYNC109
    return (await transport.request("POST", path, body=b"{}", timeout=timeout)).status
