"""Strings, lists of them and errors as Go prints them: what messages about users and rules are made of."""

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
    """By `%q`: in quotes, with what does not print escaped."""
    return '"' + "".join(_SHORT.get(letter) or _shown(letter) for letter in text) + '"'


def quoted(values: Iterable[str]) -> str:
    """A list of strings by `%q`."""
    return "[" + " ".join(quote(value) for value in values) + "]"


def aggregate(errors: Iterable[str]) -> str:
    """Several errors as one text, each of them once."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
