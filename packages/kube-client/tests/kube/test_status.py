from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kube_client.budget import Budget
from kube_client.retry import Backoff
from kube_client.status import PODS, PodCondition, StatusKind, StatusSettings, StatusWriter
from kube_client.testing.scripted import (
    LOGIN_PAGE,
    Action,
    Answer,
    FakeTime,
    Reset,
    answering,
    eventually,
    in_order,
    running,
    status,
)
from kube_client.transport import PodIdentifier, PodKey

POD = PodKey("t", "p", "u")
UNFIT = PodCondition("False", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")
OTHER = PodCondition("False", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
FIT = PodCondition("True")
NOW = datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC)


class Bench:
    """A writer, what it counts, and the server that it writes to."""

    def __init__(self, *actions: Action, **options: Any) -> None:
        self.server, transport = answering(in_order(*actions))
        self.time = FakeTime()
        self.counts = Counter[str]()
        settings: dict[str, Any] = {"backoff": Backoff(initial=1, cap=8, jitter=0)}
        names = {each.name for each in fields(StatusSettings)} & options.keys()
        settings |= {name: options.pop(name) for name in names}
        given = {
            "budget": Budget(),
            "timing": replace(self.time.timing, now=lambda: NOW),
            "count": lambda what: self.counts.update((what,)),
            "pace": None,
        }
        self.writer = StatusWriter(
            options.pop("kind", PODS), StatusSettings(**settings), transport=transport, **{**given, **options}
        )

    async def report(self, condition: PodCondition = UNFIT, **more: Any) -> None:
        """Reports about the pod, and waits until all that was reported is written."""
        self.writer.report(POD, condition, **more)
        assert await self.writer.drain(100) == 0

    def sent(self) -> list[Any]:
        return [request.json for request in self.server.requests]

    def conditions(self) -> list[Any]:
        return [body["status"]["conditions"][0] for body in self.sent()]

    def messages(self) -> list[str]:
        return [condition["message"] for condition in self.conditions()]


@asynccontextmanager
async def writing(*actions: Action, **options: Any) -> AsyncIterator[Bench]:
    bench = Bench(*actions, **options)
    async with running(bench.writer.run()):
        yield bench


async def test_a_condition_is_written_with_the_uid_as_precondition() -> None:
    async with writing(Answer()) as bench:
        await bench.report()
        (request,) = bench.server.requests
        assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/t/pods/p/status")
        assert request.headers["content-type"] == "application/strategic-merge-patch+json"
        assert request.json == {
            "metadata": {"uid": "u"},
            "status": {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes are available: 1 Insufficient cpu.",
                        "lastProbeTime": None,
                        "lastTransitionTime": "2026-11-21T01:02:03Z",
                    }
                ]
            },
        }
        assert bench.counts == {"written": 1}


async def test_conditions_of_other_objects_are_written_where_these_are() -> None:
    def path(named: PodIdentifier) -> str:
        return f"/apis/g/v1/namespaces/{named.namespace}/others/{named.name}"

    ready = PodCondition("True", "Ready", type="OtherReady", observed_generation=3)
    async with writing(Answer(), kind=StatusKind(path, "others")) as bench:
        assert not bench.writer.says(POD, "True")
        assert bench.writer.says(POD, "True", known=ready)
        bench.writer.report(POD, ready)
        assert bench.writer.says(POD, "True", known=UNFIT), "what was said last counts"
        assert await bench.writer.drain(5) == 0
        (request,) = bench.server.requests
        assert request.path == "/apis/g/v1/namespaces/t/others/p/status"
        (written,) = request.json["status"]["conditions"]
        assert written["type"] == "OtherReady" and written["observedGeneration"] == 3
        assert "lastProbeTime" not in written, "conditions of pods alone have that"


def of(generation: int) -> PodCondition:
    return replace(UNFIT, observed_generation=generation)


@pytest.mark.parametrize(
    ("reports", "sent"),
    [
        # What was written, or the pod has already, is not written again; the transition time moves with the status.
        ([(UNFIT, {})] * 3, [(UNFIT, True, ...)]),
        ([(UNFIT, {"known": UNFIT})], []),
        ([(UNFIT, {}), (OTHER, {}), (FIT, {})], [(UNFIT, True, ...), (OTHER, False, ...), (FIT, True, ...)]),
        ([(OTHER, {"known": UNFIT})], [(OTHER, False, ...)]),
        ([(OTHER, {"known": FIT})], [(OTHER, True, ...)]),
        # A nominated node is set once and removed once, whatever the condition.
        (
            [(UNFIT, {"nominated": "n1"})] * 2 + [(UNFIT, {"nominated": ""})] * 2,
            [(UNFIT, True, "n1"), (UNFIT, False, None)],
        ),
        ([(UNFIT, {"known": UNFIT, "nominated": "n1"})], [(UNFIT, False, "n1")]),
        ([(UNFIT, {"known": UNFIT, "nominated": ""})], [(UNFIT, False, None)]),
        # A condition of another generation is news, and one without says nothing of it.
        (
            [(UNFIT, {}), (of(1), {}), (of(1), {}), (of(2), {})],
            [(UNFIT, True, ...), (of(1), False, ...), (of(2), False, ...)],
        ),
        # A server that keeps no generations has overwritten nothing.
        ([(of(3), {}), (of(3), {"known": UNFIT, "after": 60})], [(of(3), True, ...)]),
    ],
)
async def test_what_is_news_is_written(reports: list[Any], sent: list[Any]) -> None:
    """Of each write its condition, whether its status has changed, and the nominated node, if it says one."""
    async with writing(Answer()) as bench:
        for condition, more in reports:
            bench.time.now += more.get("after", 0)
            await bench.report(condition, **{key: each for key, each in more.items() if key != "after"})
        nodes = [body["status"].get("nominatedNodeName", ...) for body in bench.sent()]
        for each, node, (condition, moved, nominated) in zip(bench.conditions(), nodes, sent, strict=True):
            said = (each["message"], each["status"], each.get("observedGeneration"))
            assert said == (condition.message, condition.status, condition.observed_generation or None)
            assert ("lastTransitionTime" in each, node) == (moved, nominated)
        assert bench.counts.get("written", 0) == len(sent)
        assert bench.counts.get("skipped", 0) == len(reports) - len(sent)


