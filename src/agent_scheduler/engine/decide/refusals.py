"""What is said of nodes that filters refuse: a message for people, and what the queue and preemption need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ..state.columns import Columns, Rows
from .compiled import CompiledFilter, count_reasons

NO_PLUGINS: Final[frozenset[str]] = frozenset()


class Refusal(NamedTuple):
    """Why no node will do. `plugins` are those that refused at least one node: their events wake the pod."""

    message: str
    plugins: frozenset[str]


class Diagnosis(NamedTuple):
    """Nodes that filters refuse, each counted for the first that does."""

    #: Reason, in kube-scheduler's words, and on how many nodes.
    counts: Mapping[str, int]
    plugins: frozenset[str]
    #: The nodes that might do if pods of lower priority went away.
    curable: Rows


def diagnose(filters: Sequence[CompiledFilter], columns: Columns, rows: Rows) -> Diagnosis:
    """What the filters, asked in their order, say of `rows`."""
    counts: dict[str, int] = {}
    plugins = set()
    curable: list[Rows] = []
    for entry in filters:
        if not rows.size:
            break
        passed = entry.feasible(columns, rows)
        refused = rows[~passed]
        if refused.size:
            plugins.add(entry.plugin.name)
            count_reasons(counts, entry, columns, refused)
            curable.append(refused[entry.plugin.curable(entry.state, columns, refused)])
        rows = rows[passed]
    return Diagnosis(
        counts, frozenset(plugins), np.sort(np.concatenate(curable)) if curable else rows[:0].copy()
    )


def fit_error(nodes: int, counts: Mapping[str, int]) -> str:
    """kube-scheduler's `FitError` message: reasons as "<count> <reason>", sorted as texts."""
    if not nodes:
        return "no nodes available to schedule pods"
    reasons = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{nodes} nodes are available: {', '.join(reasons)}."
