"""What callers rely on of a `Transport`, whatever HTTP is below it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import unquote

import pytest

from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.streamed import split_lines
from agent_scheduler.kube.transport import (
    Endpoint,
    NotSent,
    OutcomeUnknown,
    PodKey,
    StreamRefused,
    Transport,
    pod_path,
    segment,
)
from tests.support.scripted import (
    Action,
    Answer,
    Hang,
    Request,
    Reset,
    Stream,
    connected,
    eventually,
    in_order,
    serving,
    status,
)

pytestmark = pytest.mark.real_time


async def read(transport: Transport, *, silence: float = 60) -> list[list[bytes]]:
    async with transport.stream("/watch", read_timeout=silence) as batches:
        return [batch async for batch in batches]


async def test_a_base_url_with_a_path_is_kept() -> None:
    async with serving(in_order(Answer())) as server:
        transport = Http1Transport(Endpoint(server.url + "/k8s/clusters/c-1/"))
        await transport.request("GET", "/api", timeout=60)
        await transport.close()
        assert server.requests[0].target == "/k8s/clusters/c-1/api"


async def test_waiting_for_a_connection_of_the_pool_sends_nothing() -> None:
    async with connected(in_order(Hang()), pool_size=1) as (server, transport):
        first = asyncio.create_task(transport.request("POST", "/first", timeout=60))
        await server.arrived(1)
        with pytest.raises(NotSent):
            await transport.request("POST", "/second", timeout=0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert [request.path for request in server.requests] == ["/first"]


async def test_each_exchange_is_observed() -> None:
    seen: list[tuple[str, int]] = []
    script = in_order(Answer(201), Reset(), Stream([b"{}\n"]))
    async with connected(script, observe=lambda *what: seen.append(what)) as (_, transport):
        await transport.request("POST", "/", body=b"{}", timeout=60)
        with pytest.raises(OutcomeUnknown):
            await transport.request("POST", "/", body=b"{}", timeout=60)
        await read(transport)
    assert seen == [("POST", 201), ("POST", 0), ("WATCH", 200)]


async def test_a_stream_that_is_refused_carries_the_answer() -> None:
    async with connected(in_order(status(410, "Expired", "too old"))) as (_, transport):
        with pytest.raises(StreamRefused) as refused:
            await read(transport)
        assert refused.value.response.status == 410
        assert b"too old" in refused.value.response.body


@pytest.mark.parametrize("action", [Hang(), Answer(410, body=b"{", headers={"Content-Length": "9"})])
async def test_a_stream_is_given_up_that_is_not_answered_however_long_it_may_be_silent(
    action: Action,
) -> None:
    """Nothing has been promised of it yet; a middlebox may have swallowed it, or half of a refusal."""
    async with connected(in_order(action), head_timeout=0.1) as (_, transport):
        with pytest.raises(OutcomeUnknown, match=r"timeout 0\.1 s"):
            await read(transport, silence=60)


async def test_watches_take_no_connection_from_the_pool() -> None:
    def script(request: Request) -> Stream | Answer:
        return Stream([b"1\n"], end="hang") if request.path == "/watch" else Answer(201)

    async with (
        connected(script, pool_size=1) as (_, transport),
        transport.stream("/watch", read_timeout=60) as one,
        transport.stream("/watch", read_timeout=60) as two,
    ):
        assert await anext(one) == await anext(two) == [b"1"]
        assert (await transport.request("POST", "/", body=b"{}", timeout=60)).status == 201


async def test_leaving_a_stream_early_closes_its_connection() -> None:
    async with connected(in_order(Stream([b"1\n"], end="hang"))) as (server, transport):
        async with transport.stream("/", read_timeout=60) as batches:
            await anext(batches)
            assert server.open == 1
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
