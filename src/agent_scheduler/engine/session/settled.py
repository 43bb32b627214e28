"""Jobs that stand for themselves in later sessions.

A job at rest is as the session before found it: all is written that there was to say, nothing of it is under way, and
what is pending was refused by nodes alone. As long as its group and its pods are the same objects, and no event has
helped one of its pods, a session would come to the same again, or could only find less room. So it counts in shares and
queues with what it holds and asks for, and no action looks at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ..quotas.demand import JobDemand
from .conf import SessionConf
from .model import Job, TaskStatus

if TYPE_CHECKING:
    from .close import GroupResult
    from .session import Session

#: Jobs that are in one step where each takes a microsecond or two.
STRIDE: Final = 32

#: These make room for jobs, and so may help one though no room has come free.
_MAKING_ROOM: Final = frozenset(("preempt", "reclaim"))
#: It lets jobs have claims as time goes by, without an event.
_BY_TIME: Final = "sla"
_AT_REST: Final = (
    TaskStatus.PENDING,
    TaskStatus.BOUND,
    TaskStatus.RUNNING,
    TaskStatus.SUCCEEDED,
    TaskStatus.FAILED,
)
_HAVING_CLAIMS: Final = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


class Settled(Struct, frozen=True, kw_only=True):
    """`job`: not changed any more. `demand` is what it held and asked for at the opening. `share` is None without a
    plugin that has shares of jobs."""

    job: Job
    demand: JobDemand
    result: GroupResult
    share: float | None


def settles(conf: SessionConf) -> bool:
    """Whether jobs may stand for themselves under these actions and plugins."""
    return _MAKING_ROOM.isdisjoint(conf.actions) and conf.option(_BY_TIME) is None


def has_claims(job: Job) -> bool:
    """Whether it keeps room from others for no longer than the session: nobody tells these when it is free."""
    return job.in_statuses(_HAVING_CLAIMS) > 0


def at_rest(session: Session, job: Job) -> bool:
    if job.is_pending or job.in_statuses(_AT_REST) != len(job.tasks):
        return False
    pending = job.by_status[TaskStatus.PENDING]
    if not pending:
        return True
    return (
        not session.claims
        and job.uid not in session.held_back
        and not job.best_effort
        and bool(job.fit_errors)
        and not any(task.only_queue_gate for task in pending.values())
    )
