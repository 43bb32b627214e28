"""Names with several addresses, of which some are dead, die or change."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kube_client.connection_pool import ConnectionTimes
from kube_client.http1 import Http1Transport
from kube_client.testing.authority import Authority, server_tls
from kube_client.testing.scripted import eventually
from kube_client.transport import Endpoint, NotSent, OutcomeUnknown

from .raw_server import OK, End, client, get, post, saying

pytestmark = pytest.mark.real_time

Resolve = Callable[..., None]


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Says what the name is resolved to from now on, in this order."""
    addresses: list[str] = []

    async def getaddrinfo(_loop: object, host: str, port: int, **_: object) -> list[Any]:
        assert host == "api.example"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)

    def resolve(*given: str) -> None:
        addresses[:] = given

    return resolve


@contextmanager
def silent(host: str, port: int) -> Iterator[None]:
    """An address that answers no SYN: its queue of connections is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, port), backlog=0))
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield


async def test_an_address_that_does_not_answer_does_not_keep_us_from_the_next(resolve: Resolve) -> None:
    resolve("127.0.0.2", "127.0.0.1")
    async with saying([[OK], [OK]], [[b"HTTP/1.1 200 OK\r\n\r\n1\n", End.CLOSE]]) as server:
        with silent("127.0.0.2", server.port):
            async with client(f"http://api.example:{server.port}") as transport:
                assert await post(transport, timeout=60) == 200
                assert await get(transport) == b"ok"
                async with transport.stream("/watch", read_timeout=60) as batches:
                    assert [batch async for batch in batches] == [[b"1"]]


async def test_an_address_that_dies_later_is_left_for_another(resolve: Resolve) -> None:
    resolve("127.0.0.2", "127.0.0.1")
    async with saying([[OK], [OK]]) as second:
        async with saying([[OK], []], host="127.0.0.2", port=second.port) as first:
            transport = Http1Transport(Endpoint(f"http://api.example:{second.port}"))
            assert await post(transport) == 200
            with pytest.raises(OutcomeUnknown):
                await post(transport, timeout=0.1)
            assert (len(first.requests), len(second.requests)) == (2, 0)
        with silent("127.0.0.2", second.port):
            assert await post(transport) == 200
        await transport.close()


async def test_the_name_is_looked_up_for_each_connection(resolve: Resolve) -> None:
    async with saying([[OK, End.CLOSE]]) as one, saying([[OK]], host="127.0.0.2", port=one.port) as two:
        resolve("127.0.0.1")
        async with client(f"http://api.example:{one.port}") as transport:
            assert await post(transport) == 200
            resolve("127.0.0.2")
            assert await post(transport) == 200
        assert (len(one.requests), len(two.requests)) == (1, 1)


async def test_an_address_whose_handshake_fails_is_tried_last_from_then_on(resolve: Resolve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    resolve("127.0.0.2", "127.0.0.1")
    async with saying([[OK]] * 2, tls=server_tls(authority, "api.example")) as server:
        with socket.create_server(("127.0.0.2", server.port)):  # takes connections, and says nothing
            url = f"https://api.example:{server.port}"
            async with client(url, ssl_context=trusting, connect_timeout=0.5) as transport:
                with pytest.raises(NotSent, match="timed out"):
                    await post(transport, timeout=60)
                # Of the living one the handshake may take longer, on a machine that has much to do.
                transport._pool._connect_timeout = 60
                assert await post(transport, timeout=60) == 200


async def test_a_name_without_a_living_address_was_not_sent_anything(resolve: Resolve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    resolve("127.0.0.1", "127.0.0.2")
    async with client(f"http://api.example:{port}") as transport:
        with pytest.raises(NotSent):
            await post(transport)


async def given_up(how: str) -> int | None:
    """How much of a request arrives that was given up before the server read it; None if all of it was taken back."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.setblocking(False)
        transport = Http1Transport(Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        timeout = 0.3 if how == "times out" else 60
        write = loop.create_task(transport.request("POST", "/", body=b"x" * 200_000, timeout=timeout))
        peer, _ = await loop.sock_accept(listener)
        with peer:
            await eventually(lambda: transport._pool._open and next(iter(transport._pool._open)).busy)
            if how == "is cancelled":
                write.cancel()
            elif how == "is closed":
                await transport.close()
            (ended,) = await asyncio.gather(write, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError if how == "is cancelled" else OutcomeUnknown)
            await transport.close()
            got = 0
            try:
                while data := await loop.sock_recv(peer, 65536):
                    got += len(data)
            except ConnectionResetError:
                return None
            return got


@pytest.mark.parametrize("how", ["times out", "is cancelled", "is closed"])
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_request_that_is_given_up_does_not_arrive_later(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], how: str
) -> None:
    """The kernel would go on sending it, for longer than a lease lasts."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(given_up(how)) is None


async def failing_beside_good_ones(authority: Authority) -> None:
    """Handshakes that fail in every way, and requests on other connections all the while."""
    trusting = ssl.create_default_context(cafile=str(authority.file))
    async with saying([[OK]] * 500) as plain, saying([[OK]], tls=server_tls(authority, "other.example")) as other:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            mute_url = f"https://127.0.0.1:{mute.getsockname()[1]}"
            good = Http1Transport(Endpoint(plain.url), pool_size=4)
            bad = [
                Http1Transport(Endpoint(url, trusting), times=ConnectionTimes(connect_timeout=0.02))
                for url in (mute_url, other.url, plain.url.replace("http:", "https:"))
            ]

            async def fail(transport: Http1Transport) -> None:
                with pytest.raises(NotSent):
                    await post(transport)

            for _ in range(10):
                failing = [asyncio.create_task(fail(transport)) for transport in bad]
                assert set(await asyncio.gather(*(post(good) for _ in range(20)))) == {200}
                await asyncio.gather(*failing)
                assert set(await asyncio.gather(*(post(good) for _ in range(20)))) == {200}
            for transport in (good, *bad):
                await transport.close()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connections_that_fail_do_not_touch_others(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """A socket that is closed twice is by then another's."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(failing_beside_good_ones(Authority(tmp_path)))
