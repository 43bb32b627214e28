"""JSON that is nested more deeply than decoders can follow.

kube-apiserver accepts 10,000 levels. Decoders and other code that walks an object by recursion raise RecursionError
long before. The functions here read the text bracket by bracket instead, at a cost that is linear in its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Raw

#: The levels that `shallow` keeps: far more than any field with a known form has, and far fewer than recursion allows.
KEPT_LEVELS: Final = 200
#: The error of an object that recursion cannot follow.
TOO_DEEP: Final = "nested too deeply to be decoded"

#: What precedes a bracket of the structure, strings included, and the bracket.
_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)
_CLOSING: Final = {ord("{"): b"}", ord("["): b"]"}


def brackets(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the position and the level of each bracket. The outermost pair has level 1."""
    level = 0
    for found in _BRACKET.finditer(data):
        at = found.start(1)
        if data[at] in _CLOSING:
            level += 1
            yield at, level
        else:
            yield at, level
            level -= 1


def shallow(raw: bytes | memoryview | Raw) -> bytes:
    """Return the JSON with all objects and lists below `KEPT_LEVELS` levels emptied."""
    data = bytes(raw)
    kept: list[bytes] = []
    begin = at = 0
    is_open = False
    for position, level in brackets(data):
        if level != KEPT_LEVELS + 1:
            continue
        if data[position] in _CLOSING:
            begin, is_open = position, True
        elif is_open:
            kept += (data[at : begin + 1], _CLOSING[data[begin]])
            at, is_open = position + 1, False
    # The rest of a text that ends too early is as deep as the whole.
    return b"".join([*kept, data[at:begin] if is_open else data[at:]])
