"""DefaultPreemption: whether the pods of a profile may have others evicted, and how hard candidates are looked for.

The rules are in `engine.preemption`. While a pod's victims are being evicted it is not tried again, and when it has to
wait for their end, that is what wakes it: both under this plugin's name. What refused the pod may have nothing to do
with the victims, such as a host port that somebody else took meanwhile.
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
        return (ClusterEventWithHint(ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE), _victim_left),)


def _victim_left(pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
    assert isinstance(old, PodInfo)
    return QueueingHint.QUEUE if old.priority < pod.priority else QueueingHint.SKIP
