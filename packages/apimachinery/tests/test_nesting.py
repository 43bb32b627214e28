"""JSON that is nested too deeply for decoders."""

from __future__ import annotations

import json

import msgspec
import pytest

from apimachinery.nesting import KEPT_LEVELS, shallow
from apimachinery.salvage import salvage


def nested(levels: int, inner: str = "1") -> str:
    return '{"a":[' * (levels // 2) + inner + "]}" * (levels // 2)


@pytest.mark.parametrize("text", ['{"a":[1,"]}{[",{"\\\\\\"":"\\\\\\\\"}]}', "[]", "7", nested(KEPT_LEVELS)])
def test_what_is_not_deep_stays_as_it_is(text: str) -> None:
    assert shallow(text.encode()) == text.encode()


@pytest.mark.parametrize("levels", [KEPT_LEVELS + 2, 1_500, 10_000, 100_000])
def test_only_the_levels_that_are_too_deep_are_emptied(levels: int) -> None:
    deep = f"[{nested(levels)},{nested(levels)}]"
    text = '{"before":{"]":"}"},"deep":' + deep + ',"after":[[2]]}'
    found = json.loads(shallow(text.encode()))
    assert (found["before"], found["after"]) == ({"]": "}"}, [[2]])
    kept = (KEPT_LEVELS - 2) // 2
    assert found["deep"] == [json.loads(nested(2 * kept, "{}"))] * 2


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 5_000 + '"', nested(10_000)[:-1], "]" * 5_000 + "[" * 5_000])
def test_what_is_no_json_stays_none(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(shallow(text.encode()))


class Thing(msgspec.Struct):
    name: str = ""
    size: int = 0


def test_the_valid_fields_of_a_deep_object_are_salvaged() -> None:
    text = '{"other":' + nested(10_000) + ',"size":' + nested(10_000) + ',"name":"n"}'
    assert salvage(text.encode(), Thing) == Thing("n")
