"""Limits of a server's connections and bodies, so that no client keeps others from being answered.

A new connection is always accepted. At the limit, it replaces another one: of the address with the most connections,
the oldest that has sent part of a request, else the oldest without a request, else the oldest. A probe of health, which
opens a connection of its own, is therefore answered while another address holds all others open.

A request's line and headers must arrive within HEAD_SECONDS and HEAD_BYTES, and its body, once it is read, within
BODY_SECONDS. Bodies are read while those being read have at most BODY_BYTES together; others wait, and stay with the
kernel. Of waiting bodies, that of the address with the fewest bytes comes first; if another address has more bytes, its
oldest body is given up for it.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, cast

#: The limit of connections, and the part of the process's file descriptors that they use at most.
MOST_CONNECTIONS: Final = 512
_SHARE: Final = 4
#: Seconds for a TLS handshake, for a request's line and headers, for a body, and for a client to read its response.
HANDSHAKE_SECONDS: Final = 10.0
HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 10.0
_RESPONSE_SECONDS: Final = 30.0
HEAD_BYTES: Final = 64 * 1024
#: The limit of bodies that are being read.
BODY_BYTES: Final = 32 * 1024 * 1024
#: Seconds between two searches for connections that exceed a limit of time.
_PERIOD: Final = 1.0
#: Seconds until the next attempt to accept a connection while the system has no descriptor or memory for it.
_PAUSE: Final = 0.1

_END: Final = b"\r\n\r\n"
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


def most_connections() -> int:
    """Return the limit of connections for this process's limit of file descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(4, min(MOST_CONNECTIONS, descriptors // _SHARE))


