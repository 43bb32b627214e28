"""sla: a job that has waited for as long as it may is let in at once (`pkg/scheduler/plugins/sla`).

The time is that of the group's annotation `volcano.sh/sla-waiting-time`, or `sla-waiting-time`, or else of the plugin's
argument. One that cannot be read, or is not above 0, is none.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from agent_scheduler.objects.durations import parse_duration

from ..conf import PluginOption
from ..hooks import ABSTAIN, PERMIT, Hooks
from ..model import Job

if TYPE_CHECKING:
    from ..session import Session

WAITING_TIME: Final = "sla-waiting-time"


def sla(session: Session, option: PluginOption) -> Hooks:
    everybody = _seconds(option.arguments.get(WAITING_TIME))
    now = _moment(session.now)

    def deadline(job: Job) -> float:
        """When its time is over, in seconds of the epoch; jobs without one come last."""
        annotations = job.group.annotations
        own = _seconds(annotations.get(f"volcano.sh/{WAITING_TIME}")) or _seconds(
            annotations.get(WAITING_TIME)
        )
        allowed = own or everybody
        return math.inf if allowed is None else _moment(job.created) + allowed

    def overdue(job: Job) -> int:
        return PERMIT if deadline(job) <= now else ABSTAIN

    return Hooks(job_order=deadline, job_enqueueable=overdue, job_pipelined=overdue)


def _seconds(text: Any) -> float | None:
    try:
        return parse_duration(text) or None if isinstance(text, str) else None
    except ValueError:
        return None


def _moment(text: str) -> float:
    """RFC 3339; the beginning of the epoch for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
