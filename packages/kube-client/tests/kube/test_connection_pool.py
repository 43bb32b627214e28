"""Which connection is used, who waits for one, and what is left when a request or the client ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kube_client.address import Address
from kube_client.http1 import Http1Transport
from kube_client.testing.loop import SimLoop
from kube_client.testing.scripted import eventually
from kube_client.transport import Endpoint, NotSent, OutcomeUnknown

from .raw_server import OK, End, Raw, client, get, post, saying, wired


@asynccontextmanager
async def held(*scripts: Any, **options: Any) -> AsyncIterator[tuple[Raw, Http1Transport, asyncio.Event]]:
    """A client with one connection, whose first request is answered once the event is set."""
    gate = asyncio.Event()
    first, *rest = scripts or ([[OK]] * 9,)
    async with (
        wired([[gate, *first[0]], *first[1:]], *rest) as server,
        client(server, **{"pool_size": 1, **options}) as transport,
    ):
        yield server, transport, gate


async def test_the_connection_used_last_is_used_first() -> None:
    async with held(pool_size=2) as (server, transport, gate):
        both = [asyncio.create_task(get(transport)) for _ in range(2)]
        await server.arrived(2)
        gate.set()
        await asyncio.gather(*both)
        for _ in range(4):
            await get(transport)
        assert len({number for number, _ in server.requests[2:]}) == 1


async def test_requests_wait_for_a_connection_in_the_order_in_which_they_came() -> None:
    async with wired([[OK]] * 50) as server, client(server, pool_size=2) as transport:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(get(transport, f"/{number}"))
                await asyncio.sleep(0)
        assert server.connections == 2
        came = [int(line.removeprefix("GET /")) for line in server.lines]
        # Two go at the same time, so a request may overtake its neighbour on the way, and no other.
        assert all(abs(number - place) <= 1 for place, number in enumerate(came))


async def test_a_newcomer_does_not_overtake_those_who_wait() -> None:
    async with held() as (server, transport, gate):
        first = asyncio.create_task(get(transport, "/first"))
        await server.arrived(1)
        waiting = asyncio.create_task(get(transport, "/waiting"))
        await asyncio.sleep(0)
        gate.set()
        await first
        await asyncio.gather(waiting, get(transport, "/newcomer"))
        assert server.lines == ["GET /first", "GET /waiting", "GET /newcomer"]


async def test_a_connection_that_was_opened_while_certificates_were_replaced_has_one_exchange() -> None:
    """It presents what was replaced."""

    async def dial(address: Address, protocol: asyncio.Protocol) -> None:
        if not server.connections:
            transport._pool.use(ssl.create_default_context())
        await server.dial(address, protocol)

    async with wired([[OK]] * 9) as server, client(server, dial=dial) as transport:
        for _ in range(4):
            assert await get(transport) == b"ok"
        assert server.connections == 2


async def test_an_idle_connection_is_given_up_when_certificates_were_replaced_and_only_then() -> None:
    """There is room for one, so what is given up has to leave its place."""
    async with wired([[OK]] * 9) as server, client(server, pool_size=1) as transport:
        assert await get(transport) == b"ok"
        tls = ssl.create_default_context()
        for _ in range(2):
            transport._pool.use(tls)
            for _ in range(2):
                assert await get(transport) == b"ok"
        assert server.connections == 2


async def test_a_connection_that_was_idle_for_too_long_is_not_used_even_if_its_timer_is_late() -> None:
    """The process was suspended: its timers have not run."""
    async with wired([[OK]] * 9) as server, client(server, keepalive=20, pool_size=1) as transport:
        await get(transport)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.jump(21)
        assert await get(transport) == b"ok"
        assert server.connections == 2


async def test_what_a_server_says_unasked_is_not_taken_for_the_next_answer() -> None:
    gate = asyncio.Event()
    unasked = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    async with wired([[OK, gate, unasked]], [[OK]]) as server, client(server) as transport:
        await get(transport)
        gate.set()
        await eventually(lambda: server.open == 0)
        assert await post(transport) == 200
        assert server.connections == 2


@asynccontextmanager
async def by_hand(**options: Any) -> AsyncIterator[tuple[Any, Callable[[], Awaitable[socket.socket]]]]:
    """A client, and how its server takes the next connection and reads a POST on it, in another thread."""

    def serve_one() -> socket.socket:
        peer, _ = listener.accept()
        data = b""
        while b"{}" not in data:
            data += peer.recv(4096)
        return peer

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        async with client(f"http://127.0.0.1:{listener.getsockname()[1]}", **options) as transport:
            yield transport, lambda: asyncio.to_thread(serve_one)


@pytest.mark.real_time
async def test_nor_if_it_lies_unread_when_the_next_request_is_made() -> None:
    async with by_hand() as (transport, serve_one):
        first = asyncio.create_task(post(transport))
        with await serve_one() as peer:
            peer.sendall(OK)
            assert await first == 200
            # The loop does not run between this and the next request.
            peer.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            second = asyncio.create_task(post(transport))
            with await serve_one() as other:
                other.sendall(OK)
                assert await second == 200


@pytest.mark.real_time
async def test_a_connection_that_is_closed_as_it_is_handed_on_is_replaced() -> None:
    async with by_hand(pool_size=1) as (transport, serve_one):
        first, waiting = (asyncio.create_task(post(transport)) for _ in range(2))
        with await serve_one() as peer:
            peer.sendall(OK)
        assert await first == 200
        with await serve_one() as other:
            other.sendall(OK)
            assert await waiting == 200


async def test_a_cancelled_request_takes_its_connection_with_it() -> None:
    async with held([[OK]], [[OK]]) as (server, transport, gate):
        task = asyncio.create_task(get(transport, "/first"))
        await server.arrived(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await get(transport, "/second") == b"ok"
        assert server.requests[1][0] == 1
        gate.set()
        await eventually(lambda: server.open == 1)


async def test_a_place_in_the_queue_that_is_given_up_goes_to_the_next() -> None:
    async with held() as (server, transport, gate):
        first, given_up, last = (
            asyncio.create_task(get(transport, f"/{name}")) for name in ("first", "given-up", "last")
        )
        await server.arrived(1)
        given_up.cancel()
        gate.set()
        assert await asyncio.gather(first, last) == [b"ok", b"ok"]
        assert server.lines == ["GET /first", "GET /last"]


@pytest.mark.parametrize("broken", [True, False])
async def test_one_cancelled_in_the_moment_of_being_served_passes_its_place_on(broken: bool) -> None:
    async with held([[End.CLOSE if broken else OK], *[[OK]] * 9], [[OK]] * 9) as (server, transport, gate):

        async def take_away() -> None:
            # Still in the step in which the connection, or its slot, was given to the next.
            with suppress(OutcomeUnknown):
                await post(transport, "/first")
            unlucky.cancel()

        first = asyncio.create_task(take_away())
        await server.arrived(1)
        unlucky = asyncio.create_task(get(transport, "/unlucky"))
        last = asyncio.create_task(get(transport, "/last"))
        await asyncio.sleep(0)
        gate.set()
        await first
        assert await last == b"ok"
        await asyncio.gather(unlucky, return_exceptions=True)
        assert unlucky.cancelled()
        assert server.lines == ["POST /first", "GET /last"]


async def test_a_connection_that_breaks_lets_the_next_in_the_queue_open_one() -> None:
    async with held([[End.RESET]], [[OK]] * 9) as (server, transport, gate):
        first = asyncio.create_task(post(transport))
        await server.arrived(1)
        others = [asyncio.create_task(get(transport)) for _ in range(3)]
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(OutcomeUnknown):
            await first
        assert await asyncio.gather(*others) == [b"ok"] * 3
        assert server.connections == 2


@pytest.mark.real_time
async def test_a_server_that_cannot_be_reached_costs_no_slot() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with client(f"http://127.0.0.1:{port}", pool_size=1) as transport:
        failures = await asyncio.gather(*(post(transport) for _ in range(4)), return_exceptions=True)
        assert {type(failure) for failure in failures} == {NotSent}
        async with saying([[OK]] * 9, port=port):
            assert await post(transport) == 200


@pytest.mark.real_time
@pytest.mark.parametrize("limit", ["connect_timeout", "timeout"])
async def test_a_handshake_that_takes_too_long_has_sent_nothing(limit: str) -> None:
    async with saying([[]]) as server:
        url = server.url.replace("http", "https")
        connecting = 0.1 if limit == "connect_timeout" else 10
        async with client(url, connect_timeout=connecting) as transport:
            with pytest.raises(NotSent, match="timed out"):
                await post(transport, timeout=0.1 if limit == "timeout" else 10)
            await eventually(lambda: server.open == 0)


@pytest.mark.real_time
async def test_a_cancelled_connection_attempt_leaves_nothing_open_and_costs_no_slot() -> None:
    async with saying([[]]) as server, client(server.url.replace("http", "https"), pool_size=1) as transport:
        for _ in range(2):
            task = asyncio.create_task(post(transport))
            await eventually(lambda: server.open == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: server.open == 0)


async def test_closing_ends_what_is_under_way_and_what_waits() -> None:
    async with wired([[]]) as server, client(server, pool_size=1) as transport:
        under_way, waiting = (asyncio.create_task(post(transport)) for _ in range(2))
        await server.arrived(1)
        await transport.close()
        outcomes = await asyncio.gather(under_way, waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, NotSent]
        await eventually(lambda: server.open == 0)
        assert server.lines == ["POST /"]
        with pytest.raises(NotSent, match="closed"):
            await post(transport)
        with pytest.raises(NotSent, match="closed"):
            async with transport.stream("/watch", read_timeout=60):
                pass
        await transport.close()
        pool = transport._pool
        assert (pool._sweeper, pool._alarm, len(pool._open), pool._slots) == (None, None, 0, 0)


@pytest.mark.real_time
async def test_closing_does_not_wait_for_a_handshake() -> None:
    async with saying([[]]) as server:
        transport = Http1Transport(Endpoint(server.url.replace("http", "https")))
        connecting = asyncio.create_task(post(transport, timeout=60))
        await eventually(lambda: server.open == 1)
        async with asyncio.timeout(5):
            await transport.close()
            with pytest.raises(NotSent, match="the client is closing"):
                await connecting
        await eventually(lambda: server.open == 0)
