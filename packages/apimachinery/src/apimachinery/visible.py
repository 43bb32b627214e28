r"""Makes characters visible that a terminal would obey or hide.

Texts of objects may contain escape sequences, which change what a terminal shows and send it commands, and characters
that change the direction of text (bidi) or have no width, which make one name look like another. Every character that
is not printable is written as its escape in Python, such as `\x1b` and `\u202e`.
"""

from __future__ import annotations

import re

#: Candidates in one pass: everything but printable ASCII, of which most letters are printable after all.
_CANDIDATES = re.compile(r"[^ -~]+")


def visible(text: str) -> str:
    """Return a text on one line: of a cell, a name or a message."""
    return text if text.isprintable() else _CANDIDATES.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """Return a text of several lines, which are kept."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(text: str) -> str:
    """Return the same JSON value with the characters in strings written as JSON's own escapes."""
    return _CANDIDATES.sub(_escaped_in_json, text)


def _escaped(found: re.Match[str]) -> str:
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in found[0]
    )


def _escaped_in_json(found: re.Match[str]) -> str:
    return "".join(letter if letter.isprintable() or letter == "\n" else _utf16(letter) for letter in found[0])


def _utf16(letter: str) -> str:
    code = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
