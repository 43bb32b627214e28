"""The ports of a session: the receivers of its binds and evictions, and the account of queues."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from ..gangs.group import PodGroupInfo
from ..queues.book import QuotaBook
from ..queues.promises import Promises
from .model import JobInfo, TaskInfo


class Committer(Protocol):
    def commit(self, job: JobInfo, tasks: Sequence[TaskInfo], minimum: int) -> Collection[str]:
        """Bind these tasks to their nodes, if at least `minimum` still can be. Returns the UIDs of those that cannot.

        The committer owns the reservations of plugins for the others from now on (`Trial.hand_over`).
        """


class Evictor(Protocol):
    def evict(self, task: TaskInfo, reason: str) -> bool:
        """Start the eviction of a task's pod. Returns whether it was started."""


class SessionPorts(NamedTuple):
    """The receivers of a session's decisions."""

    committer: Committer
    evictor: Evictor
    #: Called when the session begins to handle a group; with None when it handles none in particular.
    begins: Callable[[PodGroupInfo | None], None] = lambda _group: None


class QueueAccount(NamedTuple):
    """The account of queues that all schedulers share, as a session uses it."""

    #: Counts the queues; if None, only plugins limit them.
    book: QuotaBook | None = None
    #: Decides which groups are admitted; if None, only plugins do.
    promises: Promises | None = None
