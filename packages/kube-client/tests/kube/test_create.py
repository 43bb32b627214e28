"""An object is made once however often that is asked for, and never is another one deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kube_client.create import CreateResult, create_each, create_once, delete_once
from kube_client.errors import Failure, FailureClass
from kube_client.patch import CALLED_OFF
from kube_client.testing.scripted import (
    LOGIN_PAGE,
    Action,
    Answer,
    FakeTime,
    Request,
    Reset,
    always,
    answering,
    in_order,
    status,
)

BODY = b'{"metadata":{"name":"c","annotations":{"a":"1"}},"spec":{"n":1}}'
THING: dict[str, Any] = {"kind": "Thing", "apiVersion": "g/v1", "spec": {"n": 1}}
OURS: dict[str, Any] = THING | {"metadata": {"name": "c", "uid": "u", "annotations": {"a": "1"}}}
THEIRS: dict[str, Any] = THING | {"metadata": {"name": "c", "uid": "v"}}
TAKEN = status(409, "AlreadyExists")


async def created(*actions: Action, wanted: Callable[[], bool] = always) -> tuple[CreateResult, list[Request]]:
    server, transport = answering(in_order(*actions))
    path, timing = "/apis/g/v1/things", FakeTime().timing
    return await create_once(transport, path, "c", BODY, wanted=wanted, timing=timing), server.requests


async def test_an_object_is_made_with_one_request() -> None:
    made, (request,) = await created(Answer(201, OURS))
    assert (json.loads(made.found), made.failure) == (OURS, None)
    assert (request.method, request.path, request.body) == ("POST", "/apis/g/v1/things", BODY)


MADE, FREE = Answer(201, OURS), status(404, "NotFound")
CONFLICT = FailureClass.CONFLICT
HAVE_OURS, HAVE_THEIRS = Answer(200, OURS), Answer(200, THEIRS)


@pytest.mark.parametrize(
    ("actions", "found", "failed", "is_open", "requests"),
    [
        *(
            ([lost, TAKEN, HAVE_OURS], OURS, None, True, "POST POST GET")
            for lost in (Reset(), status(500, "InternalError"), status(504, "Timeout"), LOGIN_PAGE)
        ),
        # What was there before is a conflict, whatever it says, and what is somebody else's.
        ([Reset(), TAKEN, LOGIN_PAGE, HAVE_OURS], OURS, None, True, "POST POST GET GET"),
        ([TAKEN, HAVE_OURS], OURS, CONFLICT, False, "POST GET"),
        ([TAKEN, HAVE_THEIRS], THEIRS, CONFLICT, False, "POST GET"),
        ([Reset(), TAKEN, HAVE_THEIRS], THEIRS, CONFLICT, True, "POST POST GET"),
        # A name that becomes free is taken; what comes after that is not what was sent before.
        ([TAKEN, FREE, MADE], OURS, None, False, "POST GET POST"),
        ([Reset(), TAKEN, FREE, TAKEN, HAVE_OURS], OURS, CONFLICT, True, "POST POST GET POST GET"),
        ([status(403, "Forbidden")], {}, FailureClass.PERMANENT, False, "POST"),
    ],
)
async def test_what_the_making_of_an_object_comes_to(
    actions: list[Action], found: Any, failed: FailureClass | None, is_open: bool, requests: str
) -> None:
    made, sent = await created(*actions)
    there = json.loads(made.found or b"{}")
    assert (there, made.failure and made.failure.kind, made.is_open) == (found, failed, is_open)
    assert " ".join(each.method for each in sent) == requests
    assert sent[-1].path == "/apis/g/v1/things" + ("/c" if sent[-1].method == "GET" else "")


async def test_nothing_is_sent_for_what_is_no_longer_wanted() -> None:
    answers = iter((True, True, False))
    made, requests = await created(status(429, "TooManyRequests"), wanted=lambda: next(answers))
    assert made == CreateResult(b"", CALLED_OFF) and len(requests) == 1


async def test_each_of_several_objects_is_made_as_one_is_and_only_some_at_a_time() -> None:
    """The first is sent by a task, as no connection is open. `c1` exists, and the response about `c3` is lost."""
    lost, most = [True], 0
    under_way: set[str] = set()

    def body(name: str) -> bytes:
        return json.dumps({"metadata": {"name": name}, "spec": {"n": 1}}).encode()

    def script(request: Request) -> Action:
        nonlocal most
        name = request.path.rpartition("/")[2] if request.method == "GET" else request.json["metadata"]["name"]
        under_way.add(name)
        most = max(most, len(under_way))
        there = THING | {"metadata": {"name": name, "uid": f"u-{name}"}}
        if request.method == "GET":
            return Answer(200, there)
        if name == "c3" and lost:
            lost.clear()
            return Reset()
        return TAKEN if name in ("c1", "c3") else Answer(201, there)

    server, transport = answering(script)
    results: dict[int, CreateResult] = {}

    def ended(index: int, made: CreateResult) -> None:
        under_way.discard(f"c{index}")
        results[index] = made

    await create_each(
        *(transport, "/apis/g/v1/things", ((f"c{index}", body(f"c{index}")) for index in range(6))),
        most=2,
        wanted=always,
        ended=ended,
        timing=FakeTime().timing,
    )
    assert sorted(results) == [0, 1, 2, 3, 4, 5] and most == 2
    assert {index: json.loads(made.found)["metadata"]["uid"] for index, made in results.items()} == {
        index: f"u-c{index}" for index in range(6)
    }
    assert [index for index, made in results.items() if made.failure is not None] == [1]
    assert results[3].is_open and len(server.seen("POST")) == 7


async def test_nothing_is_made_any_more_once_that_is_not_wanted() -> None:
    server, transport = answering(in_order(MADE))
    results: list[CreateResult] = []
    wanted = iter((True, True))
    await create_each(
        *(transport, "/apis/g/v1/things", [("c", BODY)] * 3),
        most=1,
        wanted=lambda: next(wanted, False),
        ended=lambda _index, made: results.append(made),
        timing=FakeTime().timing,
    )
    assert len(server.requests) <= 1 and results[-1].failure is CALLED_OFF


async def deleted(*actions: Action, wanted: Callable[[], bool] = always) -> tuple[Failure | None, list[Request]]:
    server, transport = answering(in_order(*actions))
    path, timing = "/apis/g/v1/things/c", FakeTime().timing
    return await delete_once(transport, path, "u", wanted=wanted, timing=timing), server.requests


async def test_an_object_is_deleted_by_its_uid() -> None:
    failure, (request,) = await deleted(Answer())
    assert failure is None and request.method == "DELETE"
    assert request.json == {"preconditions": {"uid": "u"}}


@pytest.mark.parametrize("gone", [status(404, "NotFound"), status(409, "Conflict")])
async def test_an_object_that_is_gone_or_another_one_is_as_good_as_deleted(gone: Action) -> None:
    failure, requests = await deleted(Reset(), LOGIN_PAGE, gone)
    assert failure is None and len(requests) == 3


async def test_a_deletion_that_keeps_failing_is_given_up() -> None:
    failure, requests = await deleted(*[status(503, "ServiceUnavailable")] * 5)
    assert failure is not None and len(requests) == 5
    failure, requests = await deleted(status(403, "Forbidden"))
    assert failure is not None and len(requests) == 1
    assert await deleted(wanted=lambda: False) == (CALLED_OFF, [])
