"""The comparison of answers sees what matters and overlooks what may differ."""

from __future__ import annotations

from typing import Any

import pytest

from tests.embedded.support import cases, named

from .comparison import compare

_POD: dict[str, Any] = {
    **named("a", kind="Pod", uid="<uid>", resourceVersion="<rv>", creationTimestamp="<time>"),
    "spec": {"containers": [{"name": "c"}], "priority": 0},
}
_CAUSE = {"reason": "FieldValueInvalid", "message": "m", "field": "spec"}
_REFUSAL: dict[str, Any] = {
    "kind": "Status", "status": "Failure", "message": "why", "reason": "Invalid", "code": 422,
    "details": {"name": "a", "causes": [_CAUSE]},
}  # fmt: skip
_PODS, _NODES = {"name": "pods", "kind": "Pod"}, {"name": "nodes", "kind": "Node"}
_LIST = {"kind": "APIResourceList", "resources": [_NODES, _PODS]}
_GENERATED = {"name": "gen-abcde", "generateName": "gen-"}


def _changed(original: Any, path: str, value: Any) -> Any:
    first, _, rest = path.partition(".")
    if not path:
        return value
    if isinstance(original, list):
        return [_changed(original[0], rest, value), *original[1:]]
    return {**original, first: _changed(original.get(first), rest, value)}


@cases("""
    path | value
    metadata.name | b
    metadata.uid | ''
    metadata.labels | {}
    spec.priority | '0'
    spec.containers | []
    metadata | {}
    """)
def test_a_different_field_of_an_object_is_a_difference(path: str, value: Any) -> None:
    assert compare(_POD, _changed(_POD, path, value))


@cases("""
    path | value
    reason | Forbidden
    code | 400
    details.causes.0.field | metadata
    details.causes | []
    details | null
    """)
def test_a_refusal_for_another_reason_is_a_difference(path: str, value: Any) -> None:
    assert compare(_REFUSAL, _changed(_REFUSAL, path, value))


@pytest.mark.parametrize(
    ("recorded", "found", "agree"),
    [
        (_POD, {**_POD, "metadata": {**_POD["metadata"], "uid": "0b0b", "managedFields": [{}]}}, True),
        (_REFUSAL, {**_REFUSAL, "message": "in other words"}, True),
        ([{"type": "ADDED"}, {"type": "DELETED"}], [{"type": "DELETED"}, {"type": "ADDED"}], False),
        (_GENERATED, {"name": "gen-vwxyz", "generateName": "gen-"}, True),
        (_GENERATED, {"name": "other", "generateName": "gen-"}, False),
        (_LIST, {**_LIST, "resources": [_PODS]}, True),
        (_LIST, {**_LIST, "resources": [_PODS, _NODES]}, False),
        (_LIST, {**_LIST, "resources": [{**_PODS, "kind": "P"}]}, False),
        (_LIST, {**_LIST, "resources": [_PODS, {"name": "x", "kind": "X"}]}, False),
    ],
)
def test_what_may_differ_and_what_may_not(recorded: Any, found: Any, agree: bool) -> None:
    assert (compare(recorded, found) == []) is agree
