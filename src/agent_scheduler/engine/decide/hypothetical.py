"""Hypothetical pods per row whose volumes, host ports or GPUs are not plain amounts, by UID."""

from __future__ import annotations

from typing import TypeVar

from ..state.columns import Columns

T = TypeVar("T")


def is_hypothetical(columns: Columns, uid: str, row: int) -> bool:
    """Return whether the pod is hypothetically on `row` with volumes, host ports or GPUs. Other pods have no entry."""
    kinds = (columns.hypothetical_pods, columns.hypothetical_ports, columns.hypothetical_gpus)
    return any(uid in by_row.get(row, ()) for by_row in kinds)


def note(by_row: dict[int, dict[str, T]], row: int, uid: str, what: T | None) -> None:
    """Record that the pod has `what` on the row, or remove its entry if None."""
    there = by_row.setdefault(row, {})
    if what is None:
        del there[uid]
    else:
        there[uid] = what
    if not there:
        del by_row[row]
