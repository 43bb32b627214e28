"""Warning headers are limited like a real server's."""

from __future__ import annotations

from embedded_kubernetes.admission.warnings import Warnings, warning


def _texts(warnings: Warnings) -> list[str]:
    return [value.removeprefix('299 - "').removesuffix('"') for _, value in warnings.headers()]


def test_each_text_is_told_once_in_order_and_none_with_control_characters() -> None:
    warnings = Warnings()
    for text in ("b", "a", "b", "", "line\nbreak", "tab\t"):
        warnings.add(text)
    assert _texts(warnings) == ["b", "a"]


def test_texts_that_are_too_long_together_are_cut() -> None:
    warnings = Warnings()
    for letter in "abc":
        warnings.add(letter * 2000)
    assert [len(text) for text in _texts(warnings)] == [256, 256, 256]


def test_as_many_are_told_as_fit() -> None:
    warnings = Warnings()
    for number in range(40):
        warnings.add(f"{number:03}" + "x" * 300)
    assert [len(text) for text in _texts(warnings)] == [256] * 16


def test_quotes_are_escaped() -> None:
    assert warning('a "b" \\') == '299 - "a \\"b\\" \\\\"'
