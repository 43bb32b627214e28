"""Pods of sessions that say that they want nodes: a session is due once their queue would not take them any more.

Sessions follow what may help somebody. That others take what was left of a queue helps nobody, but then no node would
help the pods that wait for one in this queue, and they are to say so before an autoscaler adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping

from agent_scheduler.engine.session.close import GroupResult, Result
from agent_scheduler.engine.session.model import Job
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.session.written import wanting_nodes
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.queueusage import QueueUsage
from agent_scheduler.engine.state.wantingpods import Together


class WantingGroups:
    """Owns the pods that represent their group among those that want nodes: one of each kind."""

    def __init__(self, usage: QueueUsage, pods: Mapping[str, PodInfo], due: Callable[[], object]) -> None:
        """`pods`: those that wait, as last seen. `due`: has a session held that looks at all jobs."""
        self._usage = usage
        self._pods = pods
        self._due = due
        self._standing: dict[GroupKey, Collection[str]] = {}
        #: What queues had taken when the session under way began.
        self._taken = usage.taken
        usage.on_not_taken = self._not_taken

    def begin(self) -> None:
        """A session is about to look at queues."""
        self._taken = self._usage.taken

    def see(self, session: Session, result: Result) -> Generator[None, None, None]:
        """A session has ended, one group at a time. Of jobs that it did not look at all is as before."""
        for key in [key for key in self._standing if key.text not in session.jobs]:
            self._drop(key)
        # While it went on others may have taken what it had found.
        is_late = self._taken != self._usage.taken
        groups = {each.group.key: each for each in result.groups}
        for job in session.fresh:
            self._drop(job.group.key)
            found = groups.get(job.group.key)
            if found is not None:
                self._set(job, found, result, is_late=is_late)
            yield

    def _set(self, job: Job, group: GroupResult, result: Result, *, is_late: bool) -> None:
        usage, key = self._usage, job.group.key
        if usage.promises.is_let_in(key) and usage.book.entry(key.text) is not None:
            # Its room is nobody else's.
            return
        standing = []
        for uid, wanted in wanting_nodes(job, group.verdict, result.held, usage.gated.keeping):
            pod = self._pods.get(uid)
            if pod is not None and usage.queue_of(pod) == job.queue:
                if is_late and usage.book.shortfall(job.queue, wanted) is not None:
                    self._due()
                usage.wants_node(pod, nominated=False, together=Together((uid,), {job.queue: wanted}))
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
