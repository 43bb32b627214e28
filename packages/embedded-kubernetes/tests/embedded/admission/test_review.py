"""Invalid answers of webhooks, and the errors that a client gets for them."""

from __future__ import annotations

import pytest

from embedded.support import cases
from embedded_kubernetes.admission import review


def _wrong(status: int, content_type: str, text: bytes) -> str:
    with pytest.raises(review.BadAnswer) as bad:
        review.decoded(status, content_type, text, version="v1")
    return str(bad.value)


@cases("""
    status | content_type | said
    400 | text/plain | the server rejected our request for an unknown reason
    401 | '' | the server has asked for the client to provide credentials
    403 | text/plain | why
    403 | application/json | unknown
    405 | text/html; charset=utf-8 | the server does not allow this method on the requested resource
    406 | application/json | the server was unable to respond with a content type that the client supports
    406 | text/plain | why
    418 | text/plain | the server responded with the status code 418 but did not return more information
    429 | text/plain | the server has received too many requests and has asked us to try again later
    502 | text/plain | an error on the server ("why") has prevented the request from succeeding
    503 | text/plain | the server is currently unable to handle the request
    """)
def test_a_refusal_is_told_by_its_code(status, content_type, said) -> None:
    assert _wrong(status, content_type, b"why\n") == said


@cases(r"""
    text | said
    '{nope' | invalid character 'n' looking for beginning of object key string
    nope | 'json parse error: json: cannot unmarshal string into Go value of type struct {'
    '7' | cannot unmarshal number into
    '- a' | cannot unmarshal array into
    '"' | 'yaml: '
    '[]' | 'json: cannot unmarshal array into Go value of type struct { APIVersion string
        "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
    '{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m"}' | m
    '{"response": 7}' | cannot unmarshal number into Go struct field AdmissionReview.response of type
    '{"response": {"warnings": [1]}}' | cannot unmarshal number into Go struct field
        AdmissionResponse.response.warnings of type string
    '{"response": {"auditAnnotations": {"a": 1}}}' | AdmissionResponse.response.auditAnnotations of type string
    '{"response": {"status": {"code": "x"}}}' | Status.response.status.code of type int32
    '{"response": {"patch": {}}}' | AdmissionResponse.response.patch of type []uint8
    """)
def test_a_body_that_does_not_fit_is_told_by_its_place(text, said) -> None:
    assert said in _wrong(200, "application/json", text.encode())


def test_names_that_are_left_out_are_those_that_were_asked_for() -> None:
    found = review.decoded(200, "", b'{"response": {"uid": "u", "allowed": true}}', version="v1")
    with pytest.raises(review.BadAnswer, match="got /, Kind="):
        review.verified(found, b"", version="v1", uid="u", mutating=True)
    assert review.verified(found, b"", version="v1beta1", uid="u", mutating=True).allowed


@pytest.mark.parametrize(("text", "at"), [("***", 0), ("abc*", 3), ("ab", 2)])
def test_a_patch_that_is_no_base64_is_told_where(text: str, at: int) -> None:
    with pytest.raises(review.BadAnswer, match=f"illegal base64 data at input byte {at}"):
        review.patch_of({"response": {"patch": text}})


def test_an_empty_type_of_patch_is_none() -> None:
    response = {"uid": "u", "patchType": ""}
    found = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    with pytest.raises(review.BadAnswer, match=r'invalid response\.patchType of ""'):
        review.verified(found, b"[]", version="v1", uid="u", mutating=True)
