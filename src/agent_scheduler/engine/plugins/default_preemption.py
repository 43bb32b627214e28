"""DefaultPreemption: whether the pods of a profile may have others evicted, and how hard candidates are looked for.

The rules are in `engine.preemption`. While a pod's victims are being evicted it is not tried again: it waits under this
plugin's name, and the end of a pod on a node lets it ask for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..podinfo import PodInfo
from ..queueing.events import ActionType, ClusterEvent, Resource
from ..queueing.hints import ClusterEventWithHint, QueueingHint
from .args import DefaultPreemptionArgs

NAME = "DefaultPreemption"
WAITING = "waiting for the preemption for this pod to be finished"


class DefaultPreemption:
    name = NAME

    def __init__(self, args: DefaultPreemptionArgs) -> None:
        self._args = args

    def wanted(self, nodes: int) -> int:
        """How many candidates are enough of so many nodes on which evictions might help."""
        args = self._args
        share = nodes * args.min_candidate_nodes_percentage // 100
        return min(max(share, args.min_candidate_nodes_absolute), nodes)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (ClusterEventWithHint(ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE), _nothing),)


def _nothing(pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
    """That the gate is asked again is all that is wanted: whether room came is for those who refused the pod to say."""
    return QueueingHint.SKIP
