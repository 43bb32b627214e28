"""Choices read off a string of bytes: a cheap source of large random values for Hypothesis.

A cluster takes some five hundred choices. Drawn one by one they would take Hypothesis longer than both deciders take
to decide; drawn as strings of a few bytes they take little, and a string still shrinks: to zeros, and a zero is always
the first, simplest choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


#: What gives so many random bytes.
Draw = Callable[[int], bytes]
_AT_ONCE = 32


class Choices:
    """One after the other, read off strings that are drawn as they are needed."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._left: Iterator[int] = iter(())

    def below(self, limit: int) -> int:
        """A number from 0 on, `limit` not among them; at most 256."""
        value = next(self._left, None)
        if value is None:
            self._left = iter(self._draw(_AT_ONCE))
            value = next(self._left)
        return value % limit

    def pick(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def once_in(self, times: int) -> bool:
        return self.below(times) == times - 1
