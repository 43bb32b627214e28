"""The JSONPath of printer columns."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import cases
from embedded_kubernetes.jsonpath import JSONPathError, compile_path

_OBJECT: dict[str, Any] = {
    "status": {"conditions": [{"type": "Ready", "status": "True", "n": 1}, {"type": "X", "status": "False"}]},
    "metadata": {"annotations": {"a.b/c": "z"}, "name": "n"},
    "list": [1, 2, 3],
}


@cases(r"""
    path | found
    .metadata.name | [n]
    '{.metadata.name}' | [n]
    metadata.name | [n]
    .status.conditions[?(@.type=="Ready")].status | ['True']
    .status.conditions[?(@.type == 'X')].status | ['False']
    .status.conditions[?(@.n>0)].type | [Ready]
    .status.conditions[?(@.n)].type | [Ready]
    .status.conditions[*].type | [Ready, X]
    .metadata.annotations.a\.b/c | [z]
    .metadata.annotations['a.b/c'] | [z]
    .list[0] | [1]
    .list[-1] | [3]
    .list[9] | []
    .no.such | []
    .metadata.name.more | []
    """)
def test_a_path_finds_every_match(path: str, found: list[Any]) -> None:
    assert compile_path(path)(_OBJECT) == found


@pytest.mark.parametrize("path", [".a[", ".a[?(@.b==", ".a[?(@.b==c)]", ".a..b"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(JSONPathError):
        compile_path(path)
