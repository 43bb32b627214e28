"""Settled jobs: jobs that later sessions reuse without evaluating them again.

A job is at rest if its status is written, none of its tasks is in progress, and its pending tasks were rejected by
nodes only. While its group and pods are the same objects and no event has helped one of its pods, another session would
have the same result, or find less room. So a settled job counts in shares and queues with what it holds and requests,
and no action evaluates it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..quotas.demand import JobDemand
from .conf import SessionConf
from .model import JobInfo, TaskStatus
from .results import GroupResult

#: The number of jobs per step, if each takes a microsecond or two.
STRIDE: Final = 32

#: Actions that evict, and so may help a job without any event.
_MAKING_ROOM: Final = frozenset(("preempt", "reclaim"))
#: A plugin that gives claims to jobs after some time, without an event.
_BY_TIME: Final = "sla"
_HAVING_CLAIMS: Final = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


class SettledJob(Struct, frozen=True, kw_only=True):
    """A settled job, which no longer changes.

    `demand` is what it held and requested at the opening. `share` is None without a plugin that computes shares of
    jobs.
    """

    job: JobInfo
    demand: JobDemand
    result: GroupResult
    share: float | None


def settles(conf: SessionConf) -> bool:
    """Return whether jobs may be settled with these actions and plugins."""
    return _MAKING_ROOM.isdisjoint(conf.actions) and conf.option(_BY_TIME) is None


def has_claims(job: JobInfo) -> bool:
    """Return whether the job claims room until the session ends; no event reports when that room is free again."""
    return job.in_statuses(_HAVING_CLAIMS) > 0
