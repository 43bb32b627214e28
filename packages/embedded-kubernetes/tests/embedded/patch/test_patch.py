"""JSON Patch and JSON Merge Patch."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.support import cases, refuses
from embedded_kubernetes import patch
from embedded_kubernetes.errors import ApiError

_DOC: dict[str, Any] = {"metadata": {"labels": {"a": "1"}}, "list": [1, 2, 3], "flag": True}


def _code(operations: object) -> int:
    with pytest.raises(ApiError) as refused:
        patch.json_patch(deepcopy(_DOC), operations)
    return refused.value.code


@cases("""
    operation | path | expected
    {op: add, path: /list/-, value: 4} | list | [1, 2, 3, 4]
    {op: add, path: /list/0, value: 0} | list | [0, 1, 2, 3]
    {op: add, path: /list/3, value: 4} | list | [1, 2, 3, 4]
    {op: remove, path: /list/-1} | list | [1, 2]
    {op: replace, path: /list/1, value: {x: null}} | list | [1, {x: null}, 3]
    {op: move, from: /list/0, path: /flag} | flag | 1
    {op: copy, from: /metadata, path: /flag} | flag | {labels: {a: '1'}}
    {op: add, path: /a~1b~0c, value: 1} | a/b~c | 1
    {op: test, path: /nothing, value: null} | flag | true
    """)
def test_an_operation_does_what_rfc_6902_says(operation: dict[str, Any], path: str, expected: object) -> None:
    assert patch.json_patch(deepcopy(_DOC), [operation])[path] == expected


@cases("""
    operation
    {op: test, path: /metadata/labels/a, value: '2'}
    {op: test, path: /flag, value: 1}
    {op: remove, path: /nothing}
    {op: replace, path: /nothing, value: 1}
    {op: add, path: /no/where, value: 1}
    {op: add, path: /list/9, value: 1}
    {op: add, path: /list/x, value: 1}
    {op: add, path: /flag/x, value: 1}
    {op: remove, path: ''}
    {op: jump, path: /flag}
    {path: /flag}
    """)
def test_a_patch_that_does_not_apply_is_unprocessable(operation: dict[str, Any]) -> None:
    assert _code([operation]) == 422


_TEST, _REMOVE = {"op": "test", "path": "/flag", "value": True}, {"op": "remove", "path": "/flag"}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({"op": "x"}, 400),
        ("x", 400),
        ([1], 400),
        ([{"op": 1}], 400),
        ([{"op": "add", "path": ["x"]}], 400),
        ([_REMOVE, _REMOVE], 422),
        ([_TEST] * 10_001, 413),
    ],
)
def test_a_patch_that_is_malformed_or_too_long_or_fails_later_is_refused(operations: object, code: int) -> None:
    assert _code(operations) == code


def test_a_merge_patch_removes_by_null_also_below_new_fields() -> None:
    changed = patch.merge_patch(
        deepcopy(_DOC), {"flag": None, "new": {"a": None, "b": [{"c": None, "d": 1}]}, "list": [1]}
    )
    assert changed == {"metadata": {"labels": {"a": "1"}}, "list": [1], "new": {"b": [{"d": 1}]}}


def test_a_merge_patch_must_be_an_object() -> None:
    with refuses(400):
        patch.merge_patch(_DOC, [1])


_JSON = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(max_size=2), _JSON, max_size=3)


def _difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns `old` into `new`."""
    made: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            made[key] = _difference(old[key], value)
        elif key not in old or old[key] != value or type(old[key]) is not type(value):
            made[key] = value
    return made


@given(old=_OBJECTS, new=_OBJECTS)
def test_a_merge_patch_made_of_a_difference_leads_from_old_to_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    made = _difference(old, new)
    assert patch.merge_patch(deepcopy(old), deepcopy(made)) == new
    assert patch.merge_patch(deepcopy(new), deepcopy(made)) == new
