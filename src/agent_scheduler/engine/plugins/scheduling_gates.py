"""SchedulingGates: a pod is not scheduled before its last gate is removed (KEP-3521)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import own_pod
from ..state.podinfo import PodInfo


class SchedulingGates:
    name = "SchedulingGates"
    concerns = attrgetter("gates")

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        return f"waiting for scheduling gates: [{' '.join(pod.gates)}]" if pod.gates else None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED), _own, own_pod
            ),
        )


def _own(pod: object, old: object | None, new: object | None) -> QueueingHint:
    assert isinstance(pod, PodInfo) and isinstance(new, PodInfo)
    return QueueingHint.QUEUE if new.uid == pod.uid else QueueingHint.SKIP
