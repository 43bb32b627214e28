"""A process's HTTP server: health, metrics, the effective configuration, and what a scheduler's queue and cache hold.

    /healthz /livez /readyz            always open: they say `ok`, or which check fails
    /metrics                           Prometheus
    /configz                           the effective configuration
    /debug/queue /debug/cache          what waits and what is known, up to ?limit
    /debug/explain?pod=NAMESPACE/POD   all that is known of one pod
    /debug/figures                     counters and depths of queues, as `agent-scheduler top` reads them
    /debug/check                       what is known, compared with the cluster as it is listed for that
    /ui                                a console for browsers, where one is wanted
    any path of `Sources.reviews`      POST of a review by an API server; open, as it has no token for that

It knows nothing of scheduling: all it tells comes from the callables in `Sources`, read when a request comes.
With an authorizer, everything but health asks for a bearer token that the API server accepts and authorizes. The
API server's proxy keeps a caller's `Authorization` to itself, so that the token may come in TOKEN_HEADER as well.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agent_scheduler.serving.authorization import Authorizer, KubeAuthorizer
from agent_scheduler.serving.certificate import ServingCertificate
from agent_scheduler.serving.given_certificates import GivenCertificates
from agent_scheduler.serving.sources import ServingError, Sources

if TYPE_CHECKING:
    from agent_scheduler.serving.pages import Pages


import time
from ipaddress import ip_address

from agent_scheduler.config.schema import Serving
from agent_scheduler.kube.retry import REAL
from agent_scheduler.kube.transport import Transport
from agent_scheduler.telemetry.logs import get_logger


class HttpServer:
    """Owner of the listening socket between `listen` and `stop`.

    What connects before `serve` waits for it. `port` 0 takes any free one; a configuration's 0, which means no server,
    is the caller's to heed.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        address: str,
        port: int,
        authorizer: Authorizer | None = None,
        tls: ssl.SSLContext | None = None,
        certificates: GivenCertificates | None = None,
    ) -> None:
        """`certificates` are followed while it serves: those that the context in `tls` presents."""
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
        """The port. Raises ServingError if address or port cannot be had."""
        try:
            self._listening = _listening(self._address, self._port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ServingError(f"cannot serve on {self._address} port {self._port}: {why}") from None
        port: int = self._listening.getsockname()[1]
        return port

    async def serve(self) -> None:
        """Answers from now on. Needs `listen`."""
        # In a thread, because the library of HTTP takes long to load; here, because the first bind does not need it.
        await asyncio.to_thread(import_module, "agent_scheduler.serving.pages")
        from agent_scheduler.serving.pages import Pages

        if self._listening is None:
            return
        self._pages = Pages(self._sources, authorizer=self._authorizer, tls=self._tls)
        await self._pages.start(self._listening)
        if self._certificates is not None:
            self._following = asyncio.create_task(self._certificates.run())

    async def start(self) -> int:
        """Listens and answers; returns the port. Raises ServingError."""
        port = self.listen()
        await self.serve()
        return port

    def drain(self) -> None:
        """Stop keeping connections on which reviews are asked for. Others may still be made until `stop`."""
        if self._pages is not None:
            self._pages.drain()

    async def stop(self) -> None:
        """Stops listening and lets requests under way end. Stopping twice changes nothing."""
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
    """Raises OSError."""
    if address != "::":
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    # All addresses of both families, as for Kubernetes' own components; a socket by itself would take those of IPv6
    # alone.
    if not socket.has_dualstack_ipv6():
        return socket.create_server(("0.0.0.0", port))  # noqa: S104 - it is what was asked for
    return socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=True)


_log = get_logger("serving")


def server_of(
    serving: Serving, sources: Sources, transport: Transport, *, tls: ssl.SSLContext | None = None
) -> HttpServer:
    """It is not started. `transport`: to the API server, which says who may read. `tls`: in the place of the files'.
    Raises ServingError."""
    if not (serving.authorize_metrics or ip_address(serving.bind_address).is_loopback):
        _log.warning(
            "pages are open",
            address=serving.bind_address,
            problem="metrics, configuration and debug pages, which name pods and nodes, are given to whoever reaches "
            "the address; set serving.authorizeMetrics, or a bindAddress of this host alone",
        )
    certificates = None
    if tls is None and serving.tls_cert_file:
        presented = ServingCertificate()
        files = Path(serving.tls_cert_file), Path(serving.tls_private_key_file)
        certificates = GivenCertificates(*files, present=presented.present, timing=REAL)
        certificates.begin()
        tls = presented.context
    return HttpServer(
        sources,
        address=serving.bind_address,
        port=serving.port,
        authorizer=KubeAuthorizer(transport, clock=time.monotonic) if serving.authorize_metrics else None,
        tls=tls,
        certificates=certificates,
    )
