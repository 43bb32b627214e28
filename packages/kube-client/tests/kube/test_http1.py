"""What is sent, and what a failure means, against servers that say exactly what a test scripts."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import uvloop

from kube_client.connection_pool import ConnectionTimes
from kube_client.http1 import Http1Transport
from kube_client.testing.authority import Authority, server_tls
from kube_client.testing.loop import PROCESS, SimLoop
from kube_client.testing.scripted import eventually
from kube_client.testing.wires import Network, Wire
from kube_client.transport import Endpoint, FencedTransport, NotSent, OutcomeUnknown

from .raw_server import OK, End, client, get, post, saying, wired

# -- what is written


async def test_a_request_is_written_as_http_has_it() -> None:
    async with wired([[OK]]) as server, client(server, user_agent="me/1") as transport:
        await transport.request(
            "PATCH", "/a?b=c%20d", body=b"[]", content_type="application/json-patch+json", timeout=5
        )
        assert server.requests[0][1] == (
            b"PATCH /a?b=c%20d HTTP/1.1\r\n"
            b"Host: api.example\r\n"
            b"Accept: application/json\r\nAccept-Encoding: identity\r\nUser-Agent: me/1\r\n"
            b"Content-Type: application/json-patch+json\r\nContent-Length: 2\r\n\r\n[]"
        )


@pytest.mark.parametrize(("method", "says"), [("POST", True), ("PUT", True), ("GET", False), ("DELETE", False)])
async def test_a_request_without_a_body_says_so_where_one_is_expected(method: str, says: bool) -> None:
    async with wired([[OK]]) as server, client(server) as transport:
        await transport.request(method, "/", timeout=5)
        assert (b"\r\nContent-Length: 0\r\n" in server.requests[0][1]) == says
        assert b"Content-Type" not in server.requests[0][1]


async def test_credentials_are_sent_as_they_are_at_the_time_even_if_their_mapping_is_changed_in_place() -> None:
    given = {"Authorization": "Bearer one"}

    async def headers() -> Mapping[str, str]:
        return given

    async with wired([[OK]] * 3) as server, client(server, headers=headers) as transport:
        for change in ({"Authorization": "Bearer two"}, {"Authorization": "", "user-agent": "given"}, {}):
            await get(transport)
            given |= change
            await asyncio.sleep(1.1)
        assert [b"Bearer one" in text for _, text in server.requests] == [True, False, False]
        assert [b"Bearer two" in text for _, text in server.requests] == [False, True, False]
        last = server.requests[-1][1].lower()
        assert b"user-agent: given\r\n" in last and last.count(b"user-agent") == 1, "it replaces the common one"


@pytest.mark.parametrize(
    ("method", "path", "content_type"),
    [
        ("GET", "/a b", "text/plain"),
        ("GET", "/\r\nEvil: 1", "text/plain"),
        ("GET", "/\u00e9", "text/plain"),
        ("GET", "/\x7f", "text/plain"),
        ("GET", "/\x1b", "text/plain"),
        ("GET", "relative", "text/plain"),
        ("GET", "", "text/plain"),
        ("get", "/", "text/plain"),
        ("GET / HTTP/1.1\r\n", "/", "text/plain"),
        ("POST", "/", "text/plain\r\nEvil: 1"),
    ],
)
async def test_what_would_break_the_head_is_refused(method: str, path: str, content_type: str) -> None:
    async with wired([[OK]]) as server, client(server) as transport:
        with pytest.raises(ValueError, match=r"expected a method of the API and|control character"):
            await transport.request(method, path, body=b"", content_type=content_type, timeout=5)
        assert server.connections == 0


@pytest.mark.parametrize("header", [("A", "b\r\nEvil: 1"), ("A b", "c"), ("A", "b\0")])
async def test_a_credential_that_would_break_the_head_is_refused(header: tuple[str, str]) -> None:
    async def headers() -> Mapping[str, str]:
        return dict([header])

    async with wired([[OK]]) as server, client(server, headers=headers) as transport:
        with pytest.raises(NotSent, match=r"control character|is not the name of a header"):
            await get(transport)
        assert server.connections == 0


@pytest.mark.parametrize(
    "url", ["ftp://host", "host:80", "http://", "http://u:p@host", "http://host:99999", "http://h/?q", "http://h/a b"]
)
async def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        Http1Transport(Endpoint(url))


# -- answers


async def test_the_answer_to_head_ends_with_its_head() -> None:
    async with wired([[OK[:-2]], [OK]]) as server, client(server) as transport:
        answer = await transport.request("HEAD", "/", timeout=5)
        assert (answer.status, answer.body) == (200, b"")
        assert await get(transport) == b"ok"
        assert server.connections == 1


@pytest.mark.real_time
async def test_large_answers_and_requests_pass_whole() -> None:
    body = bytes(range(256)) * 40_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with saying([[head + body], [OK]]) as server, client(server) as transport:
        assert await get(transport, timeout=60) == body
        await transport.request("POST", "/", body=body, timeout=60)
        assert server.requests[1][1].endswith(b"\r\n\r\n" + body)


# -- what a failure means


async def test_a_read_is_repeated_once_and_on_a_fresh_connection() -> None:
    gate = asyncio.Event()
    scripts = [[[gate, OK], [End.CLOSE]], [[gate, OK], [End.CLOSE]], [[End.CLOSE]], [[OK]]]
    async with wired(*scripts) as server, client(server) as transport:
        both = asyncio.gather(get(transport), get(transport))
        await server.arrived(2)
        gate.set()
        await both
        with pytest.raises(OutcomeUnknown):
            await get(transport, "/again")
        again = [number for number, text in server.requests if b"/again" in text]
        assert len(again) == 2
        assert again[1] == 2


@pytest.mark.parametrize("end", [End.CLOSE, End.RESET])
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
async def test_a_write_is_never_repeated_on_whatever_connection_it_broke(end: End, method: str) -> None:
    async with wired([[OK], [end]], [[OK]]) as server, client(server) as transport:
        await get(transport)
        with pytest.raises(OutcomeUnknown):
            await transport.request(method, "/", body=b"{}", timeout=5)
        assert server.lines == ["GET /", f"{method} /"]


async def test_a_read_whose_repetition_finds_no_server_has_not_been_sent() -> None:
    gate = asyncio.Event()
    async with wired([[OK], [gate, End.CLOSE]]) as server, client(server, pool_size=1) as transport:
        await get(transport)
        last = asyncio.create_task(get(transport, "/last"))
        await server.arrived(2)
        server.stop_listening()
        gate.set()
        with pytest.raises(NotSent, match="no connection to"):
            await last
        with pytest.raises(NotSent, match="no connection to"):
            await post(transport)


async def test_each_request_has_a_deadline_of_its_own() -> None:
    async with wired([[OK], []]) as server, client(server) as transport:

        async def lasted(seconds: float) -> float:
            began = asyncio.get_running_loop().time()
            said = rf"^POST /: no answer came in time.* \(timeout {seconds} s\)$"
            with pytest.raises(OutcomeUnknown, match=said):
                await get(transport)
                await post(transport, timeout=seconds)
            return round(asyncio.get_running_loop().time() - began)

        for wave in ([50, 10, 30], [5], [20, 15]):
            assert await asyncio.gather(*map(lasted, wave)) == wave
            assert server.open == 0, "and a connection on which nothing came is not used again"


async def test_a_deadline_that_passes_after_its_exchange_ends_no_connection() -> None:
    async with wired([[OK]] * 9) as server, client(server, keepalive=60) as transport:
        assert await get(transport, timeout=5) == b"ok"
        await asyncio.sleep(10)
        assert transport._pool.alarm_at == math.inf
        assert await get(transport) == b"ok"
        assert server.connections == 1


@pytest.mark.real_time
async def test_a_name_that_cannot_be_one_was_not_sent_anything() -> None:
    async with client(f"http://{'x' * 64}.invalid") as transport:
        with pytest.raises(NotSent):
            await post(transport)


async def test_credentials_that_cannot_be_had_send_nothing_and_are_observed() -> None:
    async def headers() -> Mapping[str, str]:
        raise NotSent("no token")

    seen: list[tuple[str, int]] = []
    options: Any = {"headers": headers, "observe": lambda *what: seen.append(what)}
    async with wired([[OK]]) as server, client(server, **options) as transport:
        with pytest.raises(NotSent, match="no token"):
            await post(transport)
        assert (seen, server.connections) == ([("POST", 0)], 0)


# -- what it does after seconds, minutes and a long stop


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_watch_on_which_nothing_arrives_ends_after_its_silence() -> None:
    network = Network(lambda wire, _head: wire.deliver(HEAD + b"2\r\n1\n\r\n"))
    began = now()
    async with client(network) as transport:
        with pytest.raises(OutcomeUnknown, match="no answer came in time"):
            async with transport.stream("/watch", read_timeout=330) as batches:
                async for batch in batches:
                    assert batch == [b"1"]
        assert now() - began == pytest.approx(330, abs=0.1)


async def test_a_watch_that_keeps_talking_outlives_its_silence_and_the_time_for_its_head() -> None:
    def talk(wire: Wire, _head: bytes) -> None:
        wire.deliver(HEAD)
        for number in range(13):
            chunk = b"2\r\n1\n\r\n" if number < 12 else b"0\r\n\r\n"
            asyncio.get_running_loop().call_later(50 * (number + 1), wire.deliver, chunk)

    async with (
        client(Network(talk), head_timeout=10) as transport,
        transport.stream("/watch", read_timeout=60) as batches,
    ):
        assert [batch async for batch in batches] == [[b"1"]] * 12


async def test_connections_in_use_are_replaced_by_and_by_and_idle_ones_are_closed() -> None:
    network = Network()
    async with client(network) as transport:
        for _ in range(3600):
            assert await post(transport) == 200
            await asyncio.sleep(1)
        age = ConnectionTimes().max_age
        assert 3600 / age <= network.opened <= 3600 / (0.7 * age) + 1
        await asyncio.sleep(31)
        assert network.open == 0


@pytest.mark.parametrize("amid", ["credentials", "dialing"])
async def test_a_process_that_was_stopped_amid_a_write_does_not_send_it_when_it_goes_on(amid: str) -> None:
    """SIGSTOP while credentials are fetched or a connection is opened, for longer than the right to write lasts."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)

    async def headers() -> Mapping[str, str]:
        await asyncio.sleep(1 if amid == "credentials" else 0)
        return {}

    network, until = Network(), now() + 10

    async def write() -> None:
        PROCESS.set("leader")
        fenced = FencedTransport(transport, lambda: now() < until)
        with pytest.raises(NotSent, match="may no longer write"):
            await fenced.request("POST", "/bind", body=b"{}", timeout=60)

    async with client(network, headers=headers, connect_timeout=60) as transport:
        writing = asyncio.create_task(write())
        await asyncio.sleep(0.005)
        loop.freeze("leader", 20)
        await writing
        assert now() > until
        assert network.written == []


