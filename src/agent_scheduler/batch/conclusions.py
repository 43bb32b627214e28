"""What follows from a session that was held, for those that it found no room for."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from agent_scheduler.engine.session.close import GroupResult
from agent_scheduler.engine.session.model import Job, TaskStatus
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.objects.batch import PENDING

from .waiting import NO_PLUGINS, Kind, kind_of

#: In these a task has room of its own, or a claim on some.
_WITH_ROOM: Final = (
    TaskStatus.ALLOCATED,
    TaskStatus.PIPELINED,
    TaskStatus.BINDING,
    TaskStatus.BOUND,
    TaskStatus.RUNNING,
    TaskStatus.RELEASING,
)


def refusals_of(session: Session) -> Generator[None, None, dict[Kind | GroupKey, frozenset[str]]]:
    """Plugins that refused pods of a kind, and of a group; of the jobs that were looked at."""
    found: dict[Kind | GroupKey, frozenset[str]] = {}
    for job in session.fresh:
        key = job.group.key
        for uid, why in job.fit_errors.items():
            for at in (key, kind_of(key, job.tasks[uid].pod)):
                found[at] = found.get(at, NO_PLUGINS) | why.plugins
        yield
    return found


def kept_out_by_quotas(session: Session) -> frozenset[str]:
    """Namespaces of the jobs that a quota has kept from being let in."""
    return frozenset(job.namespace for job in session.fresh if job.quota_refusal)


def kept_out_by_cluster(session: Session) -> bool:
    """Whether groups wait to be let into their queue until the cluster has room for them. They may have no pods yet."""
    return session.asks_cluster and any(job.is_pending for job in session.fresh)


def is_followed(session: Session, groups: Iterable[GroupResult]) -> bool:
    """Whether another session might let in groups that this one kept out, though nothing else happens.

    Plugins count a group by the phase that it had as the session began: all of its `minResources` while it is Inqueue,
    beside what its pods have on nodes already, and less when it runs. Volcano holds a session each second in any case.
    """
    if session.let_in_late:
        return True
    return kept_out_by_cluster(session) and any(
        each.status.phase != (each.group.status.phase or PENDING) for each in groups
    )


def claimed_room(session: Session) -> dict[str, str]:
    """UID -> the node on which pods are leaving, of tasks whose gang has its minimum when they have left. Others that
    the session has counted on room for keep nobody away from it."""
    jobs = session.fresh
    leaving = {task.node_name for job in jobs for task in job.by_status[TaskStatus.RELEASING].values()}
    return {
        task.uid: task.node_name
        for job in jobs
        if job.waiting and session.tiers.job_pipelined(job)
        for task in job.pipelined_tasks()
        if task.node_name in leaving
    }


def left_alone(session: Session) -> Generator[None, None, list[str]]:
    """UIDs of those that stand by with room while others of their gang, which are to run before them, wait and none of
    these has any: it may be just the room that they lack, and two such gangs would wait for one another."""
    found: list[str] = []
    for job in session.fresh:
        if job.earlier_stage_waits:
            found += _keeping_room_for_nobody(job)
        yield
    return found


def _keeping_room_for_nobody(job: Job) -> list[str]:
    found: list[str] = []
    for status in _WITH_ROOM:
        for task in job.by_status[status].values():
            if not task.pod.stands_by:
                return []
            found.append(task.uid)
    return found
