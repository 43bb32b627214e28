"""Requests that are started at once: what is told of them, what they leave, and when they are left to `request`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_client.http1 import Http1Transport
from kube_client.transport import FencedTransport, OutcomeUnknown, Response, TransportError, start_of

from .raw_server import OK, End, Raw, Step, client, get, wired

Outcome = Response | TransportError
UNAUTHORIZED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


class Told:
    """Starts requests, and has what `answered` was told of them, in order."""

    def __init__(self, transport: Http1Transport | FencedTransport) -> None:
        self.transport = transport
        self.outcomes: asyncio.Queue[Outcome] = asyncio.Queue()

    def start(
        self, *, method: str = "POST", timeout: float = 5.0, answered: Callable[[Outcome], None] = lambda _: None
    ) -> bool:
        def told(outcome: Outcome) -> None:
            answered(outcome)
            self.outcomes.put_nowait(outcome)

        return self.transport.start(method, "/a", body=b"x", timeout=timeout, answered=told)

    async def next(self) -> Outcome:
        async with asyncio.timeout(60):
            return await self.outcomes.get()

    async def status(self) -> int:
        outcome = await self.next()
        assert isinstance(outcome, Response)
        return outcome.status


@asynccontextmanager
async def warm(*scripts: Any, **options: Any) -> AsyncIterator[tuple[Raw, Http1Transport, Told]]:
    """A client whose connection has answered a GET, and goes on with the first script."""
    first, *rest = scripts
    async with wired([[OK], *first], *rest) as server, client(server, **options) as transport:
        await get(transport)
        yield server, transport, Told(transport)


async def test_a_request_is_started_on_a_warm_connection_and_leaves_it_warm() -> None:
    async with wired([[OK]] * 4) as server, client(server) as transport:
        told = Told(transport)
        assert not told.start(), "no connection is open"
        await get(transport)
        for _ in range(3):
            assert told.start()
            assert told.outcomes.empty()
            outcome = await told.next()
            assert isinstance(outcome, Response) and outcome.body == b"ok"
        assert server.connections == 1
        assert server.lines == ["GET /", "POST /a", "POST /a", "POST /a"]


async def test_the_next_request_may_be_started_by_whoever_is_told_of_an_answer() -> None:
    async with warm([[OK]] * 3) as (server, _, told):
        left = 2

        def answered(_: Outcome) -> None:
            nonlocal left
            left -= 1
            assert left < 0 or told.start(answered=answered)

        assert told.start(answered=answered)
        assert [await told.status() for _ in range(3)] == [200] * 3
        assert server.connections == 1


async def test_what_follows_an_answer_is_not_taken_for_that_of_a_request_started_on_its_news() -> None:
    """The connection is given up with the answer, so there is none to start on."""
    async with warm([[OK + OK]]) as (_, _, told):
        again: list[bool] = []
        assert told.start(answered=lambda _: again.append(told.start()))
        assert await told.status() == 200
        assert again == [False]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([End.CLOSE], "was closed by the server before an answer came"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", End.RESET], "in the middle of the answer"),
        ([b"nonsense"], "is not HTTP/1.1"),
        ([], "no answer came in time"),
    ],
)
async def test_whatever_breaks_leaves_the_outcome_unknown_and_nothing_is_sent_twice(
    steps: list[Step], reason: str
) -> None:
    async with warm([steps], [[OK]] * 2) as (server, transport, told):
        assert told.start(timeout=20)
        outcome = await told.next()
        assert isinstance(outcome, OutcomeUnknown)
        assert reason in str(outcome) and "POST /a" in str(outcome)
        assert server.lines.count("POST /a") == 1
        assert not told.start()
        assert await get(transport) == b"ok"


async def test_a_request_is_left_to_the_other_way_where_connections_are_busy_or_it_may_be_repeated() -> None:
    held = asyncio.Event()
    async with warm([[held, OK]], pool_size=1) as (_, _, told):
        assert not told.start(method="GET")
        assert told.start()
        assert not told.start()
        held.set()
        assert await told.status() == 200


async def test_credentials_are_asked_for_again_after_a_second_and_after_a_refusal() -> None:
    given = {"Authorization": "Bearer one"}
    refused: list[bool] = []

    async def headers() -> Mapping[str, str]:
        return given

    script = [[OK], [UNAUTHORIZED], [OK], [OK]]
    options = {"headers": headers, "refused": lambda: refused.append(True)}
    async with warm(script, **options) as (server, transport, told):
        assert [told.start(), await told.status()] == [True, 200]
        assert [told.start(), await told.status()] == [True, 401]
        assert refused == [True]
        given = {"Authorization": "Bearer two"}
        assert not told.start()
        await get(transport)
        assert [told.start(), await told.status()] == [True, 200]
        assert [b"Bearer two" in text for _, text in server.requests] == [False, False, False, True, True]
        await asyncio.sleep(1.05)
        assert not told.start()


async def test_what_is_under_way_when_the_client_closes_is_told_as_unknown() -> None:
    async with warm([[]]) as (server, transport, told):
        assert told.start()
        await server.arrived(2)
        await transport.close()
        assert isinstance(await told.next(), OutcomeUnknown)


async def test_a_process_that_does_not_lead_starts_nothing() -> None:
    leading = True
    async with warm([[OK]] * 2) as (server, transport, _):
        told = Told(FencedTransport(transport, lambda: leading))
        assert [told.start(), await told.status()] == [True, 200]
        leading = False
        assert not told.start()
        assert server.lines.count("POST /a") == 1


async def test_a_transport_that_starts_nothing_says_so() -> None:
    plain: Any = object()
    assert not start_of(plain)("POST", "/", timeout=1.0, answered=lambda _: None)
