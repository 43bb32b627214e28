"""A process that does not lead writes nothing, whatever it is in the middle of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from agent_scheduler.kube.address import Address
from agent_scheduler.kube.dial import Dialer
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, FencedTransport, NotSent
from tests.support.embedded import PODS, embedded_cluster
from tests.support.raw_server import OK, client, get, saying
from tests.support.scripted import eventually


async def test_writes_pass_while_they_are_allowed_and_reads_always_do() -> None:
    leading = True
    async with embedded_cluster() as cluster:
        fenced = FencedTransport(cluster.transport, lambda: leading)
        pod = b'{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
        assert (await fenced.request("POST", PODS, body=pod, timeout=5)).status == 201
        leading = False
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(NotSent, match="does not lead"):
                await fenced.request(method, f"{PODS}/a", body=b"{}", timeout=5)
        assert (await fenced.request("GET", f"{PODS}/a", timeout=5)).status == 200
        async with fenced.stream(f"{PODS}?watch=1", read_timeout=5) as batches:
            async for lines in batches:
                assert b'"name":"a"' in lines[0]
                break


class Leading:
    def __init__(self) -> None:
        self.now = True

    def __call__(self) -> bool:
        return self.now


async def test_who_is_deposed_while_credentials_are_fetched_does_not_write() -> None:
    leading, asked, given = Leading(), asyncio.Event(), asyncio.Event()

    async def headers() -> Mapping[str, str]:
        asked.set()
        await given.wait()
        return {}

    async with saying([[OK]]) as server:
        transport = Http1Transport(Endpoint(server.url, headers=headers))
        fenced = FencedTransport(transport, leading)
        write = asyncio.create_task(fenced.request("POST", "/", body=b"{}", timeout=30))
        await asked.wait()
        leading.now = False
        given.set()
        with pytest.raises(NotSent, match="may not write any more"):
            await write
        assert await get(transport) == b"ok"
        assert server.lines == ["GET /"]
        await transport.close()


async def test_who_is_deposed_while_it_waits_for_a_connection_does_not_write() -> None:
    leading, held = Leading(), asyncio.Event()
    async with saying([[held, OK], [OK]]) as server, client(server.url, pool_size=1) as transport:
        reading = asyncio.create_task(get(transport))
        await server.arrived(1)
        fenced = FencedTransport(transport, leading)
        write = asyncio.create_task(fenced.request("POST", "/", body=b"{}", timeout=30))
        await eventually(lambda: len(transport._pool._waiters) == 1)
        leading.now = False
        held.set()
        with pytest.raises(NotSent, match="may not write any more"):
            await write
        assert await reading == b"ok"
        assert await get(transport, "/next") == b"ok"
        assert server.lines == ["GET /", "GET /next"]


async def test_who_is_deposed_during_the_handshake_does_not_write() -> None:
    leading, dialing, connected = Leading(), asyncio.Event(), asyncio.Event()
    real = Dialer()

    async def dial(address: Address, protocol: asyncio.Protocol) -> None:
        dialing.set()
        await connected.wait()
        await real(address, protocol)

    async with saying([[OK]]) as server, client(server.url, dial=dial) as transport:
        fenced = FencedTransport(transport, leading)
        write = asyncio.create_task(fenced.request("DELETE", "/", timeout=30))
        await dialing.wait()
        leading.now = False
        connected.set()
        with pytest.raises(NotSent, match="may not write any more"):
            await write
        assert await get(transport) == b"ok"
        assert (server.lines, server.connections) == (["GET /"], 1)


async def test_a_write_on_a_warm_connection_is_asked_about_at_its_sending_too() -> None:
    answers = iter([True, False])
    async with saying([[OK]] * 2) as server, client(server.url) as transport:
        await get(transport)
        with pytest.raises(NotSent, match="may not write any more"):
            await FencedTransport(transport, lambda: next(answers)).request("PUT", "/", body=b"", timeout=30)
        assert await get(transport) == b"ok"
        assert server.lines == ["GET /", "GET /"]
