"""The demo's HTTP client, against servers on real ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_scheduler.apiserver.assembly import kubeconfig, write_kubeconfig
from agent_scheduler.apiserver.builtin import BUILTIN
from agent_scheduler.apiserver.certificates import make_certificates, server_context
from agent_scheduler.apiserver.handlers import Api
from agent_scheduler.apiserver.server import Server
from agent_scheduler.apiserver.store import Store
from agent_scheduler.demo.client import Client, ClientError, Endpoint

from .conftest import Embedded

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted(handler: Handler) -> AsyncIterator[Endpoint]:
    """A server that does with every connection what `handler` says."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Endpoint(f"http://127.0.0.1:{port}")
    finally:
        server.close()


async def test_many_requests_share_few_connections(embedded: Embedded) -> None:
    answers = await asyncio.gather(*(embedded.client.request("GET", "/api/v1/nodes") for _ in range(50)))
    assert [answer.status for answer in answers] == [200] * 50


async def test_a_connection_that_was_closed_while_idle_is_not_used_again() -> None:
    seen = 0

    async def one_answer_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()

    async with scripted(one_answer_each) as endpoint:
        client = Client(endpoint)
        assert [(await client.request("GET", "/")).body for _ in range(3)] == [b"ok"] * 3
        assert seen == 3
        await client.close()


async def test_an_answer_cut_off_is_an_error_and_no_answer() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await writer.drain()

    async with scripted(half) as endpoint:
        with pytest.raises(ClientError, match="the connection was lost"):
            await Client(endpoint).request("GET", "/")


async def test_an_answer_that_does_not_come_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with scripted(silent) as endpoint:
        with pytest.raises(ClientError, match=r"GET /x: no answer within 0\.05 s"):
            await Client(endpoint, patience=0.05).request("GET", "/x")


async def test_nobody_listening_is_an_error_that_names_the_address() -> None:
    with pytest.raises(ClientError, match=r"no connection to 127\.0\.0\.1:1"):
        await Client(Endpoint("http://127.0.0.1:1")).request("GET", "/")


async def test_lines_of_a_stream_are_whole_however_they_are_cut() -> None:
    async def in_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"on", b"e\ntwo\nth", b"r", b"ee\n", b"\nfour"):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0.005)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with scripted(in_pieces) as endpoint, Client(endpoint).stream("/") as batches:
        lines = [line async for batch in batches for line in batch]
    # What was not ended by a newline was not whole.
    assert lines == [b"one", b"two", b"three"]


async def test_a_refused_stream_says_why(embedded: Embedded) -> None:
    with pytest.raises(ClientError, match="404"):
        async with embedded.client.stream("/api/v1/nothing?watch=1"):
            pass


async def test_a_kubeconfig_of_the_cluster_leads_to_it_through_tls_and_token(tmp_path: Path) -> None:
    certificates = make_certificates(("127.0.0.1",), now=time.time())
    api = Api(Store(clock=time.time, uid=lambda: "uid"), BUILTIN, token="secret")
    async with Server(api, tls=server_context(certificates)) as server:
        file = tmp_path / "config"
        write_kubeconfig(file, kubeconfig(server.url, authority=certificates.authority, token="secret"))
        assert file.stat().st_mode & 0o777 == 0o600
        endpoint = Endpoint.from_kubeconfig(file)
        client = Client(endpoint)
        assert (await client.request("GET", "/api/v1/nodes")).status == 200
        await client.close()
        stranger = Client(endpoint._replace(token="guess"))
        assert (await stranger.request("GET", "/api/v1/nodes")).status == 401
        await stranger.close()
        with pytest.raises(ClientError, match="certificate verify failed"):
            await Client(endpoint._replace(ca="")).request("GET", "/api/v1/nodes")


def test_a_file_that_is_no_kubeconfig_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("contexts: []\n")
    with pytest.raises(ValueError, match="config: not a kubeconfig"):
        Endpoint.from_kubeconfig(file)
