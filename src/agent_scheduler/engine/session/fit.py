"""Why no node would do for a task, in Volcano's words (`unschedule_info.go`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class FitErrors(NamedTuple):
    """`plugins`: those that refused."""

    message: str
    plugins: frozenset[str] = frozenset()


def histogram(counts: Mapping[str, int]) -> str:
    """Each reason behind how often it holds, sorted as texts."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))


def fit_message(nodes: int, counts: Mapping[str, int]) -> str:
    message = f"0/{nodes} nodes are unavailable"
    return f"{message}: {histogram(counts)}." if nodes else message