async def test_credentials_that_never_come_end_a_request_at_its_deadline_and_not_later() -> None:
    async def never() -> Mapping[str, str]:
        await asyncio.Event().wait()
        return {}

    network, began = Network(), now()
    async with client(network, headers=never, connect_timeout=7) as transport:
        with pytest.raises(NotSent, match="no credentials were available in time"):
            await post(transport)
        assert now() - began == pytest.approx(5)
        with pytest.raises(NotSent, match="no credentials were available in time"):
            async with transport.stream("/", read_timeout=60):
                pass
        assert now() - began == pytest.approx(5 + 7) and network.written == []


async def test_the_end_waits_a_second_for_the_loop_to_tell_of_an_aborted_connection() -> None:
    """It may never tell, and a process that is to end would stay."""
    network = Network()
    async with client(network) as transport:
        assert await get(transport) == b"ok"
        network.silent = True
        began = now()
    assert 0.5 < now() - began < 5


# -- TLS and addresses


async def mixed(authority: Authority, tls: bool) -> None:
    """A bit of everything, closed with one request under way, one waiting and one connecting."""
    context = server_tls(authority) if tls else None
    async with saying([[OK]] * 500 + [[b"HTTP/1.1 200"]], tls=context) as server:
        endpoint = Endpoint(server.url, ssl_context=ssl.create_default_context(cafile=authority.file) if tls else None)
        transport = Http1Transport(endpoint, pool_size=4)
        assert set(await asyncio.gather(*(post(transport) for _ in range(100)))) == {200}
        assert set(await asyncio.gather(*(get(transport) for _ in range(100)))) == {b"ok"}
        assert server.connections == 4
        cancelled = asyncio.create_task(get(transport))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert await get(transport) == b"ok"
        before = asyncio.all_tasks()
        await transport.close()
        await eventually(lambda: server.open == 0)
        assert asyncio.all_tasks() <= before


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_works_on_either_event_loop(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tls: bool, authority: Authority
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(mixed(authority, tls))


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_kernel_watches_over_connections_whose_peer_vanished(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def options() -> list[int]:
        async with saying([[OK]]) as server, client(server) as transport:
            await get(transport)
            connection = transport._pool.take()
            assert connection is not None
            assert connection._transport is not None
            sock = connection._transport.get_extra_info("socket")
            transport._pool.release(connection)
            return [
                sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            ]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(options()) == [1, 1, 30]


@pytest.mark.real_time
async def test_an_ipv6_address_is_reached_and_named_in_brackets() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    async with saying([[OK]], host="::1") as server, client(server) as transport:
        assert await get(transport) == b"ok"
        assert b"\r\nHost: [::1]:%d\r\n" % server.port in server.requests[0][1]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://api.example", "api.example"),
        ("http://api.example:80/", "api.example"),
        ("http://api.example:8080", "api.example:8080"),
        ("http://[fe80::1%25eth0]:8080", "[fe80::1]:8080"),
        ("http://b\u00fccher.example", "xn--bcher-kva.example"),
    ],
)
async def test_the_server_is_named_as_it_knows_itself(url: str, host: str) -> None:
    async with client(url) as transport:
        assert transport._common["Host"] == host
