"""Texts that `visible` changes, and those that it returns unchanged."""

from __future__ import annotations

import json

import pytest

from apimachinery.visible import visible, visible_json, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("größe 東京 🚀 →", "größe 東京 🚀 →"),
        ("\x1b[2Jx", "\\x1b[2Jx"),
        ("\x9b31mx\x7f", "\\x9b31mx\\x7f"),
        ("a\nb\tc\r\x00", "a\\nb\\tc\\r\\x00"),
        ("abc\u202egnp.exe\u2066\u200f\u061c", "abc\\u202egnp.exe\\u2066\\u200f\\u061c"),
        ("a\u200bb\ufeff\u00ad\u2028", "a\\u200bb\\ufeff\\xad\\u2028"),
        ("\ud800\U000e0041", "\\ud800\\U000e0041"),
    ],
)
def test_one_line(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_are_kept() -> None:
    assert visible_lines("a\n\x1bb\r\n") == "a\n\\x1bb\\r\n"


@pytest.mark.parametrize("value", ["\x7f\x9b\u202e\U000e0041é🚀", '\x1b\n\t"\\'])
def test_json_keeps_its_value(value: str) -> None:
    text = json.dumps({"a": value}, ensure_ascii=False, indent=1)
    shown = visible_json(text)
    assert json.loads(shown) == {"a": value}
    assert all(line.isprintable() for line in shown.split("\n"))
