"""The amounts that a queue lacks for a pod or group, or why the queue takes no pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..quotas.access import parts_of_closed
from ..quotas.vector import shown

#: The reason of pods whose queue is full or takes no pods. Autoscalers add no nodes for it.
QUEUE_FULL: Final = "QueueFull"
#: The reason of pods whose namespace may not use their queue.
QUEUE_NOT_ALLOWED: Final = "QueueNotAllowed"


class Shortfall(NamedTuple):
    """A queue that cannot hold more, with the amounts `missing` in its capability.

    `missing` is empty if the queue takes no pods: it does not exist, its `state` is not Open, or it is closed to the
    pods' namespace.
    """

    queue: str
    missing: Mapping[str, float]
    state: str | None = None

    @property
    def is_of_namespace(self) -> bool:
        """Whether the namespace may not use the queue."""
        return parts_of_closed(self.queue) is not None

    def __str__(self) -> str:
        if not self.missing:
            if (closed := parts_of_closed(self.queue)) is not None:
                return f"namespace {closed[1]} is not among those that may use queue {closed[0]}"
            if self.state is None:
                return f"queue {self.queue} does not exist"
            return f"queue {self.queue} takes no pods: its state is {self.state or 'not set'}"
        lacking = ", ".join(f"{text} of {resource}" for resource, text in shown(self.missing).items())
        return f"queue {self.queue} has too little capability left: {lacking} missing"
