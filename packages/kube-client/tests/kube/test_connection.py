"""The parsing of answers, byte by byte and without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kube_client.connection import Connection, ConnectionBroken, ResponseLimits
from kube_client.testing.wires import OK, Network, Wire
from kube_client.transport import Response


def opened(limits: ResponseLimits | None = None) -> tuple[Connection, Wire]:
    connection = Connection(limits or ResponseLimits(), opened=lambda _: None, lost=lambda _: None)
    wire = Wire(Network(lambda _wire, _request: None), connection)
    connection.connection_made(wire)
    return connection, wire


def sent(connection: Connection, message: bytes, *, head_only: bool = False) -> asyncio.Future[Response]:
    answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    connection.send(message, 0.0, answer, head_only=head_only)
    return answer


async def exchanged(
    pieces: Iterable[bytes], *, limits: ResponseLimits | None = None, head_only: bool = False, ends: bool = False
) -> tuple[Response | ConnectionBroken, Connection]:
    """What one request on a connection leads to if these pieces arrive; `ends`: and then the peer closes."""
    connection, wire = opened(limits)
    answer = sent(connection, b"a request", head_only=head_only)
    assert [text for _, text in wire.network.written] == [b"a request"]
    for piece in pieces:
        if not wire.is_closing():
            connection.data_received(piece)
    if ends:
        connection.connection_lost(None)
    if not answer.done():
        connection.fail("no answer yet")
    outcome = (await asyncio.gather(answer, return_exceptions=True))[0]
    await asyncio.sleep(0)
    assert isinstance(outcome, Response | ConnectionBroken)
    return outcome, connection


def cut(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


@pytest.mark.parametrize("step", [1_000_000, 1, 2])
@pytest.mark.parametrize(
    ("framing", "body", "length"),
    [
        (b"Transfer-Encoding: chunked", b"1;name=value\r\no\r\n1\r\nk\r\n0\r\nChecksum: 1\r\n\r\n", None),
        (b"Content-Length: 2", b"ok", "2"),
    ],
)
async def test_an_answer_is_the_same_however_it_is_cut(
    framing: bytes, body: bytes, length: str | None, step: int
) -> None:
    data = b"HTTP/1.1 100 Continue\r\nSecret: 1\r\n\r\nHTTP/1.1 201 Created\r\nKind:  of \t\r\n"
    outcome, connection = await exchanged(cut(data + framing + b"\r\n\r\n" + body, step))
    assert isinstance(outcome, Response)
    assert (outcome.status, outcome.body) == (201, b"ok")
    assert outcome.headers["KIND"] == "of"
    assert outcome.headers.get("Content-Length") == length
    assert "Secret" not in outcome.headers and "Checksum" not in outcome.headers
    assert connection.reusable


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 2\r\n\r\nok", b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]
)
async def test_an_answer_that_ends_early_is_not_delivered(framing: bytes) -> None:
    whole = b"HTTP/1.1 200 OK\r\n" + framing
    for length in range(len(whole)):
        outcome, connection = await exchanged([whole[:length]], ends=True)
        assert isinstance(outcome, ConnectionBroken) and not connection.reusable


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
    ],
)
async def test_the_answer_to_head_has_no_body_whatever_it_announces(head: bytes) -> None:
    connection, _ = opened()
    for _ in range(2):
        answer = sent(connection, b"HEAD / HTTP/1.1\r\n\r\n", head_only=True)
        connection.data_received(head)
        assert (await answer).body == b""
        assert connection.reusable
    answer = sent(connection, b"GET / HTTP/1.1\r\n\r\n")
    connection.data_received(OK)
    assert (await answer).body == b"ok"


async def test_a_body_after_the_answer_to_head_ends_the_connection() -> None:
    outcome, connection = await exchanged([OK], head_only=True)
    assert isinstance(outcome, Response)
    assert not connection.reusable


@pytest.mark.parametrize(
    ("said", "body", "reusable"),
    [
        (b"204 X\r\n\r\n", b"", True),
        (b"304 X\r\nContent-Length: 5\r\n\r\n", b"", True),
        (b"200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (b"200 OK\r\n\r\nuntil the end", b"until the end", False),
        # An offer to upgrade is no upgrade.
        (b"200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
    ],
)
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_an_answer_says_where_it_ends_and_whether_its_connection_does(
    version: bytes, said: bytes, body: bytes, reusable: bool
) -> None:
    ends = body.startswith(b"until")
    outcome, connection = await exchanged([b"HTTP/%b %b" % (version, said)], ends=ends)
    assert isinstance(outcome, Response)
    assert outcome.body == body
    assert connection.reusable is (reusable and version == b"1.1")


@pytest.mark.parametrize(
    "bad",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 020 X\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
    ],
)
async def test_what_is_not_an_answer_breaks_the_connection(bad: bytes) -> None:
    outcome, connection = await exchanged([bad])
    assert isinstance(outcome, ConnectionBroken)
    assert str(outcome) != "no answer yet"
    assert not outcome.unanswered
    assert not connection.reusable


def _chunks(size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * size


@pytest.mark.parametrize("step", [1_000_000, 100, 1])
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 300 + b"\r\nContent-Length: 0\r\n\r\n", "head"),
        (b"HTTP/1.1 200 OK\r\n" + b"A:\r\n" * 60 + b"Content-Length: 0\r\n\r\n", "head"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"x" * 101, "body"),
        (_chunks(101) + b"0\r\n\r\n", "body"),
    ],
)
async def test_an_answer_beyond_its_limits_is_refused_however_it_is_cut(data: bytes, what: str, step: int) -> None:
    outcome, connection = await exchanged(cut(data, step), limits=ResponseLimits(head=200, body=100))
    assert isinstance(outcome, ConnectionBroken)
    assert f"the answer's {what} is larger than" in str(outcome)
    assert not connection.reusable


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nA: ",
        _chunks(1) + b"2;",
        _chunks(1) + b"0\r\nA: ",
    ],
)
async def test_what_never_ends_is_refused_before_it_fills_the_memory(start: bytes) -> None:
    more = start if start.startswith(b"HTTP/1.1 100") else b"A" * 50
    outcome, _ = await exchanged([start, *[more] * 20], limits=ResponseLimits(head=200, body=100))
    assert isinstance(outcome, ConnectionBroken)
    assert "larger than 200 bytes" in str(outcome)


async def test_an_answer_at_its_limits_passes() -> None:
    fields = b"A: " + b"x" * 172 + b"\r\nContent-Length: 100\r\n"
    assert len(fields) == 198
    data = b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n" + b"x" * 100
    outcome, connection = await exchanged([data], limits=ResponseLimits(head=200, body=100))
    assert isinstance(outcome, Response)
    assert connection.reusable


async def test_many_small_chunks_are_no_large_head() -> None:
    data = _chunks(100) + b"0\r\n\r\n"
    outcome, _ = await exchanged(cut(data, 7), limits=ResponseLimits(head=80, body=100))
    assert isinstance(outcome, Response)


@pytest.mark.parametrize("ask", [lambda h: h["retry-after"], lambda h: h.get("RETRY-AFTER")])
async def test_of_several_headers_with_one_name_the_first_counts(ask: Callable[[Any], str]) -> None:
    head = b"HTTP/1.1 200 OK\r\nRetry-After: 1\r\nretry-after: 2\r\nContent-Length: 0\r\n\r\n"
    outcome, _ = await exchanged([head])
    assert isinstance(outcome, Response)
    assert ask(outcome.headers) == "1"
    assert sorted(outcome.headers) == ["content-length", "retry-after"]
    assert len(outcome.headers) == 2
    assert outcome.headers.get("absent") is None
