"""Scores by a curve over utilization, which a configuration gives as points: kube-scheduler's `shape`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ..framework.plugin import MAX_NODE_SCORE

#: Percent.
FULL: Final = 100
#: The best score in a configuration.
_BEST: Final = 10


def rates_of(shape: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return [utilization in percent] its rate.

    `shape` is (utilization, score from 0 to 10) by ascending utilization.
    """
    return tuple(_on_curve(shape, at) for at in range(FULL + 1))


def _on_curve(shape: Sequence[tuple[int, int]], at: int) -> int:
    """Interpolate between the points, constant before the first and after the last.

    Truncated toward the earlier point.
    """
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
