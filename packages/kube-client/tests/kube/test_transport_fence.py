"""A process that does not lead writes nothing, whatever it is in the middle of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kube_client.testing.scripted import Answer, Stream, answering, eventually, in_order
from kube_client.transport import FencedTransport, NotSent

from .raw_server import OK, client, get, wired


@pytest.mark.promise("S9")
async def test_writes_pass_while_they_are_allowed_and_reads_always_do() -> None:
    leading = True
    api, transport = answering(in_order(Answer(201, {}), Answer(200, {}), Stream([b'{"name":"a"}\n'])))
    fenced = FencedTransport(transport, lambda: leading)
    assert (await fenced.request("POST", "/pods", body=b"{}", timeout=5)).status == 201
    leading = False
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(NotSent, match="does not lead"):
            await fenced.request(method, "/pods/a", body=b"{}", timeout=5)
    assert (await fenced.request("GET", "/pods/a", timeout=5)).status == 200
    async with fenced.stream("/pods?watch=1", read_timeout=5) as batches:
        assert [lines async for lines in batches] == [[b'{"name":"a"}']]
    assert [(request.method, request.path) for request in api.requests] == [
        ("POST", "/pods"),
        ("GET", "/pods/a"),
        ("GET", "/pods"),
    ]


@pytest.mark.parametrize("waits_for", ["credentials", "a connection of the pool", "the handshake", "nothing"])
@pytest.mark.promise("S9")
async def test_who_is_deposed_before_the_first_byte_does_not_write(waits_for: str) -> None:
    leading, held, waiting = True, asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await held.wait()

    async def headers() -> Mapping[str, str]:
        if waits_for == "credentials":
            await wait()
        return {}

    async def dial(*where: Any) -> None:
        if waits_for == "the handshake":
            await wait()
        await server.dial(*where)

    def leads() -> bool:
        nonlocal leading
        before, leading = leading, leading and waits_for != "nothing"
        return before

    is_warm = waits_for in ("a connection of the pool", "nothing")
    async with (
        wired([[OK], [held, OK], [OK]] if is_warm else [[OK]] * 3) as server,
        client(server, pool_size=1, headers=headers, dial=dial) as transport,
    ):
        if is_warm:
            await get(transport)
        if waits_for == "a connection of the pool":
            reading = asyncio.create_task(get(transport, timeout=60))
            await server.arrived(2)
        fenced = FencedTransport(transport, leads)
        write = asyncio.create_task(fenced.request("DELETE", "/", timeout=30))
        if waits_for == "a connection of the pool":
            await eventually(lambda: len(transport._pool._waiters) == 1)
        elif waits_for != "nothing":
            await waiting.wait()
            leading = False
        leading = leading and waits_for == "nothing"
        held.set()
        with pytest.raises(NotSent, match="may no longer write"):
            await write
        if waits_for == "a connection of the pool":
            await reading
        assert await get(transport) == b"ok"
        assert set(server.lines) == {"GET /"}
        assert server.connections == 1
