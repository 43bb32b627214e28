from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kube_client.budget import Budget
from kube_client.recorder import MAX_NOTE_BYTES, EventRecorder, EventSettings, ObjectReference, Reporter
from kube_client.retry import Backoff, Timing
from kube_client.testing.scripted import (
    LOGIN_PAGE,
    Action,
    Answer,
    FakeTime,
    Reset,
    answering,
    in_order,
    running,
    status,
)

POD = ObjectReference("Pod", "t", "p", "u")
START = datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC)


class Bench:
    """A recorder, what it counts, and the server that it writes to."""

    def __init__(self, *actions: Action, **options: Any) -> None:
        self.server, transport = answering(in_order(*actions))
        self.time = FakeTime()
        self.counts = Counter[str]()
        settings: dict[str, Any] = {"backoff": Backoff(initial=1, cap=8, jitter=0)}
        names = {each.name for each in fields(EventSettings)} & options.keys()
        settings |= {name: options.pop(name) for name in names}
        self.recorder = EventRecorder(
            Reporter("agent-scheduler", "agent-scheduler-0"),
            EventSettings(**settings),
            transport=transport,
            pace=None,
            timing=Timing(
                clock=lambda: self.time.now,
                sleep=self.time.sleep,
                rng=lambda: 0.0,
                now=lambda: START + timedelta(seconds=self.time.now - 1000),
            ),
            count=lambda what: self.counts.update((what,)),
            **{"budget": Budget(), **options},
        )

    def failed(self, note: str = "no room", about: ObjectReference = POD) -> None:
        self.recorder.event(about, type="Warning", reason="FailedScheduling", action="Scheduling", note=note)

    def bound(self, note: str = "Successfully assigned t/p to n1", about: ObjectReference = POD) -> None:
        self.recorder.once(about, type="Normal", reason="Scheduled", action="Binding", note=note)

    async def sent(self) -> list[tuple[str, Any]]:
        """Once all that was said before is sent, or has failed."""
        assert await self.recorder._dispatcher.drain(100) == 0
        return [(request.method, request.json) for request in self.server.requests]

    async def methods(self) -> list[str]:
        return [method for method, _ in await self.sent()]

    @property
    def pauses(self) -> list[float]:
        """Those before an event was tried again."""
        return [seconds for seconds in self.time.slept if seconds != 30]


@asynccontextmanager
async def recording(*actions: Action, **options: Any) -> AsyncIterator[Bench]:
    bench = Bench(*actions, **options)
    async with running(bench.recorder.run()):
        await asyncio.sleep(0)
        yield bench


#: How an event is said.
SAID = pytest.mark.parametrize("say", [Bench.failed, Bench.bound])


@pytest.mark.parametrize("method", ["event", "once"])
async def test_an_event_is_written_as_events_k8s_io_v1(method: str) -> None:
    async with recording(Answer(201)) as bench:
        say = getattr(bench.recorder, method)
        say(POD, type="Normal", reason="Scheduled", action="Binding", note="Successfully assigned t/p to n1")
        ((_, body),) = await bench.sent()
        assert bench.server.requests[0].path == "/apis/events.k8s.io/v1/namespaces/t/events"
        name = body["metadata"].pop("name")
        assert name.startswith("p.")
        assert body == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "t"},
            "eventTime": "2026-11-21T01:02:03.456789Z",
            "reportingController": "agent-scheduler",
            "reportingInstance": "agent-scheduler-0",
            "type": "Normal",
            "reason": "Scheduled",
            "action": "Binding",
            "note": "Successfully assigned t/p to n1",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "t", "name": "p", "uid": "u"},
        }


async def test_the_name_of_an_event_is_that_of_its_object_and_a_number_that_grows() -> None:
    async with recording(Answer(201)) as bench:
        bench.failed()
        bench.bound()
        bench.time.now += 1
        bench.bound()
        names = [body["metadata"]["name"] for _, body in await bench.sent()]
        numbers = [int(name.removeprefix("p."), 16) for name in names]
        assert numbers == sorted(set(numbers))
        assert numbers[0] >> 12 == int(START.timestamp() * 1_000_000)


