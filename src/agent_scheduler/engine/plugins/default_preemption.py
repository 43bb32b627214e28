"""DefaultPreemption: allows the pods of a profile to preempt others, and limits the search for candidates.

The rules are in `engine.preemption`. A pod is not tried again while its victims are being evicted, and their end wakes
it: both under this plugin's name. The plugin that refused the pod may have nothing to do with the victims, for example
if another pod took its host port meanwhile.
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
        """Return the number of candidates that suffices among `nodes` nodes on which evictions may help."""
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


#: The highest priority comes first, so that the priorities above a victim are a range.
_BY_PRIORITY = PodIndex(keys_of=lambda pod: (Amount("priority", -pod.priority),), shared=lambda pod: pod.priority)
