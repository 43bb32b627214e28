"""Builds HTTP servers for tests."""

from __future__ import annotations

from typing import Any

from agent_scheduler.serving.http import HttpServer
from agent_scheduler.serving.sources import Sources


def http_server(sources: Sources, *, address: str = "127.0.0.1", port: int = 0, **more: Any) -> HttpServer:
    """Return a server that authorizes every request and has no certificates, unless `more` has others."""
    access = {"authorizer": None, "tls": None, "certificates": None}
    return HttpServer(sources, address=address, port=port, **{**access, **more})
