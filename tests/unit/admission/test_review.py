"""AdmissionReviews in and out."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agent_scheduler.admission import queues
from agent_scheduler.admission.review import (
    ALLOWED,
    Change,
    UnreadableReview,
    allowed_with,
    read_review,
    refused,
    review,
    write_review,
)

from .reviews import request


def body(**changed: Any) -> bytes:
    asked = {"uid": "u", "operation": "CREATE", "object": {"metadata": {"name": "p"}}}
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked, **changed}
    ).encode()


def test_a_request_is_read_with_its_object_as_it_is() -> None:
    found = read_review(body())
    assert (found.uid, found.operation, found.namespace) == ("u", "CREATE", "")
    assert json.loads(bytes(found.object)) == {"metadata": {"name": "p"}}
    assert bytes(found.old_object) == b"null"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "not an AdmissionReview: Input data was truncated"),
        (b"[]", "not an AdmissionReview: Expected `object`, got `array`"),
        (
            body(request={"uid": "u"}),
            "not an AdmissionReview: Object missing required field `operation` - at `$.request`",
        ),
        (
            body(apiVersion="admission.k8s.io/v1beta1"),
            "found admission.k8s.io/v1beta1, AdmissionReview; allowed: admission.k8s.io/v1, AdmissionReview",
        ),
        (
            body(kind=""),
            "found admission.k8s.io/v1, no kind; allowed: admission.k8s.io/v1, AdmissionReview",
        ),
    ],
)
def test_what_is_no_review_is_told_why(text: bytes, expected: str) -> None:
    with pytest.raises(UnreadableReview) as caught:
        read_review(text)
    assert str(caught.value) == expected


def test_answers_name_the_request_and_have_only_what_they_say() -> None:
    asked = read_review(body())

    def response(answer: Any) -> Any:
        written = json.loads(write_review(asked, answer))
        assert (written["apiVersion"], written["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        return written["response"]

    assert response(ALLOWED) == {"uid": "u", "allowed": True}
    assert response(refused("no")) == {"uid": "u", "allowed": False, "status": {"message": "no"}}
    assert response(allowed_with([])) == {"uid": "u", "allowed": True}
    patched = response(allowed_with([Change("add", "/spec/weight", 1)]))
    assert json.loads(base64.b64decode(patched.pop("patch"))) == [
        {"op": "add", "path": "/spec/weight", "value": 1}
    ]
    assert patched == {"uid": "u", "allowed": True, "patchType": "JSONPatch"}


def test_an_object_with_a_field_of_another_type_is_refused() -> None:
    answer = review(queues.mutate, request({"metadata": {"name": "q"}, "spec": {"weight": "many"}}))
    assert answer == (False, "cannot read the object: Expected `int`, got `str` - at `$.spec.weight`", ())
