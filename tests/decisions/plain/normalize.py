"""DefaultNormalizeScore of `plugins/helper`: the largest raw score becomes 100, the others in proportion.

Integers are divided downwards. Reversed, the result is taken from 100; where all are 0, all become 100.
"""

from __future__ import annotations

MAX = 100


def by_largest(raw: dict[str, int], *, reverse: bool = False) -> dict[str, int]:
    largest = max(raw.values())
    if largest == 0:
        return dict.fromkeys(raw, MAX) if reverse else raw
    scaled = {node: score * MAX // largest for node, score in raw.items()}
    return {node: MAX - score for node, score in scaled.items()} if reverse else scaled
