"""Requests that are started at once: what is told of them, what they leave, and when they are left to `request`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import (
    FencedTransport,
    OutcomeUnknown,
    Response,
    TransportError,
    start_of,
)
from tests.support.raw_server import OK, End, Step, client, get, wired

Outcome = Response | TransportError
UNAUTHORIZED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


class Told:
    """What `answered` was told, in order."""

    def __init__(self) -> None:
        self.outcomes: asyncio.Queue[Outcome] = asyncio.Queue()

    def start(
        self, transport: Http1Transport | FencedTransport, *, method: str = "POST", timeout: float = 5.0
    ) -> bool:
        return transport.start(method, "/a", body=b"x", timeout=timeout, answered=self.outcomes.put_nowait)

    async def next(self) -> Outcome:
        async with asyncio.timeout(60):
            return await self.outcomes.get()


async def test_a_request_is_started_on_a_warm_connection_and_leaves_it_warm() -> None:
    async with wired([[OK]] * 4) as server, client(server) as transport:
        told = Told()
        assert not told.start(transport), "no connection is open"
        await get(transport)
        for _ in range(3):
            assert told.start(transport)
            assert told.outcomes.empty()
            outcome = await told.next()
            assert isinstance(outcome, Response) and outcome.body == b"ok"
        assert server.connections == 1
        assert server.lines == ["GET /", "POST /a", "POST /a", "POST /a"]


async def test_the_next_request_may_be_started_by_whoever_is_told_of_an_answer() -> None:
    async with wired([[OK]] * 4) as server, client(server) as transport:
        await get(transport)
        seen: list[Outcome] = []
        over = asyncio.Event()

        def answered(outcome: Outcome) -> None:
            seen.append(outcome)
            if len(seen) == 3:
                over.set()
            else:
                assert transport.start("POST", "/b", body=b"y", timeout=5, answered=answered)

        assert transport.start("POST", "/b", body=b"y", timeout=5, answered=answered)
        await over.wait()
        assert server.connections == 1


async def test_what_follows_an_answer_is_not_taken_for_that_of_a_request_started_on_its_news() -> None:
    """The connection is given up with the answer, so there is none to start on."""
    async with wired([[OK], [OK + OK]]) as server, client(server) as transport:
        await get(transport)
        again: list[bool] = []
        told = Told()

        def answered(outcome: Outcome) -> None:
            again.append(told.start(transport))
            told.outcomes.put_nowait(outcome)

        assert transport.start("POST", "/", body=b"", timeout=5, answered=answered)
        assert isinstance(await told.next(), Response)
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
    async with wired([[OK], steps], [[OK]] * 2) as server, client(server) as transport:
        await get(transport)
        told = Told()
        assert told.start(transport, timeout=20)
        outcome = await told.next()
        assert isinstance(outcome, OutcomeUnknown)
        assert reason in str(outcome) and "POST /a" in str(outcome)
        assert server.lines.count("POST /a") == 1
        assert not told.start(transport)
        assert await get(transport) == b"ok"


async def test_a_request_is_left_to_the_other_way_where_connections_are_busy_or_it_may_be_repeated() -> None:
    held = asyncio.Event()
    async with wired([[OK], [held, OK]]) as server, client(server, pool_size=1) as transport:
        await get(transport)
        told = Told()
        assert not told.start(transport, method="GET")
        assert told.start(transport)
        assert not told.start(transport)
        held.set()
        assert isinstance(await told.next(), Response)


async def test_credentials_are_asked_for_again_after_a_second_and_after_a_refusal() -> None:
    given = {"Authorization": "Bearer one"}
    refused: list[bool] = []

    async def headers() -> Mapping[str, str]:
        return given

    script = [[OK], [OK], [UNAUTHORIZED], [OK], [OK]]
    options = {"headers": headers, "refused": lambda: refused.append(True)}
    async with wired(script) as server, client(server, **options) as transport:
        await get(transport)
        told = Told()
        assert told.start(transport)
        await told.next()
        assert told.start(transport)
        outcome = await told.next()
        assert isinstance(outcome, Response) and outcome.status == 401
        assert refused == [True]
        given = {"Authorization": "Bearer two"}
        assert not told.start(transport)
        await get(transport)
        assert told.start(transport)
        await told.next()
        assert [b"Bearer two" in text for _, text in server.requests] == [False, False, False, True, True]
        await asyncio.sleep(1.05)
        assert not told.start(transport)


async def test_what_is_under_way_when_the_client_closes_is_told_as_unknown() -> None:
    async with wired([[OK], []]) as server, client(server) as transport:
        await get(transport)
        told = Told()
        assert told.start(transport)
        await server.arrived(2)
        await transport.close()
        assert isinstance(await told.next(), OutcomeUnknown)


async def test_a_process_that_does_not_lead_starts_nothing() -> None:
    leading = True
    async with wired([[OK]] * 3) as server, client(server) as transport:
        await get(transport)
        fenced, told = FencedTransport(transport, lambda: leading), Told()
        assert told.start(fenced)
        await told.next()
        leading = False
        assert not told.start(fenced)
        assert server.lines.count("POST /a") == 1


async def test_a_transport_that_starts_nothing_says_so() -> None:
    plain: Any = object()
    assert not start_of(plain)("POST", "/", timeout=1.0, answered=lambda _: None)
