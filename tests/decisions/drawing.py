"""Choices read off a string of bytes: a cheap source of large random values for Hypothesis.

A cluster takes some five hundred choices. Drawn one by one they would take Hypothesis longer than both deciders take
to decide; drawn as one string of bytes they take no time, and a string still shrinks: to zeros, and a zero is always
the first, simplest choice. Parts of a value begin at fixed places (`part`), so that a byte that changes in one part
leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """One after the other; beyond the end of the string all are the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, limit: int) -> int:
        """A number from 0 on, `limit` not among them; at most 256."""
        value = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return value % limit

    def pick(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def once_in(self, times: int) -> bool:
        return self.below(times) == times - 1

    def part(self, begin: int, length: int) -> Choices:
        """Choices of their own, from a place on that does not depend on what was chosen before."""
        return Choices(self._data[begin : begin + length])
