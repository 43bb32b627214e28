"""The valid parts of an object that cannot be decoded as a whole are kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apimachinery.salvage import salvage, salvage_part


class Inner(msgspec.Struct, frozen=True):
    size: int = 7


class Outer(msgspec.Struct, frozen=True):
    meta: Inner
    name: str = "none"
    inner: Inner = Inner()
    perhaps: Inner | None = None
    numbers: list[int] | None = None
    amounts: dict[str, int] | None = None
    raw: msgspec.Raw = msgspec.Raw(b"{}")


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ({}, {}),
        ({"name": 1, "meta": {"size": 3}}, {"meta": Inner(3)}),
        ({"meta": [1], "inner": {"size": "x"}}, {}),
        ({"inner": {"size": 2, "more": 1}, "perhaps": {"size": 3}}, {"inner": Inner(2), "perhaps": Inner(3)}),
        ({"perhaps": None, "name": "a"}, {"name": "a"}),
        ({"numbers": [1, "x", 3]}, {"numbers": [1, 3]}),
        ({"numbers": {"a": 1}, "amounts": [1], "name": "a"}, {"name": "a"}),
        ({"numbers": "12", "amounts": "12"}, {}),
        ({"amounts": {"a": 1, "b": "x"}}, {"amounts": {"a": 1}}),
    ],
)
def test_each_field_that_reads_well_is_kept_and_the_others_are_left_at_their_defaults(
    body: dict[str, Any], kept: dict[str, Any]
) -> None:
    found = salvage(msgspec.json.encode(body), Outer)
    assert found == Outer(**{"meta": Inner(), **kept})


def test_what_is_kept_as_it_is_written_is_written_again() -> None:
    assert bytes(salvage(b'{"raw": [1, 2]}', Outer).raw) == b"[1,2]"


@pytest.mark.parametrize("text", [b"[]", b"{", b'"x"', b"null"])
def test_what_is_no_object_is_an_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        salvage(text, Outer)


def test_a_part_is_read_alone_or_is_none() -> None:
    assert salvage_part(b"[1, true, 2]", list[int]) == [1, 2]
    assert salvage_part(b'{"a": 1}', list[int]) is None
    assert salvage_part(b"[", list[int]) is None
