"""The server as a configuration asks for it: where it listens, and who is warned of what."""

from __future__ import annotations

import socket

import aiohttp
import pytest
from structlog.testing import capture_logs

from agent_scheduler.config.schema import Serving
from agent_scheduler.serving.http import HttpServer, server_of
from agent_scheduler.serving.sources import ServingError, Sources
from tests.support.needed import ipv6_loopback
from tests.support.scripted import Hang, answering

pytestmark = pytest.mark.real_time

SOURCES = Sources(metrics=lambda: (b"", "text/plain"), configuration=dict)


async def answers(host: str, port: int) -> bool:
    url = f"http://[{host}]:{port}/livez" if ":" in host else f"http://{host}:{port}/livez"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientConnectorError:
        return False


@pytest.mark.parametrize(
    ("address", "families"),
    [
        ("::", {"127.0.0.1", "::1"}),
        ("0.0.0.0", {"127.0.0.1"}),
        ("127.0.0.1", {"127.0.0.1"}),
        ("::1", {"::1"}),
    ],
)
async def test_all_addresses_are_those_of_both_families(address: str, families: set[str]) -> None:
    ipv6_loopback()
    server = HttpServer(SOURCES, address=address, port=0)
    port = await server.start()
    try:
        assert {host for host in ("127.0.0.1", "::1") if await answers(host, port)} == families
    finally:
        await server.stop()


async def test_a_host_without_ipv6_serves_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    server = HttpServer(SOURCES, address="::", port=0)
    port = await server.start()
    try:
        assert await answers("127.0.0.1", port)
    finally:
        await server.stop()


async def test_a_port_of_both_families_that_is_taken_is_named() -> None:
    first = HttpServer(SOURCES, address="::", port=0)
    port = await first.start()
    try:
        with pytest.raises(ServingError, match=f"cannot serve on :: port {port}: Address already in use"):
            await HttpServer(SOURCES, address="::", port=port).start()
    finally:
        await first.stop()


@pytest.mark.parametrize("authorized", [False, True])
@pytest.mark.parametrize(
    ("address", "is_open"),
    [*((each, True) for each in ("0.0.0.0", "::", "10.0.0.7")), ("127.1.2.3", False), ("::1", False)],
)
def test_pages_that_anyone_reaches_are_warned_of(address: str, is_open: bool, authorized: bool) -> None:
    with capture_logs() as lines:
        serving = Serving(bind_address=address, authorize_metrics=authorized)
        server_of(serving, SOURCES, answering(lambda _: Hang())[1])
    told = [(line["event"], line["log_level"], line["address"]) for line in lines]
    assert told == ([("pages are open", "warning", address)] if is_open and not authorized else [])
