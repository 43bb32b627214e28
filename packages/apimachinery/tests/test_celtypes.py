"""The functions that Kubernetes adds to CEL, on the values that represent quantities and versions."""

from __future__ import annotations

from typing import Any

import pytest

from apimachinery.celtypes import FUNCTIONS, Function, hashable, quantity_value, version_value


def function(name: str, *parameters: str) -> Function:
    (found,) = (each for each in FUNCTIONS if each.name == name and parameters in ((), each.parameters))
    return found


def q(text: str) -> Any:
    return function("quantity").does(text)


def v(text: str) -> Any:
    return function("semver", "string").does(text)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("isQuantity", ["1.5Gi"], True),
        ("isQuantity", ["1.5 Gi"], False),
        ("isInteger", [q("2")], True),
        ("isInteger", [q("1500m")], False),
        ("isInteger", [quantity_value((2**63 - 1) * 10**9)], True),
        ("isInteger", [quantity_value(2**63 * 10**9)], False),
        ("isInteger", [quantity_value(-(2**63) * 10**9)], True),
        ("asInteger", [q("2k")], 2000),
        ("asApproximateFloat", [q("1500m")], 1.5),
        ("sign", [q("-1m")], -1),
        ("sign", [q("0")], 0),
        ("sign", [q("1m")], 1),
        ("compareTo", [q("1Ki"), q("1k")], 1),
        ("compareTo", [q("1k"), q("1Ki")], -1),
        ("compareTo", [q("1"), q("1000m")], 0),
        ("isLessThan", [q("1"), q("1")], False),
        ("isLessThan", [q("1"), q("2")], True),
        ("isGreaterThan", [q("1"), q("1")], False),
        ("isGreaterThan", [q("2"), q("1")], True),
        ("major", [v("1.2.3-a.4")], 1),
        ("minor", [v("1.2.3-a.4")], 2),
        ("patch", [v("1.2.3-a.4")], 3),
        ("compareTo", [v("1.2.3+one"), v("1.2.3+two")], 0),
        ("compareTo", [v("1.2.3"), v("1.2.3-rc.1")], 1),
        ("compareTo", [v("1.10.0"), v("1.9.0")], 1),
        ("compareTo", [v("1.0.0-2"), v("1.0.0-10")], -1),
        ("compareTo", [v("1.0.0-10"), v("1.0.0-a")], -1),
        ("compareTo", [v("1.0.0-a"), v("1.0.0-a.1")], -1),
        ("isSorted", [[1, 1, 2]], True),
        ("isSorted", [[2, 1]], False),
        ("sum", [[1, 2, 3]], 6),
        ("min", [[2, 1]], 1),
        ("max", [[2, 3]], 3),
        ("sets.contains", [[1, 2], [2]], True),
        ("sets.contains", [[1, 2], [2, 3]], False),
        ("sets.equivalent", [[1, 2], [2, 1, 1]], True),
        ("sets.equivalent", [[1, 2], [1]], False),
        ("sets.equivalent", [[1], [1, 2]], False),
        ("sets.intersects", [[1, 2], [2, 3]], True),
        ("sets.intersects", [[1, 2], [3]], False),
    ],
)
def test_a_function_says_what_its_counterpart_says(name: str, given: list[Any], expected: object) -> None:
    answer = function(name).does(*given)
    assert answer == expected and type(answer) is type(expected)


def test_quantities_are_added_and_subtracted_with_one_another_and_with_whole_numbers() -> None:
    for other, parameter in ((q("500m"), "opaque"), (2, "int")):
        added = q("1500m") if parameter == "opaque" else q("3")
        assert function("add", "opaque", parameter).does(q("1"), other) == added
        assert function("sub", "opaque", parameter).does(added, other) == q("1")


@pytest.mark.parametrize(
    ("text", "plain", "normalized"),
    [
        ("1.2.3", b"v1.2.3", b"v1.2.3"),
        ("1.2.3-a.1+b", b"v1.2.3-a.1", b"v1.2.3-a.1"),
        ("v1.2", None, b"v1.2.0"),
        ("1", None, b"v1.0.0"),
        ("01.02.03-x", None, b"v1.2.3-x"),
        ("1.2.3-01", None, None),
        ("one", None, None),
    ],
)
def test_a_version_is_read_or_made_one(text: str, plain: bytes | None, normalized: bytes | None) -> None:
    assert (version_value(text), version_value(text, normalize=True)) == (plain, normalized)
    assert function("isSemver", "string").does(text) is (plain is not None)
    assert function("isSemver", "string", "bool").does(text, True) is (normalized is not None)


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("asInteger", [q("1500m")], "cannot convert"),
        ("sign", [v("1.2.3")], "no such overload"),
        ("major", [q("1")], "no such overload"),
        ("quantity", ["x"], "expected a number"),
        ("min", [[]], "min called on empty list"),
        ("max", [[]], "max called on empty list"),
    ],
)
def test_what_has_no_meaning_is_an_error(name: str, given: list[Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        function(name).does(*given)
    with pytest.raises(ValueError, match="'v1' is not a semantic version"):
        v("v1")


def test_bytearrays_are_given_as_bytes() -> None:
    assert hashable(lambda *given: {*given})(bytearray(b"q1"), b"q1") == {b"q1"}
