"""A pod in the queue, and the state that the queue keeps for it.

The pod is a value that the queue never changes; a changed pod is another value with the same UID. The state for retries
(attempts, plugins that refused it, urgency) is kept on its `QueuedPodInfo`, never in the pod's annotations, where a
tenant could write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from ..events.events import ActionType, ClusterEvent, Resource
from ..state.podinfo import PodInfo


class QueuedPodInfo(Struct, kw_only=True, eq=False, gc=False):
    """One waiting pod. Owned by the one structure of the queue that holds it, or by its attempt while in flight.

    `gc=False` is safe because an entry is in no reference cycle. Instants are the queue's clock, in seconds; 0.0 or
    None means "not set" as each field describes.
    """

    uid: str
    pod: PodInfo
    #: The instant at which the pod was last put into the queue; decides between equal priorities.
    timestamp: float
    attempts: int = 0
    #: The instant at which the pod first entered activeQ; time behind a gate does not count. Never changes once set.
    initial_attempt_timestamp: float | None = None
    #: The first instant at which the pod no longer backs off; 0.0 if it does not back off.
    backoff_expiration: float = 0.0
    #: Attempts that plugins refused. An error in between does not reset it.
    unschedulable_count: int = 0
    #: Consecutive attempts that failed without a refusal by a plugin.
    consecutive_errors_count: int = 0
    unschedulable_plugins: frozenset[str] = frozenset()
    #: Plugins that wait for an event of their own (Permit, PreBind). When their hint queues the pod, it skips backoff.
    pending_plugins: frozenset[str] = frozenset()
    #: The PreEnqueue plugin that keeps the pod out of activeQ; empty if none does.
    gating_plugin: str = ""
    #: The events after which the gating plugin may admit the pod.
    gating_events: tuple[ClusterEvent, ...] = ()
    gating_message: str = ""
    was_flushed: bool = False
    flush_timestamp: float = 0.0
    #: Above 0: the pod is popped before every pod of a lower level, whatever the priority. See
    #: `SchedulingQueue.requeue_urgent`.
    urgent: int = 0
    #: Urgent retries since the pod last backed off or was refused.
    urgent_retries: int = 0
    #: All plugins that refused the pod, pending plugins first and otherwise sorted. Hints are asked in this order, so
    #: that the best possible answer comes early. Derived from the three plugin fields above.
    rejectors: tuple[str, ...] = ()
    #: The plugins under which the unschedulable_pods gauge currently counts this pod.
    counted: tuple[str, ...] = ()

    @property
    def gated(self) -> bool:
        return bool(self.gating_plugin)

    @property
    def asked(self) -> tuple[str, ...]:
        """The plugins whose hints receive events for this pod.

        A gated pod can only be admitted by its gating plugin, and by no event if that has registered none.
        """
        if self.gating_plugin:
            return (self.gating_plugin,) if self.gating_events else ()
        return self.rejectors

    def diagnose(self, *, unschedulable: frozenset[str], pending: frozenset[str]) -> None:
        """Record the plugins that refused the last attempt.

        Both are empty if the attempt failed for another reason.
        """
        self.unschedulable_plugins = unschedulable
        self.pending_plugins = pending
        self._follow()

    def failed(self, *, unschedulable: frozenset[str], pending: frozenset[str], now: float) -> None:
        """Record an attempt that ended at `now`, refused by these plugins or, if both are empty, in an error."""
        self.diagnose(unschedulable=unschedulable, pending=pending)
        if self.rejectors:
            self.unschedulable_count += 1
            self.consecutive_errors_count = 0
        else:
            self.consecutive_errors_count += 1
        self.urgent = self.urgent_retries = 0
        self.timestamp = now
        self.was_flushed = False
        self.flush_timestamp = 0.0

    def gate(self, plugin: str, *, events: tuple[ClusterEvent, ...], message: str) -> None:
        self.gating_plugin = plugin
        self.gating_events = events
        self.gating_message = message
        self._follow()

    def ungate(self) -> None:
        self.gating_plugin = ""
        self.gating_events = ()
        self.gating_message = ""
        self._follow()

    def _follow(self) -> None:
        self.rejectors = _rejectors(self.pending_plugins, self.unschedulable_plugins, self.gating_plugin)


# Pods are refused by few different sets of plugins, so nearly all share the same tuples.
@lru_cache(maxsize=1024)
def _rejectors(pending: frozenset[str], unschedulable: frozenset[str], gating: str) -> tuple[str, ...]:
    others = unschedulable | {gating} if gating else unschedulable
    return (*sorted(pending), *sorted(others - pending))


class _Changes(NamedTuple):
    """The events of one kind of pod, created once because every status report of a kubelet produces one."""

    label: ClusterEvent
    scale_down: ClusterEvent
    scale_up: ClusterEvent
    gates: ClusterEvent
    toleration: ClusterEvent
    claim: ClusterEvent
    other: ClusterEvent

    @classmethod
    def of(cls, resource: Resource) -> _Changes:
        return cls(
            ClusterEvent(resource, ActionType.UPDATE_POD_LABEL),
            ClusterEvent(resource, ActionType.UPDATE_POD_SCALE_DOWN),
            ClusterEvent(resource, ActionType.UPDATE_POD_SCALE_UP),
            ClusterEvent(resource, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
            ClusterEvent(resource, ActionType.UPDATE_POD_TOLERATION),
            ClusterEvent(resource, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
            ClusterEvent(resource, ActionType.UPDATE_POD_OTHER),
        )


_OF_WAITING = _Changes.of(Resource.TARGET_POD)
_OF_ASSIGNED = _Changes.of(Resource.ASSIGNED_POD)


def pod_change_events(new: PodInfo, old: PodInfo, *, assigned: bool = False) -> list[ClusterEvent]:
    """Return the events of the change from `old` to `new`: a waiting pod, or one that is `assigned` to a node.

    Empty for one and the same version. As kube-scheduler's `PodSchedulingPropertiesChange`: one event for each changed
    property that scheduling reads, or UPDATE_POD_OTHER if none of them changed.
    """
    if new is old or (new.resource_version and new.resource_version == old.resource_version):
        return []
    changes = _OF_ASSIGNED if assigned else _OF_WAITING
    events = []
    if new.labels != old.labels:
        events.append(changes.label)
    before, after = old.requests, new.requests
    # Pods of one class share one object.
    if before is not after:
        if _any_less(after, before):
            events.append(changes.scale_down)
        if _any_less(before, after):
            events.append(changes.scale_up)
    if len(new.gates) < len(old.gates):
        # A remaining gate does not suppress the event.
        events.append(changes.gates)
    if new.tolerations != old.tolerations:
        events.append(changes.toleration)
    if new.claim_statuses != old.claim_statuses:
        events.append(changes.claim)
    return events or [changes.other]


def _any_less(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    return any(left.get(name, 0) < amount for name, amount in right.items())
