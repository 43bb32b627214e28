"""Numbers with nouns."""

from __future__ import annotations

from apimachinery.plural import counted


def test_one_is_singular_and_large_numbers_have_separators() -> None:
    assert [counted(number, "pod") for number in (0, 1, 2, 1200)] == ["0 pods", "1 pod", "2 pods", "1,200 pods"]
