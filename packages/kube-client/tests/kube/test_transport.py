"""What callers rely on of a `Transport`, whatever HTTP is below it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import unquote

import pytest

from kube_client.http1 import Http1Transport
from kube_client.streamed import split_lines
from kube_client.testing.scripted import eventually, running
from kube_client.transport import Endpoint, NotSent, OutcomeUnknown, PodKey, StreamRefused, Transport, pod_path, segment

from .raw_server import OK, End, client, get, post, wired


def chunked(*chunks: bytes) -> bytes:
    """The beginning of an answer, to its last chunk if that is empty."""
    written = (b"%x\r\n%s\r\n" % (len(each), each) for each in chunks)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(written)


async def read(transport: Transport) -> list[list[bytes]]:
    async with transport.stream("/watch", read_timeout=60) as batches:
        return [batch async for batch in batches]


async def test_a_base_url_with_a_path_is_kept() -> None:
    async with wired([[OK]]) as server:
        async with client(f"{server.url}/k8s/clusters/c-1/", dial=server.dial) as transport:
            await get(transport, "/api")
        assert server.lines == ["GET /k8s/clusters/c-1/api"]


async def test_waiting_for_a_connection_of_the_pool_sends_nothing() -> None:
    async with wired([[]]) as server, client(server, pool_size=1) as transport:
        async with running(post(transport, "/first", timeout=60)):
            await server.arrived(1)
            with pytest.raises(NotSent):
                await post(transport, "/second")
        assert server.lines == ["POST /first"]


async def test_each_exchange_is_observed() -> None:
    seen: list[tuple[str, int]] = []
    made = OK.replace(b"200 OK", b"201 Created")
    async with (
        wired([[made], [End.RESET]], [[chunked(b"{}\n", b"")]]) as server,
        client(server, observe=lambda *what: seen.append(what)) as transport,
    ):
        assert await post(transport) == 201
        with pytest.raises(OutcomeUnknown):
            await post(transport)
        await read(transport)
    assert seen == [("POST", 201), ("POST", 0), ("WATCH", 200)]


async def test_a_stream_that_is_refused_carries_the_answer() -> None:
    gone = b"HTTP/1.1 410 Gone\r\nContent-Length: 7\r\n\r\ntoo old"
    async with wired([[gone]]) as server, client(server) as transport:
        with pytest.raises(StreamRefused) as refused:
            await read(transport)
        response = refused.value.response
        assert (response.status, response.body) == (410, b"too old")


@pytest.mark.parametrize("answer", [[], [b"HTTP/1.1 410 Gone\r\nContent-Length: 9\r\n\r\n{"]])
async def test_a_stream_is_given_up_that_is_not_answered_however_long_it_may_be_silent(answer: list[bytes]) -> None:
    """Nothing has been promised of it yet; a middlebox may have swallowed it, or half of a refusal."""
    async with wired([answer]) as server, client(server, head_timeout=0.1) as transport:
        with pytest.raises(OutcomeUnknown, match=r"timeout 0\.1 s"):
            await read(transport)


async def test_watches_take_no_connection_from_the_pool_and_leaving_one_early_closes_its_own() -> None:
    watch = [chunked(b"1\n")]
    async with wired([watch], [watch], [[OK]]) as server, client(server, pool_size=1) as transport:
        async with (
            transport.stream("/watch", read_timeout=60) as one,
            transport.stream("/watch", read_timeout=60) as two,
        ):
            assert await anext(one) == await anext(two) == [b"1"]
            assert await post(transport) == 200
            assert server.open == 3
        await eventually(lambda: server.open == 1)


async def test_a_watch_that_is_refused_leaves_no_connection_open() -> None:
    gone = b"HTTP/1.1 410 Gone\r\nContent-Length: 2\r\n\r\n{}"
    async with wired([[gone]]) as server, client(server) as transport:
        with pytest.raises(StreamRefused):
            async with transport.stream("/watch", read_timeout=60):
                pass
        await eventually(lambda: server.open == 0)


async def test_a_pool_without_connections_is_refused() -> None:
    with pytest.raises(ValueError, match="pool_size must be at least 1"):
        Http1Transport(Endpoint("http://127.0.0.1"), pool_size=0)


async def pieces_of(content: bytes, step: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), step):
        yield content[at : at + step]


@pytest.mark.parametrize("step", [1, 2, 3, 100])
async def test_lines_are_the_same_however_they_are_cut(step: int) -> None:
    content = b"\na\n\nbc\n\xff\x00d\n\nwithout an end"
    async with aclosing(split_lines(pieces_of(content, step))) as batches:
        lines = [line async for batch in batches for line in batch]
    assert lines == [b"a", b"bc", b"\xff\x00d", b"without an end"]


async def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(OutcomeUnknown, match="longer than 10 bytes"):
        async with aclosing(split_lines(pieces_of(b"1" * 16, 8), limit=10)) as batches:
            async for _ in batches:
                pass


# -- whatever a name is, it stays one segment of a path


@pytest.mark.parametrize("name", ["web-0.example", "a_b~c", "n" * 253])
def test_a_plain_name_stands_for_itself(name: str) -> None:
    assert segment(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "..%2f", "a?b#c", "system:node", "ü", "a\n", "a b"])
def test_any_other_is_escaped(name: str) -> None:
    assert unquote(segment(name)) == name
    assert not set(segment(name)) & set("/?# \n")


def test_a_pod_is_below_its_namespace() -> None:
    assert pod_path(PodKey("team/a", "p", "u")) == "/api/v1/namespaces/team%2Fa/pods/p"
