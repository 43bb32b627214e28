"""FitError: how many nodes were refused for which reason, in kube-scheduler's words.

From `framework/types.go`. Each part is a number and a reason; parts are in the order of their text, so 10 comes
before 2. A node with two reasons counts in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.decisions.plain.world import Refusal


def fit_error(nodes: int, refusals: Iterable[Refusal]) -> str:
    counts = Counter(reason for refusal in refusals for reason in refusal.reasons)
    parts = sorted(f"{count} {reason}" for reason, count in counts.items())
    return (
        f"0/{nodes} nodes are available: {', '.join(parts)}." if parts else f"0/{nodes} nodes are available"
    )
