"""Connections without sockets for the HTTP client in virtual time; a test decides the server's reaction to a byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kube_client.address import Address

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Wire(asyncio.Transport):
    """The client's end. `deliver` and `end` act for the server."""

    def __init__(self, network: Network, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.network = network
        self._protocol = protocol
        self._received = b""
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._due = 0.0

    def write(self, data: Any) -> None:
        self.network.written.append((self._loop.time(), bytes(data)))
        self._received += bytes(data)
        while b"\r\n\r\n" in self._received:
            head, _, rest = self._received.partition(b"\r\n\r\n")
            length = next((int(x[15:]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length:")), 0)
            if len(rest) < length:
                return
            self._received, request = rest[length:], head + b"\r\n\r\n" + rest[:length]
            self.network.meet(self, request)

    def deliver(self, data: bytes) -> None:
        """Deliver the bytes to the client a moment later, all at once, after those that were sent before."""
        if data:
            self._loop.call_at(self._next_moment(), self._deliver, data)

    def _next_moment(self) -> float:
        # Bytes that are sent together arrive in one turn of the loop, in order.
        self._due = max(self._due + 1e-10, self._loop.time() + 0.001)
        return self._due

    def _deliver(self, data: bytes) -> None:
        if not self._closed:
            self._protocol.data_received(data)

    def end(self, error: Exception | None = None) -> None:
        """Close the connection after the sent bytes, or reset it."""
        self._loop.call_at(self._next_moment(), self._end, error)

    def _end(self, error: Exception | None) -> None:
        if not self._closed:
            self._closed = True
            self.network.ended(self)
            self._protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self._closed

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self.network.ended(self)
            if not self.network.silent:
                self._loop.call_soon(self._protocol.connection_lost, None)

    close = abort


class Network:
    """A network that calls `meet` with each whole request and its wire."""

    url = "http://api.example"

    def __init__(self, meet: Callable[[Wire, bytes], None] = lambda wire, _: wire.deliver(OK)) -> None:
        self.meet = meet
        self.written: list[tuple[float, bytes]] = []
        self.opened = self.open = 0
        #: Whether the client is not notified of connections that end.
        self.silent = False
        self.refuses = False

    async def dial(self, address: Address, protocol: asyncio.Protocol) -> None:
        assert str(address) == "api.example:80"
        await asyncio.sleep(0.01)
        if self.refuses:
            raise ConnectionRefusedError
        self.opened += 1
        self.open += 1
        wire = Wire(self, protocol)
        self.began(wire)
        protocol.connection_made(wire)

    def began(self, wire: Wire) -> None: ...

    def ended(self, wire: Wire) -> None:
        self.open -= 1
