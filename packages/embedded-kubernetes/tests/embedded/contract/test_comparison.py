"""The comparison of answers finds relevant differences and ignores the allowed ones."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import named

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


@pytest.mark.parametrize(
    ("recorded", "path", "value", "agree"),
    [
        (_POD, "metadata.name", "b", False),
        (_POD, "metadata.uid", "", False),
        (_POD, "metadata.uid", "0b0b", True),
        (_POD, "metadata.managedFields", [{}], True),
        (_POD, "metadata.labels", {}, False),
        (_POD, "spec.priority", "0", False),
        (_POD, "spec.containers", [], False),
        (_POD, "metadata", {}, False),
        (_REFUSAL, "message", "in other words", True),
        (_REFUSAL, "reason", "Forbidden", False),
        (_REFUSAL, "code", 400, False),
        (_REFUSAL, "details.causes.0.field", "metadata", False),
        (_REFUSAL, "details.causes", [], False),
        (_REFUSAL, "details", None, False),
        ([{"type": "ADDED"}, {"type": "DELETED"}], "", [{"type": "DELETED"}, {"type": "ADDED"}], False),
        (_GENERATED, "name", "gen-vwxyz", True),
        (_GENERATED, "name", "other", False),
        (_LIST, "resources", [_PODS], True),
        (_LIST, "resources", [_PODS, _NODES], False),
        (_LIST, "resources", [{**_PODS, "kind": "P"}], False),
        (_LIST, "resources", [_PODS, {"name": "x", "kind": "X"}], False),
    ],
)
def test_what_may_differ_and_what_may_not(recorded: Any, path: str, value: Any, agree: bool) -> None:
    assert (compare(recorded, _changed(recorded, path, value)) == []) is agree