async def test_an_event_about_what_has_no_namespace_is_in_default() -> None:
    async with recording(Answer(201)) as bench:
        bench.failed(about=ObjectReference("Node", "", "n1", "u"))
        ((_, body),) = await bench.sent()
        assert bench.server.requests[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"
        assert body["metadata"]["namespace"] == "default"
        assert "namespace" not in body["regarding"]


async def test_the_same_event_again_becomes_a_series() -> None:
    async with recording(Answer(201)) as bench:
        bench.failed()
        await bench.sent()
        bench.time.now += 2
        bench.failed()
        (_, made), (method, body) = await bench.sent()
        assert method == "PATCH"
        assert body["series"].pop("lastObservedTime").startswith("2026-11-21T01:02:05.4567")
        assert body == {"series": {"count": 2}}
        request = bench.server.requests[1]
        assert request.path.endswith(f"/events/{made['metadata']['name']}")
        assert request.headers["content-type"] == "application/merge-patch+json"
        assert bench.counts == {"recorded": 2, "aggregated": 1}


async def test_a_series_is_told_seldom_and_its_last_count_in_the_end() -> None:
    async with recording(Answer(201)) as bench:
        for _ in range(100):
            bench.failed()
            await bench.sent()
        assert [body.get("series", {}).get("count") for _, body in await bench.sent()] == [None, 2]
        await asyncio.sleep(31)
        assert (await bench.sent())[2][1]["series"]["count"] == 100


async def test_an_event_that_repeats_before_it_was_written_is_written_once() -> None:
    bench = Bench(Answer(201))
    for _ in range(10):
        bench.failed()
    async with running(bench.recorder.run()):
        ((_, body),) = await bench.sent()
        assert body["series"]["count"] == 10


@pytest.mark.parametrize(
    "change",
    [
        {"regarding": msgspec.structs.replace(POD, uid="v")},
        {"type": "Normal"},
        {"reason": "Other"},
        {"action": "Binding"},
        {"note": "another"},
    ],
)
async def test_events_that_differ_in_anything_are_different_events(change: dict[str, Any]) -> None:
    async with recording(Answer(201)) as bench:
        same = {"regarding": POD, "type": "Warning", "reason": "R", "action": "A", "note": "n"}
        for arguments in (same, {**same, **change}):
            bench.recorder.event(**arguments)
        sent = await bench.sent()
        assert await bench.methods() == ["POST", "POST"]
        assert len({body["metadata"]["name"] for _, body in sent}) == 2


async def test_a_series_ends_some_time_after_its_last_occurrence() -> None:
    async with recording(Answer(201)) as bench:
        bench.failed()
        await bench.sent()
        bench.time.now += 400
        bench.failed()
        assert await bench.methods() == ["POST", "POST"]
        await asyncio.sleep(300)
        assert bench.recorder._series
        await asyncio.sleep(400)
        assert not bench.recorder._series


async def test_what_is_said_once_is_not_remembered() -> None:
    async with recording(Answer(201)) as bench:
        bench.bound()
        bench.bound()
        sent = await bench.sent()
        assert await bench.methods() == ["POST", "POST"]
        assert len({body["metadata"]["name"] for _, body in sent}) == 2
        assert not bench.recorder._series
        assert bench.counts == {"recorded": 2}


async def test_events_are_sent_in_their_order_whether_said_once_or_again() -> None:
    bench = Bench(Answer(201), concurrency=1)
    for number in range(4):
        bench.failed(f"failed {number}")
        bench.bound(f"bound {number}")
    async with running(bench.recorder.run()):
        notes = [body["note"] for _, body in await bench.sent()]
    assert notes == [f"{what} {number}" for number in range(4) for what in ("failed", "bound")]


async def test_a_long_note_is_cut_between_characters() -> None:
    async with recording(Answer(201)) as bench:
        bench.failed("é" * 2000)
        ((_, body),) = await bench.sent()
        assert len(body["note"].encode()) <= MAX_NOTE_BYTES
        assert body["note"].endswith("é...")


@SAID
async def test_a_full_buffer_drops_and_counts(say: Callable[[Bench, str], None]) -> None:
    bench = Bench(Answer(201), capacity=3)
    for number in range(5):
        say(bench, f"note {number}")
    assert bench.counts == {"dropped": 2}
    async with running(bench.recorder.run()):
        assert [body["note"] for _, body in await bench.sent()] == ["note 0", "note 1", "note 2"]


async def test_no_more_series_are_remembered_than_allowed() -> None:
    async with recording(Answer(201), capacity=10) as bench:
        for number in range(30):
            bench.failed(f"note {number}")
            await bench.sent()
        assert len(bench.recorder._series) == 10


@SAID
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("failure", [status(503), status(429), Reset(), LOGIN_PAGE])
async def test_an_event_is_tried_again_a_few_times(failure: Action, warm: bool, say: Callable[[Bench], None]) -> None:
    async with recording(failure, failure, Answer(201)) as bench:
        bench.server.warm = warm
        say(bench)
        first, *others = await bench.sent()
        assert others == [first, first]
        assert bench.pauses == [1, 2]
        assert bench.counts == {"recorded": 1}


@SAID
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("attempts", [1, 3])
async def test_trying_ends(say: Callable[[Bench], None], warm: bool, attempts: int) -> None:
    async with recording(status(503), attempts=attempts) as bench:
        bench.server.warm = warm
        say(bench)
        assert len(await bench.sent()) == attempts
        assert bench.counts == {"failed": 1}


MADE, TAKEN, FORGOTTEN = Answer(201), status(409, "AlreadyExists"), status(404, "NotFound")


@pytest.mark.parametrize(
    ("actions", "says", "methods", "counts"),
    [
        # The server forgot it: it is begun again, with what was counted.
        ([MADE, FORGOTTEN, Answer()], [Bench.failed] * 2, "POST PATCH POST", {"recorded": 2}),
        # The answer was lost: it is not written twice.
        ([LOGIN_PAGE, TAKEN], [Bench.bound], "POST POST", {"recorded": 1}),
        ([Reset(), TAKEN, Answer()], [Bench.failed] * 2, "POST POST PATCH", {"recorded": 2, "aggregated": 1}),
        ([Reset(), TAKEN], [Bench.bound], "POST POST", {"recorded": 1}),
        # It was refused, as in a namespace that goes away: it is written when it is said again.
        *(
            ([status(code), Answer()], [say] * 2, "POST POST", {"dropped": 1, "recorded": 1})
            for code in (403, 404)
            for say in (Bench.failed, Bench.bound)
        ),
    ],
)
async def test_what_becomes_of_an_event_follows_from_the_answers(
    actions: list[Action], says: list[Callable[[Bench], None]], methods: str, counts: dict[str, int]
) -> None:
    async with recording(*actions) as bench:
        for say in says:
            say(bench)
            sent = await bench.sent()
        assert " ".join(await bench.methods()) == methods
        assert bench.counts.items() >= counts.items()
        names = [body["metadata"]["name"] for _, body in sent if "metadata" in body]
        assert TAKEN not in actions or len(set(names)) == 1
        assert "PATCH POST" not in methods or sent[2][1]["series"]["count"] == 2


async def test_how_often_a_write_said_whose_answer_was_lost_is_told_again() -> None:
    bench = Bench(Reset(), status(409, "AlreadyExists"), Answer())
    for _ in range(3):
        bench.failed()
    async with running(bench.recorder.run()):
        await bench.sent()
        bench.recorder._flush()
        *_, (method, body) = await bench.sent()
        assert (method, body["series"]["count"]) == ("PATCH", 3)


async def test_what_is_said_once_needs_no_task_where_a_connection_is_warm() -> None:
    async with recording(Answer(201)) as bench:
        bench.bound("first")
        await bench.sent()
        before = asyncio.all_tasks()
        bench.bound("second")
        await bench.server.arrived(2)
        assert asyncio.all_tasks() <= before
        assert len(await bench.sent()) == 2
        assert bench.counts == {"recorded": 2}


async def test_what_is_said_once_keeps_to_the_rate_over_warm_connections() -> None:
    time = FakeTime()
    budget = Budget(qps=10, burst=2, timing=time.timing)
    async with recording(Answer(201), budget=budget) as bench:
        for number in range(5):
            bench.bound(f"note {number}")
            await bench.sent()
        # The rate is checked again after 20 ms at the earliest.
        assert time.now == pytest.approx(1000.3, abs=0.06)


async def test_draining_tells_the_last_counts() -> None:
    async with recording(Answer(201)) as bench:
        for _ in range(5):
            bench.failed()
            await bench.sent()
        assert await bench.recorder.drain(5) == 0
        assert (await bench.sent())[-1][1]["series"]["count"] == 5
