"""QueueCapacity: a pod whose queue is full is not looked at until more fits into it.

Not a plugin that a profile names. The API server is told why the pod waits, by a reason that autoscalers do not take
for a want of nodes: with more nodes the queue would be as full.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_scheduler.engine.quotas.shortfall import Shortfall
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.queueusage import QueueUsage

NAME = "QueueCapacity"


class QueueGate:
    """Holds nothing of its own: who waits is in `usage`, which names those that may try again."""

    name = NAME
    activates = True

    def __init__(self, usage: QueueUsage, told: Callable[[PodInfo, Shortfall], None]) -> None:
        """`told` is called for each pod that is kept out."""
        self._usage = usage
        self._told = told
        self.concerns = usage.concerns

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        short = self._usage.full(pod)
        if short is None:
            return None
        self._told(pod, short)
        return str(short)
