"""QueueCapacity: keeps a pod out of activeQ while its queue is full.

It is not a plugin that a profile names. The pod's condition has a reason that autoscalers do not take for a lack of
nodes, because more nodes would not help.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict, by_queue

from .messenger import KubeMessenger

NAME = "QueueCapacity"


class QueueGate:
    """The PreEnqueue gate; stateless. `usage` has the waiting pods and names those that may retry."""

    name = NAME
    activates = True

    def __init__(
        self,
        usage: QueueUsage,
        queue: SchedulingQueue,
        messenger: KubeMessenger,
        lacks: Callable[[PodInfo], Verdict | None],
    ) -> None:
        """Create the gate of `queue`; `lacks` returns what a pod's gang lacks besides room, which is reported first."""
        self._usage = usage
        self._queue = queue
        self._messenger = messenger
        self._lacks = lacks
        self.concerns = usage.concerns

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        short = self._usage.full(pod)
        if short is None:
            return None
        # A nomination must not last as long as a queue may be full.
        had_one = pod.uid in self._queue.nominator.nominated or pod.nominated_node_name
        self._queue.nominate(pod, "", in_gate=True)
        verdict = self._lacks(pod) or by_queue(short)
        self._messenger.refused(pod, verdict.reason, verdict.message, nominated="" if had_one else None)
        return str(short)
