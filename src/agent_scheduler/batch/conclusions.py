"""Evaluates an ended session for the groups and pods that it did not place."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from agent_scheduler.engine.session.model import JobInfo, TaskStatus
from agent_scheduler.engine.session.results import GroupResult
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.objects.batch import PENDING

from .waiting import NO_PLUGINS, ONLY_NOT_TRIED, EquivalentPods, kind_of

#: Statuses in which a task occupies or claims capacity.
_WITH_ROOM: Final = (
    TaskStatus.ALLOCATED,
    TaskStatus.PIPELINED,
    TaskStatus.BINDING,
    TaskStatus.BOUND,
    TaskStatus.RUNNING,
    TaskStatus.RELEASING,
)


def refusals_of(session: Session) -> Generator[None, None, dict[EquivalentPods | GroupKey, frozenset[str]]]:
    """Return the plugins that rejected nodes, for each kind of pod and each group of the jobs that were evaluated.

    For a kind, that includes those that rejected nodes when pods were to be evicted for it. A plugin may then reject it
    for another reason than the lack of capacity that was found first, and an event that ends this reason helps it.
    """
    found: dict[EquivalentPods | GroupKey, frozenset[str]] = {}
    for job in session.fresh:
        key = job.group.key
        for uid, why in job.fit_errors.items():
            for at in (key, kind_of(key, job.tasks[uid].pod)):
                found[at] = found.get(at, NO_PLUGINS) | why.plugins
        for uid, plugins in job.eviction_refusals.items():
            kind = kind_of(key, job.tasks[uid].pod)
            found[kind] = (found.get(kind) or found.get(key) or ONLY_NOT_TRIED) | plugins
        yield
    return found


def kept_out_by_quotas(session: Session) -> frozenset[str]:
    """Return the namespaces of the jobs that were not admitted because of a quota."""
    return frozenset(job.namespace for job in session.fresh if job.quota_refusal)


def kept_out_by_cluster(session: Session) -> bool:
    """Return whether groups, with or without pods, are not admitted to their queue because the cluster is full."""
    return session.asks_cluster and any(job.is_pending for job in session.fresh)


def is_followed(session: Session, groups: Iterable[GroupResult]) -> bool:
    """Return whether another session might admit groups that this one did not, without any further event.

    Plugins count a group by its phase at the start of the session: an Inqueue group counts with all of its
    `minResources` in addition to what its pods occupy on nodes, a running group with less. So a changed phase may make
    room for others. Volcano does not need this, since it runs a session every second.
    """
    if session.let_in_late:
        return True
    return kept_out_by_cluster(session) and any(
        each.status.phase != (each.group.status.phase or PENDING) for each in groups
    )


def claimed_room(session: Session) -> dict[str, str]:
    """Return the tasks that wait for terminating pods, as a map from UID to the node of these pods.

    Only tasks of gangs that have their minimum once these pods have left are included. The claims of all other
    pipelined tasks end with the session.
    """
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
    """Return the UIDs of pods that hold capacity for a later stage although no pod of an earlier stage holds any.

    The pods of the earlier stage may lack just this capacity, and two such gangs would wait for each other.
    """
    found: list[str] = []
    for job in session.fresh:
        if job.earlier_stage_waits:
            found += _keeping_room_for_nobody(job)
        yield
    return found


def _keeping_room_for_nobody(job: JobInfo) -> list[str]:
    found: list[str] = []
    for status in _WITH_ROOM:
        for task in job.by_status[status].values():
            if not task.pod.stands_by:
                return []
            found.append(task.uid)
    return found
