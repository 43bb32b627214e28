"""The comparison of answers sees what matters and overlooks what may differ."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from .comparison import compare

_POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "a", "uid": "<uid>", "resourceVersion": "<rv>", "creationTimestamp": "<time>"},
    "spec": {"containers": [{"name": "c"}], "priority": 0},
}
_REFUSAL: dict[str, Any] = {
    "kind": "Status",
    "status": "Failure",
    "message": "why",
    "reason": "Invalid",
    "details": {"name": "a", "causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "spec"}]},
    "code": 422,
}


def _changed(original: dict[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    copy = deepcopy(original)
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    "found",
    [
        _changed(_POD, "metadata", "name", value="b"),
        _changed(_POD, "metadata", "uid", value=""),
        _changed(_POD, "metadata", "labels", value={}),
        _changed(_POD, "spec", "priority", value="0"),
        _changed(_POD, "spec", "containers", value=[]),
        {"kind": "Pod", "metadata": _POD["metadata"]},
    ],
)
def test_a_different_field_of_an_object_is_a_difference(found):
    assert compare(_POD, found)


def test_volatile_values_and_field_owners_may_differ():
    found = _changed(_POD, "metadata", "uid", value="0b0b")
    found["metadata"]["managedFields"] = [{}]
    assert compare(_POD, found) == []


@pytest.mark.parametrize(
    "found",
    [
        _changed(_REFUSAL, "reason", value="Forbidden"),
        _changed(_REFUSAL, "code", value=400),
        _changed(_REFUSAL, "details", "causes", 0, "field", value="metadata"),
        _changed(_REFUSAL, "details", "causes", value=[]),
        {key: value for key, value in _REFUSAL.items() if key != "details"},
    ],
)
def test_a_refusal_for_another_reason_is_a_difference(found):
    assert compare(_REFUSAL, found)


def test_a_refusal_in_other_words_is_none():
    assert compare(_REFUSAL, _changed(_REFUSAL, "message", value="in other words")) == []


def test_lists_and_events_are_compared_in_order():
    assert compare([{"type": "ADDED"}, {"type": "DELETED"}], [{"type": "DELETED"}, {"type": "ADDED"}])


def test_a_generated_name_needs_only_its_prefix():
    recorded = {"name": "gen-abcde", "generateName": "gen-"}
    assert compare(recorded, {"name": "gen-vwxyz", "generateName": "gen-"}) == []
    assert compare(recorded, {"name": "other", "generateName": "gen-"})


def test_of_discovery_only_what_is_served_is_compared_and_nothing_is_made_up():
    pods, nodes = {"name": "pods", "kind": "Pod"}, {"name": "nodes", "kind": "Node"}
    recorded = {"kind": "APIResourceList", "resources": [nodes, pods]}
    assert compare(recorded, {"kind": "APIResourceList", "resources": [pods]}) == []
    assert compare(recorded, {"kind": "APIResourceList", "resources": [pods, nodes]})
    assert compare(recorded, {"kind": "APIResourceList", "resources": [{**pods, "kind": "P"}]})
    assert compare(recorded, {"kind": "APIResourceList", "resources": [pods, {"name": "x", "kind": "X"}]})
