"""The last decisions on pods that were given a node, for users who ask why a pod is where it is.

Each decision costs an append of what it had at hand: its candidates with their versions and scores. Scores by plugin
are not among these, so an explanation computes them from the present state and marks nodes that have changed since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from agent_scheduler.engine.decide.decide import CandidateNodes

#: The most decisions that are kept. One takes up to 0.7 KB, so all take up to 35 MB. They are those of ten
#: minutes at 83 pods/s, and those of five seconds at 10,000 pods/s.
KEPT: Final = 50_000
#: Seconds for which a decision is kept.
KEPT_SECONDS: Final = 600.0


class PastDecision(Struct, frozen=True, gc=False):
    """A decision by which a pod was assumed on a node. Its bind may have failed since."""

    #: The clock when the attempt began.
    began: float
    uid: str
    node_name: str
    placement: CandidateNodes
    #: The version of the node's row with the pod.
    version: int
    attempts: int
    #: The worker or session that decided, for users.
    by: str


class PastDecisions:
    """Owner of past decisions, oldest first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._decisions: deque[PastDecision] = deque(maxlen=KEPT)
        self.add = self._decisions.append

    def __len__(self) -> int:
        return len(self._decisions)

    @property
    def since(self) -> float:
        """The time since which all decisions of this process are kept."""
        oldest = self._decisions[0].began if len(self._decisions) == KEPT else self._began
        return max(oldest, self._began, self._clock() - KEPT_SECONDS)

    def expire(self) -> None:
        """Remove the decisions that are older than `KEPT_SECONDS`."""
        before = self._clock() - KEPT_SECONDS
        while self._decisions and self._decisions[0].began < before:
            self._decisions.popleft()

    def of(self, uid: str) -> PastDecision | None:
        """Return the last decision on the pod. Reads all that are kept, which takes milliseconds."""
        self.expire()
        return next((each for each in reversed(self._decisions) if each.uid == uid), None)
