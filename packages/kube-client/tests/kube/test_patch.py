"""A patch that is made once: awaited, or sent without a task and gone on with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_client.errors import FailureClass
from kube_client.patch import CALLED_OFF, Patched, patch_once
from kube_client.testing.scripted import (
    LOGIN_PAGE,
    Action,
    Answer,
    FakeTime,
    Reset,
    answering,
    by_method,
    in_order,
    status,
)

PATH = "/apis/x/v1/namespaces/t/things/a"
BODY = b'{"metadata":{"uid":"u","resourceVersion":"5"},"status":{"done":true}}'


def thing(version: str, *, done: bool, uid: str = "u") -> Answer:
    metadata = {"name": "a", "uid": uid, "resourceVersion": version}
    return Answer(body={"kind": "Thing", "apiVersion": "x/v1", "metadata": metadata, "status": {"done": done}})


async def patched(
    patches: list[Action], gets: list[Action] | None = None, *, body: bytes = BODY, **options: Any
) -> tuple[Patched, list[str]]:
    """What the patch comes to, and the methods of the requests that it took."""
    server, transport = answering(by_method(PATCH=patches, GET=gets or [thing("5", done=False)]))
    options = {"timing": FakeTime().timing, **options}
    found = await patch_once(transport, PATH, body, wanted=lambda: True, **options)
    return found, [request.method for request in server.requests]


CONFLICT = status(409, "Conflict", "another version")
FORBIDDEN, GONE = status(403, "Forbidden", "no"), status(404, "NotFound")
#: Of a status the API server takes no notice of the UID, and carries the patch of a namesake out.
ANOTHER = thing("6", done=True, uid="another")
BEFORE = thing("5", done=False)
SENT, LOOKED, AGAIN = ["PATCH"], ["PATCH", "GET"], ["PATCH", "GET", "PATCH"]
TWICE = ["PATCH", "GET", "GET", "PATCH"]


@pytest.mark.parametrize(
    ("patches", "gets", "options", "version", "failed", "is_open", "asked"),
    [
        ([thing("6", done=True)], [BEFORE], {}, "6", None, False, SENT),
        # What was lost is looked for, and sent again if it is not there, or can no longer be carried out.
        ([Reset()], [thing("7", done=True)], {}, "7", None, False, LOOKED),
        ([Reset(), thing("6", done=True)], [BEFORE], {}, "6", None, False, AGAIN),
        ([LOGIN_PAGE, thing("6", done=True)], [LOGIN_PAGE, BEFORE], {}, "6", None, False, TWICE),
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
    found, sent = await patched(patches, gets, **options)
    assert (found.resource_version, found.failure and found.failure.kind) == (version, failed)
    assert (found.is_open, sent) == (is_open, asked)
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

    body = b'{"metadata":{"uid":"u","resourceVersion":"5"},"status":{"reservedFor":[{"$patch":"delete","uid":"p"}]}}'
    found, sent = await patched([Reset(), holding("7", [])], [holding("6", left)], body=body, strategic=True)
    assert found.failure is None and found.resource_version == ("7" if again else "6")
    assert sent == (AGAIN if again else LOOKED)


async def test_a_server_that_asks_for_patience_gets_it() -> None:
    time = FakeTime()
    slow = status(429, "TooManyRequests")
    slow.headers["Retry-After"] = "7"
    found, _ = await patched([slow, thing("6", done=True)], timing=time.timing)
    assert (found, time.slept) == (Patched("6"), [7])


async def test_what_is_called_off_after_a_lost_answer_may_still_be_carried_out() -> None:
    server, transport = answering(in_order(Reset()))
    timing = FakeTime().timing
    found = await patch_once(transport, PATH, BODY, wanted=lambda: not server.requests, timing=timing)
    assert found == Patched("", CALLED_OFF, is_open=True)
    assert len(server.requests) == 1
