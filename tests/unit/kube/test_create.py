"""An object is made once however often that is asked for, and never is another one deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_scheduler.kube.create import Made, create_once, delete_once
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.patch import CALLED_OFF
from tests.support.scripted import Action, Answer, FakeTime, Request, Reset, answering, in_order, status

BODY = b'{"metadata":{"name":"c","annotations":{"a":"1"}},"spec":{"n":1}}'
THING: dict[str, Any] = {"kind": "Thing", "apiVersion": "g/v1", "spec": {"n": 1}}
OURS: dict[str, Any] = THING | {"metadata": {"name": "c", "uid": "u", "annotations": {"a": "1"}}}
THEIRS: dict[str, Any] = THING | {"metadata": {"name": "c", "uid": "v"}}
TAKEN = status(409, "AlreadyExists")


def always() -> bool:
    return True


async def created(*actions: Action, wanted: Callable[[], bool] = always) -> tuple[Made, list[Request]]:
    server, transport = answering(in_order(*actions))
    path, timing = "/apis/g/v1/things", FakeTime().timing
    return await create_once(transport, path, "c", BODY, wanted=wanted, timing=timing), server.requests


async def test_an_object_is_made_with_one_request() -> None:
    made, (request,) = await created(Answer(201, OURS))
    assert made == Made(OURS, None)
    assert (request.method, request.path, request.body) == ("POST", "/apis/g/v1/things", BODY)


@pytest.mark.parametrize("lost", [Reset(), status(500, "InternalError"), status(504, "Timeout")])
async def test_an_object_whose_making_was_not_answered_is_looked_for(lost: Action) -> None:
    made, requests = await created(lost, TAKEN, Answer(200, OURS))
    assert made == Made(OURS, None, is_open=True)
    assert [each.method for each in requests] == ["POST", "POST", "GET"]
    assert requests[-1].path == "/apis/g/v1/things/c"


@pytest.mark.parametrize("before", [(), (Reset(),)])
async def test_an_object_of_somebody_else_is_a_conflict(before: tuple[Action, ...]) -> None:
    made, _ = await created(*before, TAKEN, Answer(200, THEIRS))
    assert made.found == THEIRS
    assert made.failure is not None and made.failure.kind is FailureClass.CONFLICT


async def test_an_object_that_was_there_before_is_a_conflict_whatever_it_says() -> None:
    made, _ = await created(TAKEN, Answer(200, OURS))
    assert made.found == OURS and made.failure is not None


async def test_a_name_that_becomes_free_is_taken() -> None:
    made, requests = await created(TAKEN, status(404, "NotFound"), Answer(201, OURS))
    assert made == Made(OURS, None) and len(requests) == 3


async def test_an_object_that_came_when_there_was_none_is_not_what_was_sent_before() -> None:
    made, requests = await created(Reset(), TAKEN, status(404, "NotFound"), TAKEN, Answer(200, OURS))
    assert made.failure is not None and made.failure.kind is FailureClass.CONFLICT
    assert made.is_open and len(requests) == 5


async def test_what_is_refused_for_good_is_not_repeated() -> None:
    made, requests = await created(status(403, "Forbidden"))
    assert made.failure is not None and made.failure.status == 403 and len(requests) == 1


async def test_nothing_is_sent_for_what_is_no_longer_wanted() -> None:
    answers = iter((True, True, False))
    made, requests = await created(status(429, "TooManyRequests"), wanted=lambda: next(answers))
    assert made == Made({}, CALLED_OFF) and len(requests) == 1


async def deleted(
    *actions: Action, wanted: Callable[[], bool] = always
) -> tuple[Failure | None, list[Request]]:
    server, transport = answering(in_order(*actions))
    path, timing = "/apis/g/v1/things/c", FakeTime().timing
    return await delete_once(transport, path, "u", wanted=wanted, timing=timing), server.requests


async def test_an_object_is_deleted_by_its_uid() -> None:
    failure, (request,) = await deleted(Answer())
    assert failure is None and request.method == "DELETE"
    assert request.json == {"preconditions": {"uid": "u"}}


@pytest.mark.parametrize("gone", [status(404, "NotFound"), status(409, "Conflict")])
async def test_an_object_that_is_gone_or_another_one_is_as_good_as_deleted(gone: Action) -> None:
    assert (await deleted(Reset(), gone))[0] is None


async def test_a_deletion_that_keeps_failing_is_given_up() -> None:
    failure, requests = await deleted(*[status(503, "ServiceUnavailable")] * 5)
    assert failure is not None and len(requests) == 5
    failure, requests = await deleted(status(403, "Forbidden"))
    assert failure is not None and len(requests) == 1
    assert await deleted(wanted=lambda: False) == (CALLED_OFF, [])
