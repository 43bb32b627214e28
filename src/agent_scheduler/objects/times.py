"""RFC 3339 times as the Kubernetes API writes them: in UTC, with whole seconds or exactly six digits of them."""

from __future__ import annotations

from datetime import UTC, datetime

# isoformat takes a third of strftime's time, and several times are written for each pod.


def time_text(moment: datetime) -> str:
    """`metav1.Time`: `2026-01-01T00:00:00Z`; parts of a second are cut off. `moment` knows its offset."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:-6] + "Z"


def micro_time_text(moment: datetime) -> str:
    """`metav1.MicroTime`: `2026-01-01T00:00:00.000000Z`. `moment` knows its offset."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
