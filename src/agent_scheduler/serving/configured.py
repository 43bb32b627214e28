"""The HTTP server that a configuration asks for."""

from __future__ import annotations

import time
from ipaddress import ip_address

from agent_scheduler.config.schema import Serving
from agent_scheduler.kube.transport import Transport
from agent_scheduler.telemetry.logs import get_logger

from .authorization import KubeAuthorizer
from .http import HttpServer, tls_context
from .sources import Sources

_log = get_logger("serving")


def server_of(serving: Serving, sources: Sources, transport: Transport) -> HttpServer:
    """It is not started. `transport`: to the API server, which says who may read. Raises ServingError."""
    if not (serving.authorize_metrics or ip_address(serving.bind_address).is_loopback):
        _log.warning(
            "pages are open",
            address=serving.bind_address,
            problem="metrics, configuration and debug pages, which name pods and nodes, are given to whoever reaches "
            "the address; set serving.authorizeMetrics, or a bindAddress of this host alone",
        )
    tls = None
    if serving.tls_cert_file:
        tls = tls_context(certificate=serving.tls_cert_file, key=serving.tls_private_key_file)
    return HttpServer(
        sources,
        address=serving.bind_address,
        port=serving.port,
        authorizer=KubeAuthorizer(transport, clock=time.monotonic) if serving.authorize_metrics else None,
        tls=tls,
    )
