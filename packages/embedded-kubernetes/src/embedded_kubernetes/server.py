"""The API server in a process: the listening socket, TLS, the collector and shutdown.

It has one event loop and one thread. `calm_gc` affects the whole process, so the process that owns the server calls
it; starting a server in a test does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
from dataclasses import KW_ONLY, dataclass, field
from ipaddress import ip_address
from pathlib import Path

from .connections import Shared
from .handlers import Api
from .hosts import advertised
from .http import Connection
from .pacing import CollectorTurns
from .requests import Disturb

_BACKLOG = 4096
#: Seconds for a TLS handshake.
_HANDSHAKE = 10.0


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server's TLS context from PEM files. Raises OSError or ssl.SSLError with the reason."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def calm_gc() -> None:
    """Reduce the work of the cyclic garbage collector during requests.

    Stored objects are bytes, which it never visits, and requests create no cycles. Objects that exist after the start
    live as long as the process, so they are frozen, and collections become rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


@dataclass(eq=False)
class Server:
    """Serves one `Api` on one address. `port` 0 selects a free one, which it has after the start."""

    api: Api
    _: KW_ONLY
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    disturb: Disturb | None = None
    _listener: asyncio.Server | None = field(init=False, default=None)
    _shared: Shared | None = field(init=False, default=None)
    _turns: CollectorTurns | None = field(init=False, default=None)

    @property
    def url(self) -> str:
        scheme = "https" if self.tls is not None else "http"
        host = advertised(self.host)
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises OSError if the address is in use."""
        loop = asyncio.get_running_loop()
        shared = self._shared = Shared(self.api, loop, disturb=self.disturb)
        self._turns = CollectorTurns(self.api.collector, loop)
        self._listener = await loop.create_server(
            lambda: Connection(shared),
            self.host,
            self.port,
            ssl=self.tls,
            ssl_handshake_timeout=_HANDSHAKE if self.tls is not None else None,
            backlog=_BACKLOG,
        )
        places = [listening.getsockname() for listening in self._listener.sockets]
        shared.is_local = all(ip_address(place[0].partition("%")[0]).is_loopback for place in places)
        self.port = places[0][1]
        self.api.address = self.url.partition("://")[2]

    async def stop(self, *, grace: float = 2.0) -> None:
        """Stop listening, end watches, let responses finish for `grace` seconds, then close all connections."""
        listener, shared = self._listener, self._shared
        if listener is None or shared is None:
            return
        self._listener = None
        shared.closing = True
        listener.close()
        for connection in list(shared.connections):
            connection.shut_down()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await shared.all_closed()
        for connection in list(shared.connections):
            connection.abort()
        if self._turns is not None:
            self._turns.stop()
        await listener.wait_closed()
        await self.api.close()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
