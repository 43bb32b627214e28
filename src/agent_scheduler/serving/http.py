"""A process's HTTP server: health, metrics, the effective configuration, and a scheduler's queue and cache.

    /healthz /livez /readyz            always public: `ok`, or the failed checks
    /metrics                           Prometheus
    /configz                           the effective configuration
    /debug/queue /debug/cache          waiting pods and cached objects, up to ?limit
    /debug/pending                     pods without a node, the oldest first, up to ?limit
    /debug/explain?pod=NAMESPACE/POD   everything known about one pod
    /debug/figures                     counters and queue lengths for `agent-scheduler top`
    /debug/check                       a comparison of the scheduler's state with a new list of the cluster
    /ui                                a console for browsers, if enabled
    each path of `Sources.reviews`     POST of a review by an API server; public, because that has no token

The server knows nothing about scheduling: the callables in `Sources` provide all content at each request. With an
authorizer, everything except health requires a bearer token that the API server accepts and authorizes. The API
server's proxy does not forward `Authorization`, so the token may also be in TOKEN_HEADER.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agent_scheduler.serving.certificate import ServingCertificate
from agent_scheduler.serving.given_certificates import GivenCertificates
from agent_scheduler.serving.self_signed import SelfSignedCertificate
from agent_scheduler.serving.sources import ServingError, Sources
from kube_client.authorization import KubeAuthorizer

if TYPE_CHECKING:
    from agent_scheduler.serving.pages import Pages


import time
from ipaddress import ip_address

from agent_scheduler.config.schema import Serving
from agent_scheduler.telemetry.logs import get_logger
from kube_client.retry import REAL
from kube_client.transport import Transport


class HttpServer:
    """Owns the listening socket between `listen` and `stop`.

    Connections before `serve` wait for it. `port` 0 selects any free port; the caller handles a configured 0, which
    means no server.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        address: str,
        port: int,
        authorizer: KubeAuthorizer | None,
        tls: ssl.SSLContext | None,
        certificates: GivenCertificates | SelfSignedCertificate | None,
    ) -> None:
        """`certificates` are the source of the context in `tls`, and are replaced in it while the server runs."""
        self._certificates = certificates
        self._following: asyncio.Task[None] | None = None
        self._sources = sources
        self._address = address
        self._port = port
        self._authorizer = authorizer
        self._tls = tls
        self._listening: socket.socket | None = None
        self._pages: Pages | None = None

    def listen(self) -> int:
        """Start to listen and return the port. Raises ServingError if the address or port is unavailable."""
        try:
            self._listening = _listening(self._address, self._port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ServingError(f"cannot serve on {self._address} port {self._port}: {why}") from None
        port: int = self._listening.getsockname()[1]
        return port

    async def serve(self) -> None:
        """Answer requests from now on. Needs `listen`."""
        # In a thread, because aiohttp and cryptography are slow to load, and not earlier, because the first bind does
        # not need them.
        await asyncio.to_thread(import_module, "agent_scheduler.serving.pages")
        if isinstance(self._certificates, SelfSignedCertificate):
            await asyncio.to_thread(self._certificates.begin)
        from agent_scheduler.serving.pages import Pages

        if self._listening is None:
            return
        is_local = ip_address(self._listening.getsockname()[0].partition("%")[0]).is_loopback
        self._pages = Pages(self._sources, authorizer=self._authorizer, tls=self._tls, is_local=is_local)
        await self._pages.start(self._listening)
        if self._certificates is not None:
            self._following = asyncio.create_task(self._certificates.run())

    async def start(self) -> int:
        """Listen and serve; return the port. Raises ServingError."""
        port = self.listen()
        await self.serve()
        return port

    def drain(self) -> None:
        """Stop keeping connections alive on which reviews arrive. New ones are accepted until `stop`."""
        if self._pages is not None:
            self._pages.drain()

    async def stop(self) -> None:
        """Stop listening and let requests in progress finish. Repeated calls have no effect."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
        pages, self._pages = self._pages, None
        listening, self._listening = self._listening, None
        if pages is not None:
            await pages.stop()
        elif listening is not None:
            listening.close()


def _listening(address: str, port: int) -> socket.socket:
    """Open the socket. Raises OSError."""
    if address != "::":
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    # All addresses of both families, as for Kubernetes' own components; a plain IPv6 socket may exclude IPv4.
    if not socket.has_dualstack_ipv6():
        return socket.create_server(("0.0.0.0", port))  # noqa: S104 - it is what was asked for
    return socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=True)


_log = get_logger("serving")


def server_of(
    serving: Serving, sources: Sources, transport: Transport, *, tls: ssl.SSLContext | None = None
) -> HttpServer:
    """Create a server without starting it. Raises ServingError.

    `transport` is for authorization by the API server; `tls` replaces the configured files.
    """
    if not (serving.authorize_metrics or ip_address(serving.bind_address).is_loopback):
        _log.warning(
            "pages are open",
            address=serving.bind_address,
            problem="metrics, configuration and debug pages, which name pods and nodes, are readable for all clients "
            "that reach the address; set serving.authorizeMetrics, or a loopback bindAddress",
        )
    certificates: GivenCertificates | SelfSignedCertificate | None = None
    if tls is None and serving.has_tls:
        presented = ServingCertificate()
        if serving.tls_cert_file:
            files = Path(serving.tls_cert_file), Path(serving.tls_private_key_file)
            certificates = GivenCertificates(*files, present=presented.present, timing=REAL)
            certificates.begin()
        else:
            hosts = (socket.gethostname(), "localhost")
            certificates = SelfSignedCertificate(hosts, present=presented.present, timing=REAL)
        tls = presented.context
    return HttpServer(
        sources,
        address=serving.bind_address,
        port=serving.port,
        authorizer=KubeAuthorizer(transport, clock=time.monotonic) if serving.authorize_metrics else None,
        tls=tls,
        certificates=certificates,
    )
