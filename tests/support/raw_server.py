"""A server that sends exactly the bytes that a test scripts, well-formed or not, and the client that meets it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Any

from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint
from tests.support.scripted import eventually, listening, port_of, reset

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class End(Enum):
    CLOSE = auto()
    RESET = auto()


Step = bytes | asyncio.Event | End


class Raw:
    """What a scripted server has seen. `requests` are whole requests, with the number of their connection."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, bytes]] = []
        self.connections = 0
        self.open = 0
        self.port = 0
        self.url = ""
        self.stop_listening: Callable[[], None] = lambda: None

    @property
    def lines(self) -> list[str]:
        return [text.split(b" HTTP/")[0].decode() for _, text in self.requests]

    async def arrived(self, count: int) -> None:
        await eventually(lambda: len(self.requests) >= count)


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)


@asynccontextmanager
async def saying(
    *scripts: Sequence[Sequence[Step]],
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[Raw]:
    """A server whose nth connection follows the nth script, and further ones the last.

    A script has the steps after each request: bytes are sent, an event is awaited. When it is over, the server
    stays silent.
    """
    raw = Raw()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = raw.connections
        raw.connections += 1
        raw.open += 1
        try:
            for steps in scripts[min(number, len(scripts) - 1)]:
                raw.requests.append((number, await _request(reader)))
                for step in steps:
                    if isinstance(step, bytes):
                        writer.write(step)
                        await writer.drain()
                    elif isinstance(step, asyncio.Event):
                        await step.wait()
                    elif step is End.RESET:
                        reset(writer)
                        return
                    else:
                        return
            while await reader.read(65536):
                pass
        finally:
            raw.open -= 1

    async with listening(serve, tls=tls, host=host, port=port) as server:
        raw.stop_listening = server.close
        raw.port = port_of(server)
        named = f"[{host}]" if ":" in host else host
        raw.url = f"{'https' if tls else 'http'}://{named}:{raw.port}"
        yield raw


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncIterator[Http1Transport]:
    transport = Http1Transport(Endpoint(url), **options)
    try:
        yield transport
    finally:
        await transport.close()


async def get(transport: Http1Transport, path: str = "/", *, timeout: float = 5) -> bytes:  # noqa: ASYNC109
    return (await transport.request("GET", path, timeout=timeout)).body


async def post(transport: Http1Transport, path: str = "/", *, timeout: float = 5) -> int:  # noqa: ASYNC109
    return (await transport.request("POST", path, body=b"{}", timeout=timeout)).status
