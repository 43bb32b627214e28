"""Refusals by filters: the message for people, and the data for the queue and preemption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ..state.columns import Columns, Rows
from .compiled import CompiledFilter, count_reasons

NO_PLUGINS: Final[frozenset[str]] = frozenset()


class Refusal(NamedTuple):
    """The reason why no node is feasible. `plugins` refused at least one node: their events wake the pod."""

    message: str
    plugins: frozenset[str]


class Diagnosis(NamedTuple):
    """Nodes that filters refuse, each counted for the first filter that refuses it."""

    #: kube-scheduler's reason -> its number of nodes.
    counts: Mapping[str, int]
    plugins: frozenset[str]
    #: The nodes that may become feasible if pods of lower priority are removed.
    curable: Rows


def diagnose(filters: Sequence[CompiledFilter], columns: Columns, rows: Rows) -> Diagnosis:
    """Ask the filters about `rows` in their order, and return their refusals."""
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
    return Diagnosis(counts, frozenset(plugins), np.sort(np.concatenate(curable)) if curable else rows[:0].copy())


def fit_error(nodes: int, counts: Mapping[str, int]) -> str:
    """Return kube-scheduler's `FitError` message: reasons as "<count> <reason>", sorted as strings."""
    if not nodes:
        return "no nodes available to schedule pods"
    reasons = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{nodes} nodes are available: {', '.join(reasons)}."
