"""How quantities are written again, as apimachinery does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.objects.quantity import canonical, parse


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
