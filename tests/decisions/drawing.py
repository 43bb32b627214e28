"""Choices that are read from a string of bytes: a cheap source of large random values for Hypothesis.

A cluster takes about five hundred choices. Drawn one by one they would take Hypothesis longer than both deciders take
to decide. Strings of a few bytes are cheap, and still shrink: to zeros, and a zero is always the first, simplest
choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


#: A function that returns this number of random bytes.
Draw = Callable[[int], bytes]
_AT_ONCE = 32


class Choices:
    """Choices in order, from strings that are drawn as they are needed."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._left: Iterator[int] = iter(())

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` - 1; `limit` is at most 256."""
        value = next(self._left, None)
        if value is None:
            self._left = iter(self._draw(_AT_ONCE))
            value = next(self._left)
        return value % limit

    def pick(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def once_in(self, times: int) -> bool:
        return self.below(times) == times - 1
