"""The results of a session for one group, one pod and one queue."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from agent_scheduler.objects.batch import INQUEUE, NOT_LET_IN, PodGroupStatus

from ..gangs.group import PodGroupInfo
from ..quotas.queues import QueueInfo
from ..quotas.vector import Total
from ..state.podinfo import PodInfo
from ..verdicts import Verdict
from .model import TaskStatus


class GroupResult(Struct, frozen=True, kw_only=True):
    group: PodGroupInfo
    status: PodGroupStatus
    #: Whether the status differs from that of the object.
    write: bool
    #: Status -> number of tasks.
    tasks: Mapping[str, int]
    #: None for a group that has its minimum.
    verdict: Verdict | None
    #: Whether victims were selected for it that have not left so far.
    preempts: bool = False

    @property
    def waits_for(self) -> str:
        """One of `verdicts.LABELS`, or empty."""
        return "" if self.verdict is None else self.verdict.label

    @property
    def is_interim(self) -> bool:
        """Whether the next session replaces the status: the group is new, and all its members are being bound."""
        group = self.group
        return (
            self.status.phase in (INQUEUE, *NOT_LET_IN)
            and group.status.phase in NOT_LET_IN
            and not (group.status.conditions or group.waiting_roles)
            and self.verdict is None
            and self.tasks.keys() == {TaskStatus.BINDING.text}
        )


class PodResult(Struct, frozen=True, kw_only=True):
    """A PodScheduled condition with status False that the pod does not have; `nominated` is empty for no node."""

    pod: PodInfo
    reason: str
    message: str
    nominated: str = ""


class QueueResult(Struct, frozen=True, kw_only=True):
    """The usage of a queue and its children.

    With the book of queues it counts all pods with a node, otherwise the pods of the session's jobs that Volcano
    counts.
    """

    queue: QueueInfo
    allocated: Total
    #: Whether the status of the object differs.
    write: bool
