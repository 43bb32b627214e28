"""Amounts as tables show them."""

from __future__ import annotations

import pytest

from agent_scheduler.cli.amounts import of_bytes, of_quantities, percent, short


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.256, "0.26"),
        (-9.994, "-9.99"),
        (10, "10"),
        (12.56, "12.6"),
        (99.94, "99.9"),
        (100, "100"),
        (1234.5, "1234"),
        (100.4, "100"),
    ],
)
def test_a_number_has_three_digits_or_as_many_as_it_needs(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1023, "1023"),
        (1024, "1Ki"),
        (-1536, "-1.5Ki"),
        (3 << 20, "3Mi"),
        (5 << 30, "5Gi"),
        (7 << 40, "7Ti"),
        (4096 << 50, "4096Pi"),
    ],
)
def test_bytes_are_shown_in_the_largest_unit_of_which_there_is_one(amount: int, text: str) -> None:
    assert of_bytes(amount) == text


def test_a_share_is_a_whole_percentage_and_a_share_of_nothing_is_none() -> None:
    assert (percent(1, 3), percent(2, 2), percent(1, 0)) == ("33%", "100%", "-")


def test_quantities_have_one_form_in_whatever_unit_they_were_written() -> None:
    written = {"memory": "805306368", "cpu": "1.5", "nvidia.com/gpu": "2k", "ephemeral-storage": "1024Ki", "x": "?"}
    told = "cpu=1500m,ephemeral-storage=1Mi,memory=768Mi,nvidia.com/gpu=2000,x=?"
    assert (of_quantities(written), of_quantities(None)) == (told, "")
