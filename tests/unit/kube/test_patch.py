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


CONFLICT = status(409, "Conflict", "another version")
FORBIDDEN, GONE = status(403, "Forbidden", "no"), status(404, "NotFound")
#: Of a status the API server takes no notice of the UID, and carries the patch of a namesake out.
ANOTHER = thing("6", done=True, uid="another")
BEFORE = thing("5", done=False)
SENT, LOOKED, AGAIN = ["PATCH"], ["PATCH", "GET"], ["PATCH", "GET", "PATCH"]


@pytest.mark.parametrize(
    ("patches", "gets", "options", "version", "failed", "is_open", "asked"),
    [
        ([thing("6", done=True)], [BEFORE], {}, "6", None, False, SENT),
        # What was lost is looked for, and sent again if it is not there, or can no longer be carried out.
        ([Reset()], [thing("7", done=True)], {}, "7", None, False, LOOKED),
        ([Reset(), thing("6", done=True)], [BEFORE], {}, "6", None, False, AGAIN),
        ([Reset(), GONE], [GONE], {}, "", FailureClass.NOT_FOUND, False, LOOKED),
        # A conflict may be with the patch itself.
        ([CONFLICT], [thing("6", done=True)], {}, "6", None, False, LOOKED),
        ([CONFLICT], [thing("6", done=False)], {}, "", FailureClass.CONFLICT, False, LOOKED),
        ([ANOTHER], [ANOTHER], {}, "", FailureClass.NOT_FOUND, False, LOOKED),
        ([FORBIDDEN], [BEFORE], {}, "", FailureClass.PERMANENT, False, SENT),
        ([Reset()], [BEFORE], {"repeats": False}, "", FailureClass.UNKNOWN, True, SENT),
        ([FORBIDDEN], [BEFORE], {"repeats": False}, "", FailureClass.PERMANENT, False, SENT),
    ],
)
async def test_what_a_patch_comes_to(
    patches: list[Action],
    gets: list[Action],
    options: dict[str, bool],
    version: str,
    failed: FailureClass | None,
    is_open: bool,
    asked: list[str],
) -> None:
    server = Server([*patches], [*gets])
    found = await patched(server, **options)
    assert (found.resource_version, found.failure and found.failure.kind) == (version, failed)
    assert (found.is_open, server.asked) == (is_open, asked)
    if asked == LOOKED and not failed:
        assert msgspec.json.decode(found.found)["metadata"]["resourceVersion"] == version


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


async def test_a_server_that_asks_for_patience_gets_it() -> None:
    time = FakeTime()
    slow = status(429, "TooManyRequests")
    slow.headers["Retry-After"] = "7"
    assert await patched(Server([slow, thing("6", done=True)]), timing=time.timing) == Patched("6")
    assert time.slept == [7]


async def test_what_is_called_off_after_a_lost_answer_may_still_be_carried_out() -> None:
    server = Server([Reset()])
    found = await patched(server, wanted=lambda: not server.asked)
    assert found == Patched("", CALLED_OFF, is_open=True)
    assert server.asked == ["PATCH"]