class ServedConnection(asyncio.Protocol):
    """One connection: passes everything on to `inner`, and sees where a request begins and where its headers end."""

    def __init__(self, connections: Connections, address: str) -> None:
        self.address = address
        self._connections = connections
        self.transport: asyncio.Transport | None = None
        self._inner: asyncio.Protocol | None = None
        #: Since when it has been in its present state, and whether that is in the middle of a request's headers.
        self.since = connections.clock()
        self.in_head = False
        #: Whether a request's response is being made.
        self.answering = False
        self._is_first = True
        #: The bytes of the headers so far, -1 after their end; and the last bytes.
        self._size = 0
        self._tail = b""

    @property
    def rank(self) -> tuple[int, float]:
        """The order in which connections of an address are closed for new ones."""
        if self.transport is None or self.in_head:
            return (0, self.since)
        return (1 if not self.answering else 2, self.since)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.since = self._connections.clock()
        self._connections.opened(transport, self)
        self._inner = self._connections.protocol()
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        assert self._inner is not None
        if not self.answering:
            if not self.in_head:
                self.in_head, self.since, self._size, self._tail = True, self._connections.clock(), 0, b""
            if self._size >= 0 and not self._count(data):
                return
        self._inner.data_received(data)

    def _count(self, data: bytes) -> bool:
        """Return whether the request's headers are within the limit, after more data. Otherwise the connection ends."""
        seen = self._tail + data
        if _END in seen:
            # What follows is its body, which `Bodies` limits.
            self._size = -1
            return True
        self._size += len(data)
        self._tail = seen[-3:]
        if self._size <= HEAD_BYTES:
            return True
        # After an unread body this may be more of it, so the client may expect no response.
        self._end(_HEAD_TOO_LARGE if self._is_first else b"")
        return False

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def begun(self) -> None:
        """A request's headers are complete and valid."""
        self.in_head, self.answering = False, True

    def answered(self) -> None:
        """A response is complete, but perhaps not sent."""
        self.answering, self._is_first, self.since = False, False, self._connections.clock()

    def check(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        if self.transport is None:
            return
        if self.in_head and now - self.since >= HEAD_SECONDS:
            self._end()
        elif not self.answering and now - self.since >= _RESPONSE_SECONDS and self.transport.get_write_buffer_size():
            self.abort()

    def _end(self, response: bytes = b"") -> None:
        assert self.transport is not None
        if response:
            self.transport.write(response)
        self.transport.close()

    def abort(self) -> None:
        self._connections.closed(self)
        if self.transport is not None:
            self.transport.abort()


class Connections:
    """Accepts connections on a listening socket from `start` to `stop`, which closes the socket."""

    def __init__(self, protocol: Callable[[], asyncio.Protocol], *, limit: int, clock: Callable[[], float]) -> None:
        """`protocol` creates the protocol of a new connection."""
        self.protocol = protocol
        self.clock = clock
        self._limit = limit
        #: In the order of their beginning.
        self._held: dict[ServedConnection, None] = {}
        self._by_transport: dict[asyncio.BaseTransport, ServedConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: The tasks of connections whose handshake is not complete.
        self._opening: dict[ServedConnection, asyncio.Task[None]] = {}
        self._listening: socket.socket | None = None

    def start(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        listening.setblocking(False)
        self._listening = listening
        for work in (self._accept(listening, tls), self._watch()):
            self._keep(asyncio.create_task(work))

    async def stop(self) -> None:
        """Accept no more connections. Those that are open are left to their protocols."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listening.close()

    def opened(self, transport: asyncio.BaseTransport, connection: ServedConnection) -> None:
        self._by_transport[transport] = connection

    def closed(self, connection: ServedConnection) -> None:
        self._held.pop(connection, None)
        if connection.transport is None and (opening := self._opening.get(connection)) is not None:
            opening.cancel()
        if connection.transport is not None:
            self._by_transport.pop(connection.transport, None)

    def of(self, transport: asyncio.BaseTransport | None) -> ServedConnection | None:
        """Return the connection with this transport, unless it is closed."""
        return None if transport is None else self._by_transport.get(transport)

    def admit(self, address: str) -> ServedConnection:
        """Return a new connection, for which another one is closed at the limit."""
        if len(self._held) >= self._limit:
            self._make_room()
        connection = ServedConnection(self, address)
        self._held[connection] = None
        return connection

    def check(self) -> None:
        """Close the connections of clients that are too slow."""
        now = self.clock()
        for connection in tuple(self._held):
            connection.check(now)

    def _make_room(self) -> None:
        """Close one connection."""
        held = Counter(connection.address for connection in self._held)
        if not held:
            return
        most = max(held.values())
        of_most = (each for each in self._held if held[each.address] == most)
        min(of_most, key=lambda each: each.rank).abort()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            self.check()

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError:
                # No descriptor or memory is left.
                self._make_room()
                await asyncio.sleep(_PAUSE)
                continue
            connection = self.admit(str(peer[0]) if peer else "")
            task = asyncio.create_task(self._open(connection, accepted, tls))
            self._opening[connection] = task
            task.add_done_callback(partial(self._opening_ended, connection, accepted))
            self._keep(task)

    def _opening_ended(self, connection: ServedConnection, accepted: socket.socket, _task: asyncio.Task[None]) -> None:
        del self._opening[connection]
        if connection.transport is None:
            self.closed(connection)
            accepted.close()

    async def _open(self, connection: ServedConnection, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        # OSError: the client has gone, spoke no TLS or was too slow.
        with suppress(OSError):
            await loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if tls is not None else None,
            )


class _Body:
    """A body that is read or waits to be read."""

    def __init__(self, address: str, size: int, scope: asyncio.Timeout) -> None:
        self.address = address
        self.size = size
        self.scope = scope
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Bodies:
    """Limits the bytes of bodies that are being read."""

    def __init__(self, limit: int = BODY_BYTES) -> None:
        self._limit = limit
        #: In the order of their beginning.
        self._read: dict[_Body, None] = {}
        self._waiting: dict[_Body, None] = {}

    @asynccontextmanager
    async def reading(self, address: str, size: int) -> AsyncIterator[None]:
        """Wait for the turn of a body. Raises TimeoutError if it cannot be read completely in time."""
        async with asyncio.timeout(BODY_SECONDS) as scope:
            body = _Body(address, min(size, self._limit), scope)
            self._waiting[body] = None
            try:
                self._grant()
                if not body.granted.done():
                    self._give_up_for(body)
                await body.granted
                # It may have waited for others for long.
                scope.reschedule(asyncio.get_running_loop().time() + BODY_SECONDS)
                yield
            finally:
                self._waiting.pop(body, None)
                self._read.pop(body, None)
                self._grant()

    def _bytes(self) -> Counter[str]:
        """Return the bytes being read by address."""
        found: Counter[str] = Counter()
        for body in self._read:
            found[body.address] += body.size
        return found

    def _grant(self) -> None:
        while self._waiting:
            by_address = self._bytes()
            first = min(self._waiting, key=lambda each: by_address[each.address])
            if by_address.total() + first.size > self._limit:
                return
            del self._waiting[first]
            self._read[first] = None
            if not first.granted.done():
                first.granted.set_result(None)

    def _give_up_for(self, body: _Body) -> None:
        """End the oldest bodies of the address with the most bytes, if it has more than the body's own would have."""
        by_address = self._bytes()
        most = max(by_address, key=lambda address: by_address[address], default="")
        for each in self._read:
            if (
                by_address.total() + body.size <= self._limit
                or by_address[most] <= by_address[body.address] + body.size
            ):
                return
            if each.address == most:
                by_address[most] -= each.size
                with suppress(RuntimeError):
                    # RuntimeError: it is being ended already.
                    each.scope.reschedule(asyncio.get_running_loop().time())
