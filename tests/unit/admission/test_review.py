"""AdmissionReviews in and out."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.admission import jobs, podgroups, pods, queues
from agent_scheduler.admission.review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    JsonPatchOperation,
    Reviewer,
    UnreadableReview,
    allowed_with,
    read_review,
    refused,
    review,
    write_review,
)
from agent_scheduler.objects.batch import Queue
from agent_scheduler.objects.wire import Metadata
from tests.support.reviews import request


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


@pytest.mark.parametrize("levels", [1_500, 10_000])
@pytest.mark.parametrize(
    ("operation", "field", "allowed"),
    [("CREATE", "object", False), ("UPDATE", "object", True), ("DELETE", "oldObject", True)],
)
def test_a_deep_object_may_go_and_change_and_not_be_made(
    levels: int, operation: str, field: str, allowed: bool
) -> None:
    asked = {"uid": "u", "operation": operation, field: {"metadata": {"name": "p"}, "spec": 0}}
    nested = b"[" * levels + b"]" * levels
    found = read_review(body(request=asked).replace(b'"spec": 0', b'"spec": ' + nested))
    seen: list[str] = []

    def reviewer(request: AdmissionRequest) -> AdmissionResponse:
        raw = request.object if field == "object" else request.old_object
        seen.append(json.loads(bytes(raw))["metadata"]["name"])
        return ALLOWED

    answer = review(reviewer, found)
    assert (answer.allowed, seen) == (allowed, ["p"] if allowed else [])
    if not allowed:
        assert answer.message == "the object is nested too deeply to be decoded; allowed: 200 levels"
    assert json.loads(write_review(found, answer))["response"]["uid"] == "u"


def test_a_review_that_recursion_cannot_follow_is_refused() -> None:
    def endless(request: AdmissionRequest) -> AdmissionResponse:
        return endless(request)

    assert "nested too deeply" in review(endless, read_review(body())).message


NO_REVIEWS = {
    b"": "not an AdmissionReview: Input data was truncated",
    b"[]": "not an AdmissionReview: Expected `object`, got `array`",
    body(request={"uid": "u"}): ("not an AdmissionReview: Object missing required field `operation` - at `$.request`"),
    body(apiVersion="admission.k8s.io/v1beta1"): (
        "found admission.k8s.io/v1beta1, AdmissionReview; allowed: admission.k8s.io/v1, AdmissionReview"
    ),
    body(kind=""): "found admission.k8s.io/v1, no kind; allowed: admission.k8s.io/v1, AdmissionReview",
}


@pytest.mark.parametrize(("text", "expected"), NO_REVIEWS.items())
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
    patched = response(allowed_with([JsonPatchOperation("add", "/spec/weight", 1)]))
    assert json.loads(base64.b64decode(patched.pop("patch"))) == [{"op": "add", "path": "/spec/weight", "value": 1}]
    assert patched == {"uid": "u", "allowed": True, "patchType": "JSONPatch"}


def test_an_object_with_a_field_of_another_type_is_refused() -> None:
    answer = review(queues.mutate, request({"metadata": {"name": "q"}, "spec": {"weight": "many"}}))
    assert answer == refused("cannot read the object: Expected `int`, got `str` - at `$.spec.weight`")


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
_QUANTITIES = st.sampled_from(["1", "-1", "1500m", "1e99", "", "x", "9" * 400, "1Ki"]) | _SCALARS
_RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "a.example/x", ""]), _QUANTITIES)
_ANNOTATIONS = st.dictionaries(
    st.sampled_from([queues.HIERARCHY, queues.HIERARCHY_WEIGHTS, "x"]), st.text("root/1.-", max_size=12)
)
_POLICIES = st.lists(
    st.fixed_dictionaries({"action": _SCALARS}, optional={"event": _SCALARS, "exitCode": _SCALARS}), max_size=2
)
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": _SCALARS},
        optional={
            "resources": st.fixed_dictionaries({}, optional={"requests": _RESOURCES, "limits": _RESOURCES}),
            "ports": st.lists(st.fixed_dictionaries({"containerPort": _SCALARS}), max_size=1),
            "livenessProbe": _SCALARS | st.fixed_dictionaries({"periodSeconds": _SCALARS}),
        },
    ),
    max_size=2,
)
_TASKS = st.fixed_dictionaries(
    {"name": st.sampled_from("ab")},
    optional={
        "replicas": _SCALARS | st.integers(-1, 3),
        "minAvailable": st.none() | st.integers(-1, 3),
        "template": st.fixed_dictionaries({"spec": st.fixed_dictionaries({"containers": _CONTAINERS})}) | _SCALARS,
        "policies": _POLICIES,
        "topologyPolicy": st.sampled_from(["", "none", "restricted"]),
        "dependsOn": st.fixed_dictionaries({"name": st.lists(st.sampled_from("abc"), max_size=2)}) | _SCALARS,
    },
)
_FIELDS = {
    "capability": _RESOURCES,
    "deserved": _RESOURCES,
    "guarantee": st.fixed_dictionaries({"resource": _RESOURCES}),
    "parent": st.sampled_from(["", "root", "a", "b"]),
    "queue": st.text(max_size=4),
    "weight": _SCALARS,
    "schedulingGates": st.lists(st.fixed_dictionaries({"name": _SCALARS}), max_size=2) | _SCALARS,
    "tasks": st.lists(_TASKS, max_size=2) | _SCALARS,
    "policies": _POLICIES,
    "plugins": st.dictionaries(st.sampled_from(["mpi", "x"]), st.lists(_SCALARS, max_size=2) | _SCALARS),
    "volumes": st.lists(st.fixed_dictionaries({"mountPath": _SCALARS}), max_size=2),
    "minAvailable": _SCALARS,
    "nodeSelector": _SCALARS | st.dictionaries(st.text(max_size=3), _SCALARS, max_size=2),
}
_OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({"name": st.sampled_from("ab"), "annotations": _ANNOTATIONS}),
        "spec": st.fixed_dictionaries({}, optional=_FIELDS) | _SCALARS,
        "status": st.fixed_dictionaries({"state": st.text(max_size=7), "allocated": _RESOURCES}),
    },
)


@given(made=_OBJECTS, old=_OBJECTS, operation=st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", ""]))
def test_whatever_an_object_says_there_is_an_answer(made: Any, old: Any, operation: str) -> None:
    known = {}
    for name, each in (("a", made), ("b", old)):
        with contextlib.suppress(msgspec.ValidationError):
            found = msgspec.convert({"metadata": {"name": name}, **each}, Queue)
            known[name] = msgspec.structs.replace(found, metadata=Metadata(name=name))
    rules = queues.QueueRules(keep_allocated=True)
    reviewers: list[Reviewer] = [
        lambda asked: pods.mutate(asked, pods.PodRules(schedulers=frozenset({""}))),
        queues.mutate,
        lambda asked: queues.validate(asked, known, rules),
        lambda asked: podgroups.mutate(asked, {}),
        lambda asked: podgroups.validate(asked, known),
        lambda asked: jobs.mutate(asked, jobs.JobRules(scheduler="s")),
        lambda asked: jobs.validate(asked, known, jobs.JobRules(scheduler="s")),
    ]
    asked = request(made, old=old, operation=operation, name="a")
    for each in reviewers:
        answer = review(each, asked)
        assert isinstance(answer, AdmissionResponse)
        assert answer.allowed == (not answer.message)
        assert json.loads(write_review(asked, answer))["response"]["allowed"] == answer.allowed
