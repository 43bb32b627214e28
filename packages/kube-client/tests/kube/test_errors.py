from __future__ import annotations

import json

import pytest

from kube_client.errors import MAX_RETRY_AFTER, Failure, FailureClass, classify
from kube_client.transport import Headers, Response

from .recordings import recorded


def response(status: int, body: object = None, **headers: str) -> Response:
    said = {"kind": "Status", "apiVersion": "v1"} | (body if isinstance(body, dict) else {})
    content = body if isinstance(body, bytes) else json.dumps(said).encode()
    pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return Response(status, content, Headers(pairs))


def failure(status: int, body: object = None, **headers: str) -> Failure:
    found = classify(response(status, body, **headers))
    assert found is not None
    return found


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_success_is_no_failure(status: int) -> None:
    assert classify(response(status)) is None


@pytest.mark.parametrize("kind", FailureClass)
def test_what_may_pass_may_be_tried_again(kind: FailureClass) -> None:
    assert Failure(kind).retryable is (kind in (FailureClass.TRANSIENT, FailureClass.UNKNOWN))


def test_a_body_that_is_no_status_is_quoted() -> None:
    found = failure(502, b"<html>bad gateway</html>")
    assert found.message == "not from the API server: <html>bad gateway</html>"
    assert len(failure(502, b"x" * 10_000).message) < 250


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("Sat, 21 Nov 2026 00:00:09 GMT", 9.0),
        ("Sat, 21 Nov 2025 00:00:09 GMT", None),
        ("soon", None),
        ("-1", None),
        ("nan", None),
        ("1e9", MAX_RETRY_AFTER),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    found = failure(429, Retry_After=text, Date="Sat, 21 Nov 2026 00:00:00 GMT")
    assert found.retry_after == seconds


def test_the_status_may_say_when_to_come_back() -> None:
    assert failure(429, {"details": {"retryAfterSeconds": 2}}).retry_after == 2
    assert failure(429, {"details": {"retryAfterSeconds": 1e9}}).retry_after == MAX_RETRY_AFTER
    assert failure(429, {"details": {"retryAfterSeconds": 2}}, Retry_After="5").retry_after == 5


def test_every_recorded_refusal_is_read_with_its_reason() -> None:
    seen = 0
    for exchange in recorded():
        answer = exchange.get("response")
        if answer is None or answer["status"] < 400 or not isinstance(answer["body"], dict):
            continue
        found = failure(answer["status"], answer["body"])
        assert found.reason == answer["body"].get("reason", ""), exchange["name"]
        assert found.message == answer["body"]["message"], exchange["name"]
        seen += 1
    assert seen > 20


@pytest.mark.parametrize(
    ("status", "retry_after", "throttles"), [(429, None, True), (503, 1.0, True), (503, None, False)]
)
def test_a_server_that_says_when_to_come_back_has_more_to_do_than_it_can(
    status: int, retry_after: float | None, throttles: bool
) -> None:
    assert Failure(FailureClass.UNKNOWN, status, retry_after=retry_after).throttles is throttles
