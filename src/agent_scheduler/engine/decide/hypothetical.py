"""Who stands on a row in thought, by name: pods with volumes, host ports or GPUs, which are more than amounts."""

from __future__ import annotations

from typing import TypeVar

from ..state.columns import Columns

T = TypeVar("T")


def is_hypothetical(columns: Columns, uid: str, row: int) -> bool:
    """Whether such a pod stands on `row` in thought. Others need not be told by name."""
    kinds = (columns.hypothetical_pods, columns.hypothetical_ports, columns.hypothetical_gpus)
    return any(uid in by_row.get(row, ()) for by_row in kinds)


def note(by_row: dict[int, dict[str, T]], row: int, uid: str, what: T | None) -> None:
    """That the pod has `what` there; None: that it is not there any more."""
    there = by_row.setdefault(row, {})
    if what is None:
        del there[uid]
    else:
        there[uid] = what
    if not there:
        del by_row[row]
