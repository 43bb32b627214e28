"""Bounds of what a response tells, however much is wrong with an object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

#: The maximum numbers of problems and of names in a response, and of characters of a problem.
_MOST_PROBLEMS: Final = 20
_MOST_NAMES: Final = 20
_LONGEST: Final = 1_000


def first(problems: Iterable[str]) -> list[str]:
    """Return the first problems, shortened. The others are not computed, so a response is short and is soon made."""
    rest = iter(problems)
    found = [each if len(each) <= _LONGEST else f"{each[:_LONGEST]}..." for each in islice(rest, _MOST_PROBLEMS)]
    if next(rest, None) is not None:
        found.append("there are more problems")
    return found


def listed(names: Sequence[str], sign: str = ", ") -> str:
    """Return the first names, and the number of the others."""
    more = len(names) - _MOST_NAMES
    return sign.join(names[:_MOST_NAMES]) + (f"{sign}and {more} more" if more > 0 else "")