async def test_the_newest_report_replaces_those_that_wait() -> None:
    bench = Bench(Answer())
    bench.writer.report(POD, UNFIT, nominated="n1")
    # What the watch shows is of before both.
    bench.writer.report(POD, OTHER, known=FIT)
    async with running(bench.writer.run()):
        await bench.writer.drain(5)
    (body,) = bench.sent()
    assert bench.messages() == [OTHER.message]
    # What the replaced report would have done besides is done by the one that replaced it.
    assert body["status"]["nominatedNodeName"] == "n1"
    assert "lastTransitionTime" in bench.conditions()[0]
    assert bench.counts == {"replaced": 1, "written": 1}


@pytest.mark.parametrize(
    ("answer", "attempts", "counts"),
    [
        (status(503), 5, {"replaced": 1, "written": 1}),
        (status(403, "Forbidden"), 5, {"failed": 1, "written": 1}),
        (status(503), 1, {"postponed": 1, "written": 1}),
    ],
    ids=["repeated", "refused", "put off"],
)
async def test_a_report_that_fails_gives_way_to_a_newer_one(
    answer: Answer, attempts: int, counts: dict[str, int]
) -> None:
    gate = asyncio.Event()

    async def script(_: object) -> Action:
        if len(bench.server.requests) == 1:
            await gate.wait()
            return answer
        return Answer()

    async with writing(Answer(), attempts=attempts) as bench:
        bench.server.script = script
        bench.writer.report(POD, UNFIT)
        await bench.server.arrived(1)
        bench.writer.report(POD, OTHER)
        gate.set()
        assert await bench.writer.drain(5) == 0
        assert bench.messages() == [UNFIT.message, OTHER.message]
        assert "lastTransitionTime" in bench.conditions()[1]
        assert bench.counts == counts


@pytest.mark.parametrize(
    "failure", [status(503), status(429), status(500), status(409, "Conflict"), Reset(), LOGIN_PAGE]
)
async def test_what_may_pass_is_tried_again(failure: Action) -> None:
    async with writing(failure, failure, Answer()) as bench:
        await bench.report()
        assert len(bench.server.requests) == 3
        assert bench.time.slept == [1, 2]
        assert bench.counts == {"written": 1}


@pytest.mark.promise("L2")
async def test_a_report_that_keeps_failing_lets_others_pass_and_is_written_in_the_end() -> None:
    """Given up, it would be missing until the pod is tried again: minutes after an outage that lasted seconds."""
    other = PodKey(POD.namespace, "other", "another-uid")
    async with writing(*[status(503)] * 3, Answer(), Answer(), attempts=3, concurrency=1) as bench:
        bench.writer.report(POD, UNFIT)
        bench.writer.report(other, UNFIT)
        assert await bench.writer.drain(100) == 0
        assert [each.path.split("/")[6] for each in bench.server.requests] == [*[POD.name] * 3, "other", POD.name]
        assert bench.counts == {"postponed": 1, "written": 2}


@pytest.mark.parametrize(
    "answer",
    [
        status(404, "NotFound"),
        status(422, "Invalid", causes=[{"field": "metadata.uid", "reason": "FieldValueInvalid"}]),
    ],
)
async def test_a_report_about_a_pod_that_is_no_more_is_dropped(answer: Answer) -> None:
    async with writing(answer) as bench:
        await bench.report()
        assert bench.counts == {"dropped": 1}


@pytest.mark.parametrize("code", [403, 422])
async def test_a_refused_report_is_not_repeated(code: int) -> None:
    async with writing(status(code, "No")) as bench:
        await bench.report()
        assert len(bench.server.requests) == 1
        assert bench.counts == {"failed": 1}
        # The pod has it not, so the next attempt that finds the same says it again: a role may have been mended.
        bench.server.script = in_order(Answer())
        await bench.report()
        assert bench.counts == {"failed": 1, "written": 1}


