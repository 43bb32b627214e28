"""Opens connections: all addresses of a name, through a proxy if there is one, and TLS.

A name may have several addresses, some of which do not respond. They are tried in the system's order, alternating
address families, a quarter of a second apart (RFC 8305); the first that responds is used. The name is resolved for
each connection, so DNS changes take effect. An address that accepted a connection whose TLS handshake then failed is
tried last until another one fails.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from aiohappyeyeballs import start_connection

from kube_client.address import Address, Proxy, named

#: The delay before the next address is tried in parallel (RFC 8305, section 8).
ATTEMPT_DELAY_SECONDS = 0.25
#: The limit of a proxy's response to CONNECT.
_PROXY_HEAD_BYTES = 64 * 1024

#: Opens a connection to an address for a protocol, whose `connection_made` is called. Raises OSError.
Dial = Callable[[Address, asyncio.Protocol], Awaitable[None]]


class Dialer:
    """Implements `Dial` with real sockets. Belongs to one event loop."""

    def __init__(self) -> None:
        #: The socket address whose handshake failed last.
        self._avoided: object = None

    async def __call__(self, address: Address, protocol: asyncio.Protocol) -> None:
        loop = asyncio.get_running_loop()
        proxy = address.tunnel
        host, port = (address.host, address.port) if proxy is None else (proxy.host, proxy.port)
        sock = await self._connected(loop, host, port)
        peer = sock.getpeername()
        try:
            if proxy is not None:
                await _through(loop, sock, proxy, address, protocol)
            else:
                await loop.create_connection(
                    lambda: protocol,
                    sock=sock,
                    ssl=address.tls,
                    server_hostname=address.server_hostname if address.tls is not None else None,
                )
        except BaseException:
            # The event loop owns the socket by now and closes it.
            self._avoided = peer
            raise

    async def _connected(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
        """Connect to the first responding address of the name. Raises OSError."""
        try:
            # A literal address needs no lookup, so this does not block.
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found.sort(key=lambda info: info[4] == self._avoided)
        return await start_connection(found, happy_eyeballs_delay=ATTEMPT_DELAY_SECONDS, interleave=1, loop=loop)


async def _through(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, proxy: Proxy, address: Address, protocol: asyncio.Protocol
) -> None:
    """Open a tunnel by the proxy, and TLS to the server inside it. Raises OSError."""
    asking = _Connect(loop)
    name = proxy.host if proxy.tls is not None else None
    transport, _ = await loop.create_connection(lambda: asking, sock=sock, ssl=proxy.tls, server_hostname=name)
    try:
        where = named(address.host, address.port)
        head = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n"
        if proxy.authorization:
            head += f"Proxy-Authorization: {proxy.authorization}\r\n"
        transport.write(f"{head}\r\n".encode("ascii"))
        answer = (await asking.head).split(b"\r\n", 1)[0]
        parts = answer.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].startswith(b"2"):
            said = answer[:200].decode("latin-1")
            raise ConnectionError(f"the proxy {named(proxy.host, proxy.port)} refused a tunnel: {said!r}")
        assert address.tls is not None
        inner = await loop.start_tls(transport, protocol, address.tls, server_hostname=address.server_hostname)
        if inner is None or inner.is_closing():
            raise ConnectionError("the connection was closed during the handshake")
    except BaseException:
        transport.abort()
        raise
    protocol.connection_made(inner)


class _Connect(asyncio.Protocol):
    """Waits for the head of a proxy's response to CONNECT."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.head: asyncio.Future[bytes] = loop.create_future()
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if not self.head.done() and (end or len(head) > _PROXY_HEAD_BYTES):
            self.head.set_result(head)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.head.done():
            self.head.set_exception(exc or ConnectionError("the proxy closed the connection"))
            self.head.exception()
