"""QueueCapacity: keeps a pod out of activeQ while its queue is full.

It is not a plugin that a profile names. The pod's condition has a reason that autoscalers do not take for a lack of
nodes, because more nodes would not help.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_scheduler.engine.quotas.shortfall import Shortfall
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.queueusage import QueueUsage

NAME = "QueueCapacity"


class QueueGate:
    """The PreEnqueue gate; stateless. `usage` has the waiting pods and names those that may retry."""

    name = NAME
    activates = True

    def __init__(self, usage: QueueUsage, told: Callable[[PodInfo, Shortfall], None]) -> None:
        """Create the gate; `told` is called for each pod that is kept out."""
        self._usage = usage
        self._told = told
        self.concerns = usage.concerns

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        short = self._usage.full(pod)
        if short is None:
            return None
        self._told(pod, short)
        return str(short)
