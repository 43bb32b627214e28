"""The console's files and its stream over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from agent_scheduler.serving import console, pages
from agent_scheduler.serving.sources import TOKEN_HEADER, Sources
from kube_client.authorization import Access
from kube_client.testing.scripted import eventually
from tests.support.http_servers import http_server

pytestmark = pytest.mark.real_time


class Figures:
    """A `Console` that counts how often it is asked."""

    def __init__(self) -> None:
        self.wholes = self.news_told = 0
        self.size = 0
        self.broken = False

    def whole(self) -> dict[str, Any]:
        self.wholes += 1
        return {"whole": self.wholes}

    def news(self) -> dict[str, Any]:
        if self.broken:
            raise RuntimeError("the ledger is on fire")
        self.news_told += 1
        return {"news": self.news_told, "more": "x" * self.size}


class OneToken:
    async def access(self, token: str, path: str) -> Access:
        return Access.ALLOWED if (token, path) == ("good", "/ui/stream") else Access.FORBIDDEN


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(console, "INTERVAL", 0.01)
    # An end that waits for an open stream takes this long.
    monkeypatch.setattr(pages, "_CLOSING", 600.0)
    yield


@asynccontextmanager
async def served(figures: Figures, **more: Any) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    sources = Sources(metrics=lambda: (b"", "text/plain"), configuration=dict, console=figures)
    server = http_server(sources, address="127.0.0.1", port=0, **more)
    port = await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield session, f"http://127.0.0.1:{port}"
            # Streams that are open do not keep it from ending.
            async with asyncio.timeout(60):
                await server.stop()
    finally:
        await server.stop()


async def events(answer: aiohttp.ClientResponse, count: int) -> list[tuple[str, Any]]:
    """The next so many, of a stream that is read by this alone and once."""
    found: list[tuple[str, Any]] = []
    rest = b""
    while len(found) < count:
        rest += await answer.content.readany()
        *whole, rest = rest.split(b"\n\n")
        for each in whole:
            fields = dict(line.split(": ", 1) for line in each.decode().splitlines())
            found.append((fields["event"], json.loads(fields["data"])))
    return found[:count]


async def test_its_files_are_open_and_let_in_nothing_from_elsewhere() -> None:
    async with served(Figures(), authorizer=OneToken()) as (session, base):
        for name, kind in (("", "text/html"), ("console.js", "text/javascript"), ("console.css", "text/css")):
            async with session.get(f"{base}/ui/{name}") as answer:
                assert answer.status == 200
                assert answer.content_type == kind
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        async with session.get(f"{base}/ui/passwd") as answer:
            assert (answer.status, await answer.text()) == (404, "there is no such page\n")


async def test_the_page_is_found_behind_a_proxy_that_adds_a_prefix() -> None:
    async with served(Figures()) as (session, base):
        async with session.get(f"{base}/ui", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (308, "ui/")
        async with session.get(f"{base}/ui/") as answer:
            page = await answer.text()
        assert 'src="/' not in page
        assert 'href="/' not in page


@pytest.mark.parametrize(("token", "status"), [("", 401), ("other", 403), ("good", 200)])
async def test_the_stream_asks_for_a_token(token: str, status: int) -> None:
    async with served(Figures(), authorizer=OneToken()) as (session, base):
        headers = {TOKEN_HEADER: token} if token else {}
        async with session.get(f"{base}/ui/stream", headers=headers) as answer:
            assert answer.status == status


async def test_each_viewer_is_told_the_whole_and_then_what_is_new() -> None:
    figures = Figures()
    async with served(figures) as (session, base), session.get(f"{base}/ui/stream") as answer:
        assert answer.content_type == "text/event-stream"
        first, *rest = await events(answer, 4)
        assert first == ("whole", {"whole": 1})
        numbers = [each["news"] for name, each in rest if name == "news"]
        assert numbers == list(range(numbers[0], numbers[0] + 3))
        async with session.get(f"{base}/ui/stream") as another:
            assert (await events(another, 1))[0] == ("whole", {"whole": 2})


async def test_viewers_are_told_together_and_nothing_is_asked_while_there_are_none() -> None:
    figures = Figures()
    async with served(figures) as (session, base):
        await asyncio.sleep(0.05)
        assert figures.news_told == 0
        answers = [await session.get(f"{base}/ui/stream") for _ in range(5)]
        found = await asyncio.gather(*(events(answer, 5) for answer in answers))
        numbers = [each["news"] for seen in found for name, each in seen if name == "news"]
        # If each viewer cost a look, all would differ.
        assert len(set(numbers)) < len(numbers)
        gone, *others = answers
        gone.close()
        before = figures.news_told
        # The others are told on.
        await eventually(lambda: figures.news_told > before + 50)
        for answer in others:
            answer.close()
        told = -1

        async def nothing_more() -> bool:
            nonlocal told
            before, told = told, figures.news_told
            await asyncio.sleep(0.05)
            return told == before

        while not await nothing_more():
            pass


async def test_who_is_too_slow_is_told_the_whole_anew() -> None:
    figures = Figures()
    figures.size = 4 * 1024 * 1024
    async with served(figures) as (session, base), session.get(f"{base}/ui/stream") as answer:
        await eventually(lambda: figures.news_told > 20)
        found = await events(answer, 4)
        assert [name for name, _ in found].count("whole") >= 2


async def test_more_viewers_than_there_may_be_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "MAX_VIEWERS", 2)
    async with served(Figures()) as (session, base):
        answers = [await session.get(f"{base}/ui/stream") for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert await answers[2].text() == "2 viewers already use the console\n"
        for answer in answers:
            answer.close()


async def test_a_stream_that_fails_is_logged_and_ends_and_the_next_one_begins_anew() -> None:
    figures = Figures()
    async with served(figures) as (session, base):
        with capture_logs() as logs:
            async with session.get(f"{base}/ui/stream") as answer:
                await events(answer, 2)
                figures.broken = True
                await answer.read()
        assert "the console's stream failed" in [each["event"] for each in logs]
        figures.broken = False
        async with session.get(f"{base}/ui/stream") as answer:
            assert [name for name, _ in await events(answer, 3)] == ["whole", "news", "news"]
