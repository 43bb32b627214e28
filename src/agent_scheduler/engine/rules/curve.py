"""Scores by a curve over utilisation, which a configuration gives as points: kube-scheduler's `shape`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ..framework.plugin import MAX_NODE_SCORE

#: Per cent.
FULL: Final = 100
#: The best score in a configuration.
_BEST: Final = 10


def rates_of(shape: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """[utilisation in per cent] what it rates. `shape`: (utilisation, score from 0 to 10), by rising utilisation."""
    return tuple(_on_curve(shape, at) for at in range(FULL + 1))


def _on_curve(shape: Sequence[tuple[int, int]], at: int) -> int:
    """Linear between the points, level before the first and after the last; cut off towards the point before."""
    scale = MAX_NODE_SCORE // _BEST
    first, last = shape[0], shape[-1]
    if at <= first[0]:
        return first[1] * scale
    for (start, low), (end, high) in pairwise(shape):
        if at <= end:
            rise = (high - low) * scale * (at - start)
            step = abs(rise) // (end - start)
            return low * scale + (step if rise >= 0 else -step)
    return last[1] * scale
