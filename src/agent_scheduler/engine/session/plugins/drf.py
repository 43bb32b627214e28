"""drf: orders jobs by their dominant share of the cluster, ascending (`pkg/scheduler/plugins/drf`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ...quotas.vector import Total, Vector, add_to, names, plus, take_from
from ..conf import PluginOption
from ..hooks import Hooks
from ..model import JobInfo, TaskInfo
from ..session import Session

#: The maximum difference of shares that count as equal for evictions.
_CLOSE: Final = 0.000001


class _Shares:
    """The dominant shares of jobs in one session.

    Invariant: `_held` returns what a job's tasks hold or have a claim on; `_shares` caches shares until this changes.
    """

    def __init__(self, session: Session) -> None:
        self._total = {resource: session.total[resource] for resource in names(session.total)}
        #: Job -> what it held at the opening of the session.
        self._opened = {uid: demand.allocated for uid, demand in zip(session.jobs, session.demands, strict=True)}
        #: Job -> what it holds now, for jobs with changes.
        self._changed: dict[str, Total] = {}
        self._shares: dict[str, float] = {}

    def _of(self, held: Vector) -> float:
        return max((held.get(resource, 0) / amount for resource, amount in self._total.items()), default=0.0)

    def share(self, job: JobInfo) -> float:
        found = self._shares.get(job.uid)
        if found is None:
            found = self._shares[job.uid] = self._of(self._held(job.uid))
        return found

    def _held(self, uid: str) -> Vector:
        return self._changed.get(uid) or self._opened[uid]

    def allocated(self, task: TaskInfo) -> None:
        self._change(task, add_to)

    def deallocated(self, task: TaskInfo) -> None:
        self._change(task, take_from)

    def _change(self, task: TaskInfo, change: Callable[[Total, Vector], None]) -> None:
        uid = task.job.uid
        held = self._changed.get(uid)
        if held is None:
            held = self._changed[uid] = dict(self._opened[uid])
        change(held, task.request)
        self._shares.pop(uid, None)

    def preemptable(self, preemptor: TaskInfo, tasks: Sequence[TaskInfo]) -> Sequence[TaskInfo]:
        """Return tasks of jobs whose share without them is still at least that of the preemptor's job with its task."""
        mine = self._of(plus(self._held(preemptor.job.uid), preemptor.request))
        left: dict[str, Total] = {}
        victims = []
        for task in tasks:
            uid = task.job.uid
            rest = left.setdefault(uid, dict(self._held(uid)))
            take_from(rest, task.request)
            theirs = self._of(rest)
            if mine < theirs or abs(mine - theirs) <= _CLOSE:
                victims.append(task)
        return victims


def drf(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin drf."""
    shares = _Shares(session)

    def job_closed(job: JobInfo) -> None:
        session.shares[job.uid] = shares.share(job)

    return Hooks(
        job_order=shares.share,
        preemptable=shares.preemptable,
        allocated=shares.allocated,
        deallocated=shares.deallocated,
        job_closed=job_closed,
    )
