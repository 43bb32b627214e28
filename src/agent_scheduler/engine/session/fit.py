"""Builds the message why no node is feasible for a task, with Volcano's wording (`unschedule_info.go`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..plugins.node_resources_fit import RequestedResources
from ..quotas.vector import in_order
from ..state.columns import Columns, Rows


class FitErrors(NamedTuple):
    """The reason why no node is feasible for a task; `plugins` are those that rejected nodes."""

    message: str
    plugins: frozenset[str] = frozenset()


def histogram(counts: Mapping[str, int]) -> str:
    """Return each reason with its count before it, sorted as strings."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))


def fit_message(nodes: int, counts: Mapping[str, int]) -> str:
    message = f"0/{nodes} nodes are unavailable"
    return f"{message}: {histogram(counts)}." if nodes else message


def first_short(wanted: RequestedResources, columns: Columns, rows: Rows) -> dict[str, int]:
    """Count for rows without enough resources which resource is the first insufficient one."""
    counts: dict[str, int] = {}
    at = {name: each[:2] for name, each in zip(wanted.resolved, wanted.resolve(columns).each, strict=True)}
    for name in in_order((*at, *wanted.missing)):
        if name in at:
            index, amount = at[name]
            offered = columns.allocatable[index][rows]
            short = offered - columns.requested[index][rows] < amount
            if index in wanted.elsewhere:
                short &= offered > 0
            number = int(np.count_nonzero(short))
            rows = rows[~short]
        else:
            number, rows = rows.size, rows[:0]
        if number:
            counts[f"Insufficient {name}"] = number
    return counts
