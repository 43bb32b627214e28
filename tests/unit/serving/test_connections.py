"""Limits of connections and bodies: who is closed for whom, and what slow and large requests get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from socket import create_connection, socket
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent_scheduler.serving import connections, pages
from agent_scheduler.serving.connections import BODY_BYTES, BODY_SECONDS, Bodies, Connections, ServedConnection
from agent_scheduler.serving.sources import Sources
from apimachinery.hosts import host_problem, origin_problem
from tests.support.http_servers import http_server


class Wire(asyncio.Transport):
    """A transport that notes what becomes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.unread = 0
        self.end = ""

    def write(self, data: Any) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.end = "aborted"

    def close(self) -> None:
        self.end = "closed"


class Port:
    """A port of four connections, with a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.held = Connections(asyncio.Protocol, limit=4, clock=lambda: self.now)

    def open(self, address: str, *data: bytes, state: str = "") -> tuple[Wire, ServedConnection]:
        connection, wire = self.held.admit(address), Wire()
        connection.connection_made(wire)
        for each in data:
            connection.data_received(each)
        if state in ("busy", "idle"):
            connection.begun()
        if state == "idle":
            connection.answered()
        self.now += 1
        return wire, connection


HEAD = b"GET / HTTP/1.1\r\n"
WHOLE = HEAD + b"Host: x\r\n\r\n"


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        pytest.param("a:idle a:idle a:idle a:idle", 0, id="the oldest"),
        pytest.param("a:idle a:head a:idle a:head", 1, id="a part of a request first"),
        pytest.param("a:busy a:busy a:busy a:idle", 3, id="one that is being answered last"),
        pytest.param("a:busy a:busy a:busy a:busy", 0, id="all are being answered"),
        pytest.param("b:head a:busy a:idle b:head", 0, id="equal shares"),
        pytest.param("b:head a:busy a:busy a:idle", 3, id="of the address with the most"),
        pytest.param("b:head a:busy a:busy c:head", 1, id="even if it is being answered"),
    ],
)
def test_a_new_connection_replaces_one_of_the_address_with_the_most(opened: str, closed: int) -> None:
    port = Port()
    wires = []
    for each in opened.split():
        address, _, state = each.partition(":")
        wires.append(port.open(address, HEAD if state == "head" else WHOLE, state=state)[0])
    port.open("new")
    assert [index for index, wire in enumerate(wires) if wire.end] == [closed]


@pytest.mark.parametrize(
    ("data", "seconds", "end"),
    [
        pytest.param([], 3600, "", id="opened ahead of need"),
        pytest.param([HEAD], 9, "", id="in time"),
        pytest.param([HEAD], 10, "closed", id="slow headers"),
        pytest.param([HEAD, b"a: b\r\n"], 10, "closed", id="headers line by line"),
        pytest.param([b"\r\n\r\n", HEAD], 10, "closed", id="behind empty lines"),
        pytest.param([WHOLE], 10, "closed", id="complete, but not for the parser"),
    ],
)
def test_headers_must_arrive_in_time(data: list[bytes], seconds: int, end: str) -> None:
    port = Port()
    wire, connection = port.open("a")
    port.now = 0
    for each in data:
        connection.data_received(each)
    port.now = seconds
    port.held.check()
    assert (wire.end, wire.sent) == (end, b"")


def test_headers_beyond_the_limit_are_refused_and_not_passed_on() -> None:
    passed: list[bytes] = []

    class Inner(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            passed.append(data)

    port = Port()
    port.held.protocol = Inner
    port.open("a", HEAD + b"\r", b"\n", bytes(2 * connections.HEAD_BYTES))
    assert passed.pop() == bytes(2 * connections.HEAD_BYTES)
    passed.clear()
    wire, _ = port.open("a", HEAD, *[b"a: " + b"x" * 8000 + b"\r\n"] * 9)
    assert wire.sent.startswith(b"HTTP/1.1 431 ")
    assert wire.end == "closed"
    assert sum(map(len, passed)) <= connections.HEAD_BYTES


def test_a_client_that_does_not_read_its_response_is_closed() -> None:
    port = Port()
    wire, _ = port.open("a", WHOLE, state="idle")
    port.now = 3600
    port.held.check()
    assert not wire.end
    wire.unread = 1
    port.held.check()
    assert wire.end == "aborted"


# ---- bodies

MIB = 1024 * 1024


async def read(bodies: Bodies, address: str, size: int, seconds: float, log: list[str], name: str) -> None:
    try:
        async with bodies.reading(address, size):
            log.append(f"{name} begins")
            await asyncio.sleep(seconds)
        log.append(f"{name} ends")
    except TimeoutError:
        log.append(f"{name} given up")


async def test_bodies_of_one_address_wait_for_each_other() -> None:
    bodies, log = Bodies(10), list[str]()
    await asyncio.gather(*(read(bodies, "a", 6, 1.0, log, name) for name in "123"))
    assert log == ["1 begins", "1 ends", "2 begins", "2 ends", "3 begins", "3 ends"]


async def test_unfinished_bodies_are_given_up_for_another_address_and_in_time() -> None:
    bodies, log = Bodies(), list[str]()
    size = 8 * MIB
    hostile = [asyncio.create_task(read(bodies, "h", size, 3600.0, log, f"h{n}")) for n in range(60)]
    await asyncio.sleep(1.0)
    assert log == [f"h{n} begins" for n in range(BODY_BYTES // size)]
    log.clear()
    await read(bodies, "a", 2 * MIB, 0.1, log, "a")
    assert log[:3] == ["h0 given up", "a begins", "a ends"]
    await asyncio.sleep(BODY_SECONDS * 60)
    assert all(task.done() for task in hostile)
    assert not bodies._read
    assert not bodies._waiting


async def test_a_body_is_not_given_up_for_an_address_that_would_have_more() -> None:
    bodies, log = Bodies(10), list[str]()
    await asyncio.gather(read(bodies, "a", 6, 1.0, log, "a"), read(bodies, "b", 6, 1.0, log, "b"))
    assert log == ["a begins", "a ends", "b begins", "b ends"]


# ---- over sockets


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Eight connections, and the clients' ends, which are closed at the end."""
    monkeypatch.setattr(pages, "most_connections", lambda: 8)
    with ExitStack() as stack:
        yield stack


