"""Strings, lists and errors in Go's formats, for messages about users and rules."""

from __future__ import annotations

from collections.abc import Iterable

_SHORT = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quote(text: str) -> str:
    """Return the text in the format of Go's `%q`."""
    return '"' + "".join(_SHORT.get(letter) or _shown(letter) for letter in text) + '"'


def quoted(values: Iterable[str]) -> str:
    """Return a list of strings in the format of Go's `%q`."""
    return "[" + " ".join(quote(value) for value in values) + "]"


def aggregate(errors: Iterable[str]) -> str:
    """Return several errors as one text, without duplicates."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
