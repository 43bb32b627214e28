"""Quantities are exact integers, rounded up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apimachinery.quantity import (
    MAX_INT64,
    UNIT,
    QuantityError,
    canonical,
    milli_value,
    parse,
    resource_value,
    text_of,
    value,
)


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("0.5", 1, 500),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("100m", 1, 100),
        ("1500m", 2, 1500),
        ("1Ki", 1024, 1024_000),
        ("1.5Gi", 1610612736, 1610612736_000),
        ("500M", 500_000_000, 500_000_000_000),
        ("1e3", 1000, 1_000_000),
        ("1E", 10**18, MAX_INT64),
        ("1E3", 1000, 1_000_000),
        ("12e-1", 2, 1200),
        ("1n", 1, 1),
        ("100u", 1, 1),
        ("-1", -1, -1000),
        ("-0.5", -1, -500),
        ("+2", 2, 2000),
        ("9999999999E", MAX_INT64, MAX_INT64),
        ("1e400", MAX_INT64, MAX_INT64),
        ("0e400", 0, 0),
        ("1e-400", 1, 1),
        (3, 3, 3000),
        (0.25, 1, 250),
    ],
)
def test_a_quantity_is_read_exactly(text: str | float, whole: int, milli: int) -> None:
    assert value(text) == whole
    assert milli_value(text) == milli


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "ten", "1kk", "1K", "0x10", "1e", "--1", ".", "1Gib", "١", "9" * 5000, "1e" + "0" * 5000),
        # Their cost must be linear.
        *("1" * 10**6 + "x", "1." + "1" * 10**6 + "x"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(QuantityError, match="expected a number"):
        value(text)


def test_a_boolean_is_no_quantity() -> None:
    with pytest.raises(QuantityError):
        value(True)


@given(st.integers(0, 2**53))
def test_bytes_survive_whatever_their_spelling(amount: int) -> None:
    assert value(str(amount)) == amount
    assert value(f"{amount}000m") == amount
    assert milli_value(f"{amount}m") == amount


@pytest.mark.parametrize(
    ("text", "part"), [("", "form"), ("one", "form"), (".", "number"), ("1" * 1001, "number"), ("1ki", "suffix")]
)
def test_what_is_wrong_with_a_text_is_told(text: str, part: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse(text)
    assert refused.value.part == part


@pytest.mark.parametrize(
    ("text", "nano"), [("1e30", MAX_INT64 * UNIT), ("-1e30", -MAX_INT64 * UNIT), ("100e-10", 10), ("1e-30", 1)]
)
def test_what_is_too_large_or_too_small_is_the_nearest_that_there_is(text: str, nano: int) -> None:
    assert parse(text).nano == nano


@pytest.mark.parametrize(
    ("resource", "text", "amount", "shown"),
    [
        ("cpu", "1500m", 1500, "1500m"),
        ("cpu", "2", 2000, "2"),
        ("memory", "1536Mi", 1536 << 20, "1.5Gi"),
        ("memory", "1Gi", 1 << 30, "1Gi"),
        ("memory", "2Ti", 2 << 40, "2Ti"),
        ("memory", "3Ki", 3 << 10, "3Ki"),
        ("memory", "1000", 1000, "1000"),
        ("hugepages-2Mi", "4Mi", 4 << 20, "4Mi"),
        ("ephemeral-storage", "-1Gi", -(1 << 30), "-1Gi"),
        ("nvidia.com/gpu", "2048", 2048, "2048"),
    ],
)
def test_an_amount_of_a_resource_is_read_in_its_unit_and_shown_as_people_write_it(
    resource: str, text: str, amount: int, shown: str
) -> None:
    assert resource_value(resource, text) == amount
    assert text_of(resource, amount) == shown


# ---- texts of quantities, as apimachinery writes them


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("1", "1"),
        ("1000", "1k"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("0.1Gi", "107374182400m"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1536Mi", "1536Mi"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("-2Gi", "-2Gi"),
        ("100n", "100n"),
        ("5E", "5E"),
    ],
)
def test_a_quantity_has_one_form(text: str, expected: str) -> None:
    assert canonical(parse(text)) == expected


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi", "e3"]))
def test_what_is_written_reads_as_the_same_amount_and_is_written_so_again(number: int, suffix: str) -> None:
    amount = parse(f"{number}{suffix}")
    text = canonical(amount)
    assert parse(text).nano == amount.nano
    assert canonical(parse(text)) == text
