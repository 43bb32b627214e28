"""Who may read a page, as the API server says: what it is asked, how often, and what is kept of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_client import authorization
from kube_client.authorization import Access, KubeAuthorizer, _Answers
from kube_client.testing.scripted import Action, Answer, FakeTime, Hang, Request, answering, eventually


class Reviews:
    """Answers reviews as an API server that knows two tokens; those of a slow one wait for `may`."""

    def __init__(self) -> None:
        self.broken: Action | None = None
        #: What an access review says of who may.
        self.verdict: dict[str, Any] = {}
        self.may = asyncio.Event()
        self.may.set()
        self.under_way = 0

    def __call__(self, request: Request) -> Action | Awaitable[Action]:
        return self.broken or self._later(request)

    async def _later(self, request: Request) -> Action:
        self.under_way += 1
        await self.may.wait()
        self.under_way -= 1
        review = request.json
        return Answer(201, {**review, "status": self._status(request.path, review["kind"], review["spec"])})

    def _status(self, path: str, kind: str, spec: Any) -> dict[str, Any]:
        if kind == "TokenReview":
            assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
            known = {"prometheus": "monitoring", "tenant": "tenant"}.get(spec["token"])
            if known is None:
                return {"authenticated": False, "error": "token is unknown"}
            user = {"username": known, "uid": "u", "groups": ["g"], "extra": {"a": ["b"]}}
            return {"authenticated": True, "user": user}
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert (spec["uid"], spec["groups"], spec["extra"]) == ("u", ["g"], {"a": ["b"]})
        attributes = spec["nonResourceAttributes"]
        assert attributes["verb"] == "get"
        allowed = spec["user"] == "monitoring" and attributes["path"] == "/metrics"
        return {"allowed": allowed, **self.verdict}


class World:
    """An authorizer, and the API server that it asks."""

    def __init__(self) -> None:
        self.reviews, self.time = Reviews(), FakeTime()
        self.api, transport = answering(self.reviews)
        self.authorizer = KubeAuthorizer(transport, clock=self.time.timing.clock)

    async def access(self, token: str = "prometheus", path: str = "/metrics") -> Access:
        return await asyncio.wait_for(self.authorizer.access(token, path), 60)

    async def posts(self, token: str) -> int:
        """How many reviews an answer about the token takes."""
        before = len(self.api.requests)
        await self.access(token)
        return len(self.api.requests) - before

    def guesses(self, count: int) -> list[asyncio.Task[Access]]:
        return [asyncio.create_task(self.access(f"guess-{number}")) for number in range(count)]


@pytest.mark.parametrize("code", [200, 201])
@pytest.mark.parametrize("body", [b"{}", b'{"status":{"authenticated":true}}', b'{"status":{}}'])
async def test_an_answer_that_does_not_say_yes_is_a_no(body: bytes, code: int) -> None:
    world = World()
    world.reviews.broken = Answer(code, body)
    assert await world.access() is Access.UNAUTHENTICATED


@pytest.mark.parametrize("broken", [Hang(), Answer(500, b"{}"), Answer(403, b"{}"), Answer(201, b"<html>")], ids=str)
async def test_what_cannot_be_asked_is_refused_and_not_remembered(broken: Action) -> None:
    world = World()
    world.reviews.broken = broken
    with capture_logs() as lines:
        for _ in range(3):
            assert await world.access() is Access.UNKNOWN
    told = [(line["event"], line["log_level"], line["path"]) for line in lines]
    assert told == [("cannot authorize a request", "warning", "/metrics")]
    world.reviews.broken = None
    assert await world.access() is Access.ALLOWED


async def test_what_one_authorizer_denies_is_refused_whatever_others_allow() -> None:
    world = World()
    world.reviews.verdict = {"allowed": True, "denied": True}
    assert await world.access() is Access.FORBIDDEN


async def test_a_yes_is_kept_a_minute_and_a_no_ten_seconds() -> None:
    world = World()
    assert [await world.posts("prometheus"), await world.posts("guessed")] == [2, 1]
    for at, token, posts in (
        *((9.9, "guessed", 0), (10.0, "guessed", 1), (59.9, "prometheus", 0)),
        *((60.0, "prometheus", 2), (119.9, "prometheus", 0), (120.0, "prometheus", 2)),
    ):
        world.time.now = 1000.0 + at
        assert await world.posts(token) == posts, (at, token)


async def test_an_answer_for_one_page_says_nothing_of_another() -> None:
    world = World()
    assert await world.access() is Access.ALLOWED
    assert await world.access(path="/configz") is Access.FORBIDDEN


async def test_guessed_tokens_do_not_fill_the_memory_and_are_not_kept() -> None:
    world = World()
    await world.access()
    for number in range(1100):
        await world.access(f"guess-{number}")
    kept = world.authorizer._no._answers
    assert len(kept) == 1024
    assert not any("guess" in repr(key) for key in kept)
    assert await world.posts("prometheus") == 0, "guesses displace nothing that is known"


async def test_guessed_tokens_are_asked_about_few_at_a_time_and_turned_away_when_too_many_wait() -> None:
    world = World()
    assert await world.access() is Access.ALLOWED
    world.reviews.may.clear()
    world.time.now += 61
    guesses = world.guesses(200)
    await eventually(lambda: world.reviews.under_way == 4)
    turned_away = [task for task in guesses if task.done()]
    assert [task.result() for task in turned_away] == [Access.BUSY] * (200 - 4 - 32)
    # Who was good lately does not queue behind them.
    known = asyncio.create_task(world.access())
    await eventually(lambda: world.reviews.under_way == 5)
    world.reviews.may.set()
    assert await known is Access.ALLOWED
    assert (await asyncio.gather(*guesses)).count(Access.UNAUTHENTICATED) == 36
    # Who was turned away is not remembered as refused.
    assert await world.access("tenant") is Access.FORBIDDEN


async def test_a_token_that_has_lost_its_right_queues_behind_guesses_like_any_other() -> None:
    world = World()
    assert await world.access() is Access.ALLOWED
    world.reviews.verdict = {"allowed": False}
    world.time.now += 61
    assert await world.access() is Access.FORBIDDEN
    world.reviews.may.clear()
    world.time.now += 59
    guesses = world.guesses(36)
    await eventually(lambda: world.reviews.under_way == 4)
    assert await world.access() is Access.BUSY
    world.reviews.may.set()
    await asyncio.gather(*guesses)


async def test_no_reader_waits_for_the_api_server_for_longer_than_a_scrape_does() -> None:
    """Prometheus gives up after ten seconds by default, and two reviews are asked for one after the other."""
    world = World()
    await world.access()
    assert len(world.api.timeouts) == 2
    assert max(world.api.timeouts) * 2 <= 10.0


async def test_requests_that_bring_the_same_token_are_answered_by_one_review() -> None:
    world = World()
    world.reviews.may.clear()
    asking = [asyncio.create_task(world.access()) for _ in range(100)]
    await eventually(lambda: world.reviews.under_way == 1)
    # The first one gives up; the others still get their answer.
    asking[0].cancel()
    world.reviews.may.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert answers[1:] == [Access.ALLOWED] * 99
    assert len(world.api.requests) == 2


def test_of_the_answers_kept_those_that_are_too_many_or_too_old_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or whoever makes up tokens would fill the memory, or push out those that are asked with."""
    monkeypatch.setattr(authorization, "_KEPT", 2)
    now = 100.0
    answers = _Answers(lambda: now, until_forgotten=10.0)

    def known(seconds: float) -> list[bytes]:
        return [name for name in (b"a", b"b", b"c") if answers.get((name, "/metrics"), seconds)]

    for name in (b"a", b"b", b"a", b"c"):
        answers.keep((name, "/metrics"), Access.ALLOWED)
    assert known(5.0) == [b"a", b"c"]
    now += 5.0
    assert known(5.0) == [] and known(6.0) == [b"a", b"c"]
    for _ in range(2):
        answers.forget((b"c", "/metrics"))
    now += 5.0
    answers.keep((b"b", "/metrics"), Access.ALLOWED)
    assert known(60.0) == [b"b"]