def sources() -> Sources:
    return Sources(metrics=lambda: (b"m 1\n", "text/plain"), configuration=dict, reviews={"/review": len_of})


def len_of(body: bytes) -> bytes:
    return b"%d" % len(body)


async def asked(port: int, text: str, *, source: str = "127.0.0.1") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(text.replace("\n", "\r\n").encode())
    async with asyncio.timeout(20):
        answer = (await reader.read()).decode()
    writer.close()
    return answer


def begun(port: int, data: bytes) -> socket:
    opened = create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
    opened.sendall(data)
    return opened


REVIEW = "POST /review HTTP/1.1\nHost: x\nContent-Type: application/json\n"
LIVEZ = "GET /livez HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n"


@pytest.mark.real_time
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 100,
        b"POST /review HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n{",
    ],
    ids=["nothing", "part of the headers", "part of a body"],
)
async def test_health_is_answered_while_others_hold_more_connections_than_the_limit(
    few: ExitStack, data: bytes
) -> None:
    server = http_server(sources())
    port = await server.start()
    for _ in range(30):
        few.enter_context(begun(port, data))
    assert (await asked(port, LIVEZ)).startswith("HTTP/1.1 200 ")
    assert (await asked(port, f"{REVIEW}Connection: close\nContent-Length: 2\n\n{{}}")).endswith("\r\n\r\n2")
    await server.stop()


@pytest.mark.real_time
async def test_malformed_requests_cost_one_line_without_a_traceback() -> None:
    server = http_server(sources())
    port = await server.start()
    broken = ["\x16\x03\x01\n\n", "GET / HTTP/9.9\n\n", "GET /\x1b[2J HTTP/1.1\nHost: x\n\n", "GET / HTTP/1.1\na b\n\n"]
    broken.append("POST /review HTTP/1.1\nHost: x\nContent-Type: application/json\nTransfer-Encoding: chunked\n\nzz\n")
    with capture_logs() as lines:
        for text in broken * 6:
            await asked(port, text)
    assert [line["event"] for line in lines] == ["a request cannot be read"]
    assert "exc_info" not in lines[0]
    await server.stop()


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        ("GET /metrics", "Host: 127.0.0.1:1", 200),
        ("GET /metrics", "Host: evil.example", 421),
        ("GET /livez", "Host: evil.example:80", 421),
        ("GET /configz", "Host: localhost\nOrigin: http://evil.example", 403),
        ("GET /configz", "Host: localhost\nOrigin: null", 403),
        ("GET /configz", "Host: localhost:80\nOrigin: http://localhost", 200),
        # The API server asks by a name of its own.
        ("POST /review", "Host: webhook.agents.svc:443\nContent-Type: application/json\nContent-Length: 2", 200),
    ],
)
async def test_pages_of_other_sites_are_refused(request_line: str, headers: str, status: int) -> None:
    server = http_server(sources())
    port = await server.start()
    body = "{}" if "Length" in headers else ""
    answer = await asked(port, f"{request_line} HTTP/1.1\n{headers}\nConnection: close\n\n{body}")
    assert answer.startswith(f"HTTP/1.1 {status} ")
    await server.stop()


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        *((host, True) for host in ("", "localhost", "LOCALHOST.:1", "a.localhost:80", "10.0.0.5:1", "[::1]:2", "::1")),
        *((host, False) for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil:1", "0x7f.1", "a:b:c")),
    ],
)
def test_names_of_loopback_addresses(host: str, fits: bool) -> None:
    assert (host_problem(host) == "") is fits


@pytest.mark.parametrize(
    ("origin", "host", "fits"),
    [
        ("", "a", True),
        ("https://a:8", "A:8", True),
        ("https://a", "a:443", True),
        ("https://a", "a:80", False),
        ("http://b", "a", False),
        ("null", "null", False),
    ],
)
def test_origins_of_the_server_itself(origin: str, host: str, fits: bool) -> None:
    assert (origin_problem(origin, host) == "") is fits
