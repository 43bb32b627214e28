"""Loads are open or closed as they say, and no create is lost or done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from bench.harness.arrivals import ClosedLoop, Even, GivenLives
from bench.harness.load import Ends, Load, bare_rate
from bench.harness.model import Batch
from bench.harness.requests import retry
from bench.harness.watching import Track
from kube_client.errors import RequestFailed
from kube_client.transport import NotSent, OutcomeUnknown, Response
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.transports import failure

#: An answer that says which object it is about.
refusal = partial(failure, details={"name": "x", "kind": "xs"})


class Server:
    """Returns the given answers in turn, and then 201. `hold` keeps all answers back until it is set."""

    def __init__(self, answers: Iterable[Response | Exception] = ()) -> None:
        self.answers = list(answers)
        self.hold = asyncio.Event()
        self.hold.set()
        self.under_way = 0
        self.most_under_way = 0
        self.asked: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **_: Any) -> Response:
        self.asked.append((method, path))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(0)
            await self.hold.wait()
        finally:
            self.under_way -= 1
        answer = self.answers.pop(0) if self.answers else Response(201, b"{}", {})
        if isinstance(answer, Exception):
            raise answer
        return answer


def load(server: Any, batch: Batch) -> tuple[Load, Track]:
    track = Track(batch)
    return Load(server, namespace="default", track=track, scheduler_name="mine"), track


@pytest.mark.real_time
async def test_an_open_loop_sends_though_nothing_is_answered() -> None:
    server = Server()
    server.hold.clear()
    made, track = load(server, Batch(name="b", count=20, arrival=Even(10_000.0)))
    running = asyncio.create_task(made.run())
    await until(lambda: server.under_way == 20)
    assert track.created == 0
    server.hold.set()
    await running
    assert track.created == 20
    assert track.due[19] - track.due[0] == pytest.approx(0.0019, abs=1e-6)
    assert all(sent >= due for due, sent in zip(track.due, track.sent, strict=True))
    assert all(answered >= sent for sent, answered in zip(track.sent, track.answered, strict=True))


async def test_a_closed_loop_has_no_more_under_way_than_it_has_creators() -> None:
    server = Server()
    made, track = load(server, Batch(name="b", count=50, arrival=ClosedLoop(4)))
    await made.run()
    assert track.created == 50
    assert server.most_under_way == 4
    assert not any(track.due)


@pytest.mark.parametrize(
    "answers",
    [
        [NotSent("no connection")],
        [refusal(429, "TooManyRequests")],
        [OutcomeUnknown("reset")],
        [OutcomeUnknown("reset"), refusal(409, "AlreadyExists")],
        [refusal(500, "InternalError"), refusal(409, "AlreadyExists")],
    ],
)
async def test_a_create_is_repeated_until_its_pod_is_there(answers: list[Any]) -> None:
    server = Server(answers)
    made, track = load(server, Batch(name="b", count=1))
    await made.run()
    assert track.created == 1
    there = isinstance(answers[-1], Response) and answers[-1].status == 409
    assert len(server.asked) == len(answers) + (not there)


@pytest.mark.parametrize("answer", [refusal(403, "Forbidden"), refusal(409, "AlreadyExists")])
async def test_a_create_that_is_refused_at_once_ends_the_load(answer: Response) -> None:
    for batch in (Batch(name="b", count=5), Batch(name="b", count=5, arrival=Even(1000.0))):
        made, _ = load(Server([answer]), batch)
        with pytest.raises(RequestFailed, match=str(answer.status)):
            await made.run()


async def test_a_deletion_that_finds_nothing_after_a_lost_answer_is_done() -> None:
    await retry(Server([OutcomeUnknown("reset"), refusal(404, "NotFound")]), "DELETE", "/x")  # type: ignore[arg-type]
    with pytest.raises(RequestFailed):
        await retry(Server([refusal(404, "NotFound")]), "DELETE", "/x")  # type: ignore[arg-type]


async def test_pods_are_deleted_when_their_life_is_over_and_others_stay() -> None:
    server = Server()
    track = Track(Batch(name="b", count=3, lives=GivenLives((0.0, None, 0.0))))
    ends = Ends(server, "default", track)  # type: ignore[arg-type]
    running = asyncio.create_task(ends.run())
    for number in range(3):
        ends.bound(track.name(number), track, number)
    await until(lambda: ends.ended == 2)
    running.cancel()
    assert (ends.begun, ends.asked) == (2, 2)
    assert sorted(server.asked) == [("DELETE", f"{PODS}/b-000000"), ("DELETE", f"{PODS}/b-000002")]


async def test_pods_that_kubelets_end_are_not_deleted() -> None:
    server, ended = Server(), 0
    track = Track(Batch(name="b", count=2, lives=GivenLives((0.0, None))))
    ends = Ends(server, "default", track, kubelets=lambda: ended)  # type: ignore[arg-type]
    running = asyncio.create_task(ends.run())
    for number in range(2):
        ends.bound(track.name(number), track, number)
    await asyncio.sleep(0.01)
    assert (ends.begun, ends.ended, server.asked) == (1, 0, [])
    ended = 1
    assert ends.ended == 1
    running.cancel()


async def test_binds_alone_bind_pods_that_no_scheduler_takes() -> None:
    async with embedded_cluster() as cluster:
        for name in ("a", "b"):
            await cluster.add_node(name)
        rate = await bare_rate(cluster.transport, "default", ["a", "b"], pods=20, selector=None)
        assert rate > 0
        placed = await cluster.placed()
        assert len(placed) == len(await cluster.pods()) == 84
        assert set(placed.values()) == {"a", "b"}
