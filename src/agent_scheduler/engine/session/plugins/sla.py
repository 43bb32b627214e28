"""sla: admits and pipelines a job that has reached its maximum waiting time (`pkg/scheduler/plugins/sla`).

The time is that of the group's annotation `volcano.sh/sla-waiting-time` or `sla-waiting-time`, or else of the plugin's
argument. Invalid and non-positive values are ignored. The plugin reports the time at which the next job reaches its
limit, since there may be no event then.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final

from apimachinery.durations import parse_duration

from ..conf import PluginOption
from ..hooks import ABSTAIN, PERMIT, Hooks
from ..model import JobInfo
from ..session import Session

WAITING_TIME: Final = "sla-waiting-time"


def sla(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin sla."""
    everybody = _seconds(option.arguments.get(WAITING_TIME))
    now = session.moment

    def deadline(job: JobInfo) -> float:
        """Return the end of the job's waiting time, in seconds of the epoch; infinity without one, which is last."""
        annotations = job.group.annotations
        own = _seconds(annotations.get(f"volcano.sh/{WAITING_TIME}")) or _seconds(annotations.get(WAITING_TIME))
        allowed = own or everybody
        if allowed is None:
            return math.inf
        return (datetime.fromisoformat(job.created).timestamp() if job.created else 0.0) + allowed

    def overdue(job: JobInfo) -> int:
        return PERMIT if deadline(job) <= now else ABSTAIN

    def turns_at() -> float:
        """Return the next deadline in whole seconds, since the time of sessions has whole seconds."""
        waiting = (deadline(job) for job in session.fresh if job.is_pending or not job.is_ready)
        soonest = min((each for each in waiting if each > now), default=math.inf)
        return soonest if math.isinf(soonest) else math.ceil(soonest)

    return Hooks(job_order=deadline, job_enqueueable=overdue, job_pipelined=overdue, turns_at=turns_at)


def _seconds(text: Any) -> float | None:
    try:
        return parse_duration(text) or None if isinstance(text, str) else None
    except ValueError:
        return None
