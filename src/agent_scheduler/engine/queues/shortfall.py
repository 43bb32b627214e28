"""The amounts that a queue lacks for a pod or group, or why the queue takes no pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..quotas.vector import shown

#: The reason of pods whose queue is full or takes no pods. Autoscalers add no nodes for it.
QUEUE_FULL: Final = "QueueFull"


class Shortfall(NamedTuple):
    """A queue that cannot hold more, with the amounts `missing` in its capability.

    `missing` is empty if the queue takes no pods: it does not exist, or its `state` is not Open.
    """

    queue: str
    missing: Mapping[str, float]
    state: str | None = None

    def __str__(self) -> str:
        if not self.missing:
            if self.state is None:
                return f"queue {self.queue} does not exist"
            return f"queue {self.queue} takes no pods: its state is {self.state or 'not set'}"
        lacking = ", ".join(f"{text} of {resource}" for resource, text in shown(self.missing).items())
        return f"queue {self.queue} has too little capability left: {lacking} missing"
