"""An eviction says why before it deletes, names its pod by UID, repeats what may be repeated, and can be called off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kube_client import http1
from kube_client.eviction import Evicted, evict
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
from kube_client.transport import FencedTransport, PodKey

from .raw_server import client, wired

POD = PodKey("t", "p", "u")


async def evicted(*actions: Action, wanted: Callable[[], bool] = always) -> tuple[Evicted, list[Request], Any]:
    server, transport = answering(in_order(*actions))
    timing = FakeTime().timing
    outcome, failure = await evict(transport, POD, message="why", wanted=wanted, timing=timing)
    return outcome, server.requests, failure


@pytest.mark.promise("S15")
async def test_the_condition_is_written_and_then_the_pod_is_deleted_by_its_uid() -> None:
    outcome, (patch, deletion), failure = await evicted(Answer(), Answer())
    assert (outcome, failure) == (Evicted.DELETED, None)
    assert (patch.method, patch.path) == ("PATCH", "/api/v1/namespaces/t/pods/p/status")
    assert patch.headers["content-type"] == "application/strategic-merge-patch+json"
    (condition,) = patch.json["status"]["conditions"]
    assert patch.json["metadata"] == {"uid": "u"}
    assert condition.pop("lastTransitionTime").endswith("Z")
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "why",
        "lastProbeTime": None,
    }
    assert (deletion.method, deletion.path) == ("DELETE", "/api/v1/namespaces/t/pods/p")
    assert deletion.json == {"preconditions": {"uid": "u"}}


ANOTHER_POD = status(422, "Invalid", causes=[{"reason": "FieldValueInvalid", "field": "metadata.uid"}])


@pytest.mark.parametrize(
    ("actions", "requests"),
    [
        ((status(404, "NotFound"),), 1),
        ((ANOTHER_POD,), 1),
        ((Answer(), status(404, "NotFound")), 2),
        ((Answer(), status(409, "Conflict")), 2),
    ],
)
async def test_a_pod_that_is_not_there_any_more_needs_no_eviction(actions: Any, requests: int) -> None:
    outcome, sent, _ = await evicted(*actions)
    assert outcome is Evicted.GONE
    assert len(sent) == requests


async def test_what_failed_for_now_is_sent_again() -> None:
    outcome, sent, _ = await evicted(
        *(LOGIN_PAGE, status(503, "ServiceUnavailable"), status(409, "Conflict"), Answer()),
        *(Reset(), LOGIN_PAGE, Answer()),
    )
    assert outcome is Evicted.DELETED
    assert [request.method for request in sent] == ["PATCH"] * 4 + ["DELETE"] * 3


async def test_what_is_refused_for_good_or_too_often_has_failed() -> None:
    outcome, sent, failure = await evicted(status(403, "Forbidden", "not yours"))
    assert (outcome, len(sent)) == (Evicted.FAILED, 1)
    assert "not yours" in str(failure)
    outcome, sent, _ = await evicted(*(status(500, "InternalError") for _ in range(9)))
    assert (outcome, len(sent)) == (Evicted.FAILED, 5)


@pytest.mark.parametrize("sent", [0, 1])
@pytest.mark.promise("S15")
async def test_an_eviction_that_nobody_wants_any_more_is_not_carried_out(sent: int) -> None:
    server, transport = answering(in_order(Answer()))
    outcome, _ = await evict(transport, POD, message="why", wanted=lambda: len(server.requests) < sent)
    assert outcome is Evicted.CALLED_OFF
    assert len(server.requests) == sent


@pytest.mark.parametrize("leads", [None, lambda: True])
@pytest.mark.parametrize("sent", [0, 1])
async def test_an_eviction_that_nobody_wants_any_more_when_its_credentials_come_is_not_carried_out(
    sent: int, leads: Callable[[], bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "_CREDENTIALS_SECONDS", 0.0)
    patched = b'HTTP/1.1 200 OK\r\nContent-Length: 56\r\n\r\n{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}'
    is_wanted, given = True, 0

    async def headers() -> Mapping[str, str]:
        nonlocal is_wanted, given
        await asyncio.sleep(0)
        is_wanted, given = given < sent, given + 1
        return {}

    async with wired([[patched]]) as server, client(server, headers=headers) as http:
        transport = http if leads is None else FencedTransport(http, leads)
        outcome, _ = await evict(transport, POD, message="why", wanted=lambda: is_wanted)
        assert (outcome, len(server.requests), given) == (Evicted.CALLED_OFF, sent, sent + 1)
