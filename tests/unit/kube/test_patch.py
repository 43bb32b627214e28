"""A patch that is made once: awaited, or sent without a task and gone on with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.kube.errors import FailureClass
from agent_scheduler.kube.patch import CALLED_OFF, Patched, patch_once
from tests.support.scripted import Action, Answer, FakeTime, Request, Reset, answering, status

PATH = "/apis/x/v1/namespaces/t/things/a"
BODY = b'{"metadata":{"uid":"u","resourceVersion":"5"},"status":{"done":true}}'


def thing(version: str, *, done: bool, uid: str = "u") -> Answer:
    metadata = {"name": "a", "uid": uid, "resourceVersion": version}
    return Answer(
        body={"kind": "Thing", "apiVersion": "x/v1", "metadata": metadata, "status": {"done": done}}
    )


class Server:
    """Answers patches and questions each from a list of its own; the last one goes on for ever."""

    def __init__(self, patches: list[Action], gets: list[Action] | None = None) -> None:
        self.actions = {"PATCH": patches, "GET": gets or [thing("5", done=False)]}
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Action:
        self.asked.append(request.method)
        actions = self.actions[request.method]
        return actions.pop(0) if len(actions) > 1 else actions[0]


async def patched(
    server: Server, *, body: bytes = BODY, wanted: Any = lambda: True, **options: Any
) -> Patched:
    options = {"timing": FakeTime().timing, **options}
    return await patch_once(answering(server)[1], PATH, body, wanted=wanted, **options)


async def test_a_patch_that_is_carried_out_gives_the_version_that_has_it() -> None:
    server = Server([thing("6", done=True)])
    assert await patched(server) == Patched("6")
    assert server.asked == ["PATCH"]


async def test_a_patch_whose_answer_was_lost_is_looked_for_before_it_is_sent_again() -> None:
    server = Server([Reset()], [thing("7", done=True)])
    found = await patched(server)
    assert found[:3] == Patched("7")[:3]
    assert msgspec.json.decode(found.found)["metadata"]["resourceVersion"] == "7"
    assert server.asked == ["PATCH", "GET"]


async def test_a_lost_patch_that_is_not_there_is_sent_again() -> None:
    server = Server([Reset(), thing("6", done=True)], [thing("5", done=False)])
    assert await patched(server) == Patched("6")
    assert server.asked == ["PATCH", "GET", "PATCH"]


async def test_a_conflict_may_be_with_the_patch_itself() -> None:
    conflict = status(409, "Conflict", "another version")
    found = await patched(Server([conflict], [thing("6", done=True)]))
    assert found[:3] == Patched("6")[:3]
    found = await patched(Server([conflict], [thing("6", done=False)]))
    assert found.failure is not None and found.failure.kind is FailureClass.CONFLICT


async def test_a_patch_of_a_subresource_that_is_a_namesakes_by_now_is_not_sent_for_ever() -> None:
    """Of a status the API server takes no notice of the UID, and carries it out."""
    another = thing("6", done=True, uid="another")
    server = Server([another], [another])
    found = await patched(server)
    assert found.failure is not None and found.failure.kind is FailureClass.NOT_FOUND
    assert server.asked == ["PATCH", "GET"]


async def test_a_lost_patch_of_an_object_that_is_gone_can_no_longer_be_carried_out() -> None:
    gone = status(404, "NotFound")
    server = Server([Reset(), gone], [gone])
    found = await patched(server)
    assert found.failure is not None and found.failure.kind is FailureClass.NOT_FOUND
    assert not found.is_open
    assert server.asked == ["PATCH", "GET"]


@pytest.mark.parametrize(("left", "again"), [([], False), (["p"], True), (["other"], False)])
async def test_a_lost_patch_that_takes_an_item_out_is_sent_again_while_the_item_is_there(
    left: list[str], again: bool
) -> None:
    def holding(version: str, uids: list[str]) -> Answer:
        answer = thing(version, done=False)
        answer.body["status"] = {"reservedFor": [{"resource": "pods", "uid": uid} for uid in uids]}
        return answer

    body = (
        b'{"metadata":{"uid":"u","resourceVersion":"5"},'
        b'"status":{"reservedFor":[{"$patch":"delete","uid":"p"}]}}'
    )
    server = Server([Reset(), holding("7", [])], [holding("6", left)])
    found = await patched(server, body=body, strategic=True)
    assert found.failure is None and found.resource_version == ("7" if again else "6")
    assert server.asked == ["PATCH", "GET", "PATCH"][: 3 if again else 2]


async def test_a_refusal_is_the_end() -> None:
    server = Server([status(403, "Forbidden", "no")])
    found = await patched(server)
    assert found.failure is not None and found.failure.status == 403 and not found.is_open
    assert server.asked == ["PATCH"]


async def test_a_server_that_asks_for_patience_gets_it() -> None:
    time = FakeTime()
    slow = status(429, "TooManyRequests")
    slow.headers["Retry-After"] = "7"
    assert await patched(Server([slow, thing("6", done=True)]), timing=time.timing) == Patched("6")
    assert time.slept == [7]


@pytest.mark.parametrize(("action", "is_open"), [(Reset(), True), (status(403, "Forbidden"), False)])
async def test_what_is_not_to_be_repeated_is_sent_once(action: Action, is_open: bool) -> None:
    server = Server([action])
    found = await patched(server, repeats=False)
    assert found.failure is not None and found.is_open == is_open
    assert server.asked == ["PATCH"]


async def test_what_is_called_off_after_a_lost_answer_may_still_be_carried_out() -> None:
    server = Server([Reset()])
    found = await patched(server, wanted=lambda: not server.asked)
    assert found == Patched("", CALLED_OFF, is_open=True)
    assert server.asked == ["PATCH"]