async def test_a_forgotten_pod_is_not_written_about() -> None:
    bench = Bench(Answer())
    bench.writer.report(POD, UNFIT)
    bench.writer.forget(POD)
    assert len(bench.writer) == 0
    async with running(bench.writer.run()):
        await bench.writer.drain(5)
    assert bench.server.requests == []
    assert bench.writer._last == {}


@pytest.mark.parametrize(("attempts", "at"), [(1, 1), (3, 3), (5, 1)])
async def test_a_report_is_not_repeated_once_its_pod_is_forgotten(attempts: int, at: int) -> None:
    """The pod was bound meanwhile, and the server says so in its condition."""

    def script(_: object) -> Action:
        if len(bench.server.requests) == at:
            bench.writer.forget(POD)
        return status(503)

    async with writing(Answer(), attempts=attempts) as bench:
        bench.server.script = script
        await bench.report()
        assert len(bench.server.requests) == at
        assert bench.counts == {"dropped": 1}


async def test_a_nomination_is_removed_without_saying_anything_else_of_the_pod() -> None:
    async with writing(Answer(), Answer()) as bench:
        await bench.report(nominated="n1")
        bench.writer.nominate(POD, "", known=OTHER)
        await bench.writer.drain(5)
        first, second = (each["status"] for each in bench.sent())
        assert (first["nominatedNodeName"], second["nominatedNodeName"]) == ("n1", None)
        assert second["conditions"][0]["message"] == UNFIT.message
        bench.writer.nominate(POD, "")
        bench.writer.nominate(PodKey("t", "unheard", "of"), "")
        assert len(bench.sent()) == 2


@pytest.mark.promise("L3")
async def test_who_takes_a_nomination_away_from_anothers_pod_does_not_insist_on_what_that_one_says() -> None:
    """Two writers would say in turns what each has said, for ever."""
    async with writing(Answer()) as bench:
        bench.writer.nominate(POD, "", known=OTHER)
        await bench.writer.drain(5)
        assert [each["status"] for each in bench.sent()] == [{"nominatedNodeName": None}]
        bench.writer.seen(POD, UNFIT, "9")
        assert len(bench.writer) == 0


@pytest.mark.promise("L2")
async def test_a_condition_that_was_overwritten_is_written_again_once_the_watch_has_caught_up() -> None:
    async with writing(Answer()) as bench:
        await bench.report(known=OTHER)
        # Just after the write the watch may be behind.
        bench.writer.report(POD, UNFIT, known=OTHER)
        assert bench.counts["skipped"] == 1
        bench.time.now += 11
        bench.writer.report(POD, UNFIT, known=UNFIT)
        assert bench.counts["skipped"] == 2
        bench.writer.report(POD, UNFIT, known=OTHER)
        assert await bench.writer.drain(5) == 0
        assert bench.counts["written"] == len(bench.sent()) == 2


def _answer(version: str) -> Answer:
    metadata = {"name": POD.name, "uid": POD.uid, "resourceVersion": version}
    return Answer(body={"kind": "Pod", "apiVersion": "v1", "metadata": metadata})


async def test_what_the_watch_shows_after_a_write_in_its_place_is_written_over_at_once_and_not_for_ever() -> None:
    async with writing(_answer("7"), _answer("9"), _answer("20")) as bench:
        await bench.report()
        bench.writer.seen(POD, OTHER, "6")
        bench.writer.seen(POD, UNFIT, "8")
        bench.writer.seen(POD, OTHER, "8")
        await eventually(lambda: bench.counts.get("written") == 2)
        bench.writer.seen(POD, OTHER, "8")
        before = bench.time.now
        # Two writes may have been given up, or others insist.
        bench.writer.seen(POD, OTHER, "10")
        bench.writer.seen(POD, OTHER, "11")
        await eventually(lambda: bench.counts.get("written") == 3)
        assert bench.time.now == before + 10
        bench.writer.seen(POD, OTHER, "21")
        bench.writer.forget(POD)
        bench.time.now += 11
        await bench.writer.drain(5)
        bench.writer.seen(POD, OTHER, "30")
        assert len(bench.sent()) == 3


async def test_what_an_earlier_process_has_written_is_written_again_where_the_watch_shows_another() -> None:
    async with writing(_answer("9")) as bench:
        bench.writer.report(POD, UNFIT, known=UNFIT)
        bench.writer.seen(POD, UNFIT, "7")
        assert bench.counts == {"skipped": 1}
        bench.writer.seen(POD, OTHER, "8")
        await eventually(lambda: bench.counts.get("written") == 1)
        assert bench.messages() == [UNFIT.message]


async def test_what_is_said_last_is_known_until_the_watch_shows_it_or_has_had_the_time_to() -> None:
    async with writing(_answer("7")) as bench:
        assert bench.writer.unseen(POD, "6") is None
        bench.writer.report(POD, UNFIT)
        assert bench.writer.unseen(POD, "6") == UNFIT
        assert await bench.writer.drain(5) == 0
        seen = {version: bench.writer.unseen(POD, version) for version in ("6", "7", "8")}
        assert seen == {"6": UNFIT, "7": None, "8": None}
        bench.time.now += 31
        assert bench.writer.unseen(POD, "6") is None
