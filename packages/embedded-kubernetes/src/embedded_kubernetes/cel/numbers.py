"""Comparisons between numbers of different types, `size(object.l) < 1.5`.

Kubernetes configures cel-go to compare them by value, and cel-expr-python evaluates them so, but its checker
rejects them. Constants in such comparisons are rewritten as values of any type.
"""

from __future__ import annotations

import re

from .initializers import Maps, joined
from .words import places

_mixed = re.compile(
    r"found no matching overload for '_(?:<|<=|>|>=)_' applied to '\((?:int|uint|double), (?:int|uint|double)\)'"
).fullmatch
_NUMBER = r"-?(?:[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?|0x[0-9A-Fa-f]+u?|[0-9]+u?)"
_after = re.compile(rf"[<>]=?\s*({_NUMBER})(?![\w.\[])").match
_before = re.compile(rf"(?<![\w.)\]])({_NUMBER})\s*$").search


def compared(text: str, error: str) -> Maps | None:
    """Return the expression with `dyn()` around constants in rejected comparisons; None if there are none."""
    constants: list[tuple[int, int]] = []
    for offset, problem in places(error, text):
        if _mixed(problem) and (found := _after(text, offset) or _before(text[:offset])):
            constants.append(found.span(1))
    parts, end = [], 0
    for start, stop in sorted(set(constants)):
        parts += [(text[end:start], end), ("dyn(", start), (text[start:stop], start), (")", stop)]
        end = stop
    return joined(iter([*parts, (text[end:], end)])) if constants else None
