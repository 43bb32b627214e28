"""What a queue that is full, or takes no pods, is short of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from .vector import shown

#: What pods say whose queue is full, or takes none. No reason for autoscalers to add nodes.
QUEUE_FULL: Final = "QueueFull"


class Shortfall(NamedTuple):
    """The queue that cannot hold more: so much is `missing` of its capability; nothing if it takes no pods at all,
    since there is none or it is in another `state` than Open."""

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
