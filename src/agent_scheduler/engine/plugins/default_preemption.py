"""DefaultPreemption: whether the pods of a profile may have others evicted, and how hard candidates are looked for.

The rules are in `engine.preemption`. While a pod's victims are being evicted it is not tried again, and when it has to
wait for their end, that is what wakes it: both under this plugin's name. What refused the pod may have nothing to do
with the victims, such as a host port that somebody else took meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import Amount, ByKeys, PodIndex, UpTo
from ..framework.args import DefaultPreemptionArgs
from ..state.podinfo import PodInfo

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
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE),
                _victim_left,
                ByKeys(_BY_PRIORITY, _above, once=True),
            ),
        )


def _victim_left(pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
    assert isinstance(old, PodInfo)
    return QueueingHint.QUEUE if old.priority < pod.priority else QueueingHint.SKIP


def _above(event: ClusterEvent, old: PodInfo, new: object) -> tuple[UpTo, ...]:
    return (UpTo("priority", -old.priority - 1),)


#: Highest first, so that those above a victim are a range.
_BY_PRIORITY = PodIndex(
    keys_of=lambda pod: (Amount("priority", -pod.priority),), shared=lambda pod: pod.priority
)
