"""The table of answers: who gave one, about which object, and whether it was done; each status, body and verb."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from kube_client.answers import RequestInfo, Verb, asked_at, read
from kube_client.errors import Failure, FailureClass, Missing, ResponseOrigin
from kube_client.transport import NotSent, OutcomeUnknown, Response, collection_at

STATUSES = (200, 201, 202, 301, 302, 307, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 425, 429)
FAULTS = (500, 501, 502, 503, 504, 520)
JSON = {"Content-Type": "application/json"}
HTML = {"Content-Type": "text/html; charset=utf-8"}
TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def thing(name: str = "p", uid: str = "u", **more: Any) -> bytes:
    return json.dumps(
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "uid": uid}, "status": {}, **more}
    ).encode()


def said(status: str = "Failure", *, version: str = "v1", **more: Any) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": version, "status": status, **more}).encode()


def named(name: str = "p", kind: str = "pods", uid: str = "") -> dict[str, Any]:
    return {"reason": "NotFound", "details": {"name": name, "kind": kind, "uid": uid}}


#: As kube-apiserver answers a bind, to the byte.
BOUND = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
#: Bodies of answers of something on the way, whatever their status.
FOREIGN: dict[str, tuple[bytes, dict[str, str]]] = {
    "page": (b"<html><h1>Sign in</h1></html>", HTML),
    "text": (b"default backend - 404", TEXT),
    "empty": (b"", {}),
    "empty object": (b"{}", JSON),
    "list": (b"[]", JSON),
    "null": (b"null", JSON),
    "text in quotes": (b'"kind"', JSON),
    "cut object": (thing()[:-20], JSON),
    "cut status": (said(**named())[:-9], JSON),
    "other JSON": (b'{"error":"not found","code":404}', JSON),
    "status of another version": (said("Success", version="v9"), JSON),
    "status that is a page": (said("Success"), HTML),
    "object that is a page": (thing(), HTML),
}
#: Bodies of the API server: those that say that something was done, each with the verbs that it answers, and others.
DONE: dict[str, tuple[bytes, set[Verb]]] = {
    "object": (thing(), {Verb.GET, Verb.CREATE, Verb.UPDATE, Verb.PATCH, Verb.DELETE}),
    "object without a UID": (thing(uid=""), {Verb.GET, Verb.CREATE, Verb.UPDATE, Verb.PATCH, Verb.DELETE}),
    "object of another name": (thing("q"), set()),
    "object without a name": (thing(""), set()),
    "object without a kind": (thing(kind=""), set()),
    "object without a version": (thing(apiVersion=""), set()),
    "object without metadata": (thing(metadata=None), set()),
    "object of another UID": (thing(uid="v"), {Verb.GET}),
    "success": (said("Success"), {Verb.BIND, Verb.DELETE}),
    "success as a bind has it": (BOUND, {Verb.BIND, Verb.DELETE}),
    "success for it": (said("Success", details={"name": "p", "uid": "u"}), {Verb.BIND, Verb.DELETE}),
    "success for another": (said("Success", details={"name": "q"}), set()),
    "failure": (said(), set()),
}
VERBS = [verb for verb in Verb if verb is not Verb.DISCOVER]


def answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(status, body, JSON if headers is None else headers)


def asked(verb: Verb) -> RequestInfo:
    return RequestInfo(verb, "pods", "p", "u")


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_not_from_the_api_server_says_nothing_of_the_object(verb: Verb) -> None:
    for status, form in product(STATUSES + FAULTS, FOREIGN):
        body, headers = FOREIGN[form]
        found = read(answer(status, body, headers), asked(verb))
        assert found is not None and found.source is ResponseOrigin.MIDDLEBOX, (status, form)
        turned_away = status in (401, 425, 429)
        assert found.kind is (FailureClass.TRANSIENT if turned_away else FailureClass.UNKNOWN), (status, form)
        assert found.retryable and "not from the API server" in str(found)


@pytest.mark.parametrize("verb", VERBS)
def test_a_success_is_what_the_api_server_says_of_this_object(verb: Verb) -> None:
    for status, form in product((200, 201, 202), DONE):
        body, verbs = DONE[form]
        for headers in (JSON, {}, {"Content-Type": "Application/JSON;charset=utf-8"}):
            found = read(answer(status, body, headers), asked(verb))
            assert (found is None) is (verb in verbs), (status, form)
            if found is not None:
                assert found.kind is FailureClass.UNKNOWN and found.source is ResponseOrigin.MIDDLEBOX


def test_an_object_that_was_asked_for_by_its_name_may_have_any_uid() -> None:
    for verb in (Verb.GET, Verb.PATCH, Verb.DELETE):
        assert read(answer(200, thing(uid="v")), RequestInfo(verb, "pods", "p")) is None


_KINDS = {
    401: FailureClass.TRANSIENT,
    404: FailureClass.PERMANENT,
    408: FailureClass.UNKNOWN,
    409: FailureClass.CONFLICT,
    410: FailureClass.GONE,
    425: FailureClass.TRANSIENT,
    429: FailureClass.TRANSIENT,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_refusal_of_the_api_server_is_read_by_its_status(verb: Verb) -> None:
    for status in (each for each in STATUSES + FAULTS if each >= 300):
        found = read(answer(status, said(reason="Because", message="so")), asked(verb))
        assert found is not None and found.source is ResponseOrigin.API_SERVER
        expected = FailureClass.UNKNOWN if status >= 500 else _KINDS.get(status, FailureClass.PERMANENT)
        assert (found.kind, found.status, found.message) == (expected, status, "so")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("details", "is_it"),
    [
        (named(), True),
        (named(uid="u"), True),
        (named(kind="pods/binding"), True),
        (named(uid="v"), False),
        (named("q"), False),
        (named("default", "namespaces"), False),
        (named(kind="nodes"), False),
        (named(""), False),
        ({"reason": "NotFound"}, False),
        ({"reason": "NotFound", "details": {}}, False),
        ({"reason": "Odd", "details": {"name": "p", "kind": "pods"}}, False),
    ],
)
def test_only_a_404_that_names_the_object_says_that_it_is_not_there(
    verb: Verb, details: dict[str, Any], is_it: bool
) -> None:
    found = read(answer(404, said(**details)), asked(verb))
    assert found is not None and found.source is ResponseOrigin.API_SERVER
    assert found.kind is (FailureClass.NOT_FOUND if is_it else FailureClass.PERMANENT)


def test_what_has_no_answer_is_known_not_to_be_done_only_if_it_was_not_sent() -> None:
    for verb in Verb:
        sent, unsent = (read(error("x"), asked(verb)) for error in (OutcomeUnknown, NotSent))
        assert sent == Failure(FailureClass.UNKNOWN, message="x")
        assert unsent == Failure(FailureClass.TRANSIENT, message="x")


def test_a_discovery_document_is_told_by_its_kind() -> None:
    groups = RequestInfo(Verb.DISCOVER, "APIGroupList", "")
    assert read(answer(200, b'{"kind":"APIGroupList","groups":[]}'), groups) is None
    for body in (b'{"kind":"APIResourceList"}', b"{}", b"<html>", said("Success")):
        found = read(answer(200, body), groups)
        assert found is not None and found.source is ResponseOrigin.MIDDLEBOX


def test_a_missing_object_may_be_named_without_its_uid() -> None:
    assert RequestInfo(Verb.GET, "pods", "p").is_about(Missing("pods", "p", "u"))
    assert not RequestInfo(Verb.GET, "pods", "p").is_about(None)


@pytest.mark.parametrize(
    ("path", "resource", "name"),
    [
        ("/api/v1/nodes/n", "nodes", "n"),
        ("/api/v1/namespaces/t", "namespaces", "t"),
        ("/api/v1/namespaces/t/pods/p/status", "pods", "p"),
        ("/api/v1/namespaces/t/pods/a%2Fb", "pods", "a/b"),
        ("/apis/g/v1/things/c", "things", "c"),
        ("/apis/g/v1/namespaces/t/things/c/status", "things", "c"),
    ],
)
def test_what_is_asked_for_is_read_from_the_path(path: str, resource: str, name: str) -> None:
    assert asked_at(path, Verb.PATCH, "u") == RequestInfo(Verb.PATCH, resource, name, "u")


@pytest.mark.parametrize(
    ("path", "version", "resource"),
    [
        ("/api/v1/pods?limit=1", "/api/v1", "pods"),
        ("/api/v1/namespaces/t/pods", "/api/v1", "pods"),
        ("/apis/g/v1/things", "/apis/g/v1", "things"),
        ("/apis/g/v1/namespaces/t/things/c", "/apis/g/v1", "things"),
    ],
)
def test_a_kind_is_read_from_the_path(path: str, version: str, resource: str) -> None:
    assert collection_at(path) == (version, resource)
