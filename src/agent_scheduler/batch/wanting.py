"""Tracks pods of sessions that report `Unschedulable`, and triggers a session when their queue becomes full.

Sessions run after events that may help a waiting pod. Other pods that use up a queue help none, but then a node would
not help the pods that wait for one in this queue either. They have to report this before an autoscaler adds a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping

from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.queues.wanting import WantingGang
from agent_scheduler.engine.session.close import SessionResult
from agent_scheduler.engine.session.model import JobInfo
from agent_scheduler.engine.session.results import GroupResult
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.session.settled import STRIDE
from agent_scheduler.engine.session.written import wanting_nodes
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo


class WantingGroups:
    """Owns the pods that represent their group in `QueueUsage.wanting`: one for each kind of pod."""

    def __init__(self, usage: QueueUsage, pods: Mapping[str, PodInfo], due: Callable[[], object]) -> None:
        """Track the waiting `pods`, a live map by UID; `due` makes a session due that evaluates all jobs."""
        self._usage = usage
        self._pods = pods
        self._due = due
        self._standing: dict[GroupKey, Collection[str]] = {}
        #: `QueueUsage.taken` at the start of the current session.
        self._taken = usage.taken
        usage.events.not_taken.connect(self._not_taken)

    def begin(self) -> None:
        """Record the state of the queues at the start of a session."""
        self._taken = self._usage.taken

    def see(self, session: Session, result: SessionResult) -> Generator[None, None, None]:
        """Update the representatives after a session, in steps of one group; settled jobs keep theirs."""
        for number, key in enumerate(list(self._standing)):
            if key.text not in session.jobs:
                self._drop(key)
            if not number % STRIDE:
                yield
        groups: dict[GroupKey, GroupResult] = {}
        for number, each in enumerate(result.groups):
            groups[each.group.key] = each
            if not number % STRIDE:
                yield
        # During the session, other pods may have used the capacity that it counted on.
        is_late = self._taken != self._usage.taken
        for job in session.fresh:
            self._drop(job.group.key)
            found = groups.get(job.group.key)
            if found is not None:
                self._set(job, found, result, is_late=is_late)
            yield

    def _set(self, job: JobInfo, group: GroupResult, result: SessionResult, *, is_late: bool) -> None:
        usage, key = self._usage, job.group.key
        if usage.promises.is_let_in(key) and usage.book.entry(key.text) is not None:
            # The capacity that is promised to the group is available to no other.
            return
        standing = []
        for uid, wanted in wanting_nodes(job, group.verdict, result.held, usage.room.keeping):
            pod = self._pods.get(uid)
            if pod is not None and usage.queue_of(pod) == job.queue:
                if is_late and usage.book.shortfall(job.queue, wanted) is not None:
                    self._due()
                usage.wants_node(pod, nominated=False, together=WantingGang((uid,), {job.queue: wanted}))
                standing.append(uid)
        if standing:
            self._standing[key] = standing

    def _drop(self, key: GroupKey) -> None:
        for uid in self._standing.pop(key, ()):
            self._usage.wanting.drop(uid)

    def _not_taken(self, uids: Collection[str]) -> None:
        for uid in uids:
            self._usage.wanting.drop(uid)
        self._due()
