"""A pod while it waits: what the queue needs to know of the pod, and what it remembers about it.

The pod is a value that the queue never changes; everything that a retry must remember (attempts, who refused
it, urgency) lives on its `QueuedPodInfo`, never in the pod's annotations, where a tenant could write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from ..events.events import ActionType, ClusterEvent, Resource


class PodLike(Protocol):
    """What the queue reads of a pod. Equal UIDs are the same pod; a changed pod is another value."""

    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def resource_version(self) -> str:
        """Empty, or a text that no other version of this pod has."""

    @property
    def scheduler_name(self) -> str:
        """The profile that the pod asks for."""

    @property
    def priority(self) -> int: ...
    @property
    def nominated_node_name(self) -> str:
        """`status.nominatedNodeName`, empty when there is none."""

    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def gates(self) -> tuple[str, ...]:
        """The names in `spec.schedulingGates`."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Requested amounts by resource, in the ledger's units."""

    @property
    def tolerations(self) -> Any:
        """Opaque; only compared."""

    @property
    def claim_statuses(self) -> tuple[Any, ...]:
        """`status.resourceClaimStatuses`; only compared."""


PodT = TypeVar("PodT", bound=PodLike)


class QueuedPodInfo(Struct, Generic[PodT], kw_only=True, eq=False, gc=False):
    """One waiting pod. Owner: the one structure of the queue that holds it, or its attempt while in flight.

    `gc=False` is sound because nothing that an entry holds leads back to it.

    Instants are the queue's clock, in seconds; 0.0 or None is "not set" as each field says.
    """

    uid: str
    pod: PodT
    #: When the pod was last put into the queue; decides between equal priorities.
    timestamp: float
    attempts: int = 0
    #: When the pod first entered activeQ; waiting behind a gate does not count. Never changes once set.
    initial_attempt_timestamp: float | None = None
    #: First instant at which the pod no longer backs off; 0.0 when it does not back off.
    backoff_expiration: float = 0.0
    #: Attempts that plugins refused. An error in between does not reset it.
    unschedulable_count: int = 0
    #: Attempts in a row that failed without a plugin refusing.
    consecutive_errors_count: int = 0
    unschedulable_plugins: frozenset[str] = frozenset()
    #: Plugins that wait for something of their own (Permit, PreBind): when they say so, the pod skips backoff.
    pending_plugins: frozenset[str] = frozenset()
    #: The PreEnqueue plugin that keeps the pod out of activeQ; empty when none does.
    gating_plugin: str = ""
    #: The events after which the gating plugin may think otherwise.
    gating_events: tuple[ClusterEvent, ...] = ()
    gating_message: str = ""
    was_flushed: bool = False
    flush_timestamp: float = 0.0
    #: Above 0: goes before every pod of a lower level, whatever the priority. See `SchedulingQueue.requeue_urgent`.
    urgent: int = 0
    #: Urgent retries since the pod last backed off or was refused.
    urgent_retries: int = 0
    #: All who refused the pod, pending plugins first and otherwise sorted: the order in which hints are asked,
    #: so that the answer that cannot get better comes early. Follows the three plugin fields above.
    rejectors: tuple[str, ...] = ()
    #: The plugins under which the unschedulable_pods gauge counts this pod right now.
    counted: tuple[str, ...] = ()

    @property
    def gated(self) -> bool:
        return bool(self.gating_plugin)

    @property
    def asked(self) -> tuple[str, ...]:
        """The plugins whose hints an event is put to: a pod behind a gate is let in by that gate's plugin alone, and by
        no event at all where that has registered none."""
        if self.gating_plugin:
            return (self.gating_plugin,) if self.gating_events else ()
        return self.rejectors

    def diagnose(self, *, unschedulable: frozenset[str], pending: frozenset[str]) -> None:
        """Remember who refused the last attempt. Both empty: the attempt failed for another reason."""
        self.unschedulable_plugins = unschedulable
        self.pending_plugins = pending
        self._follow()

    def failed(self, *, unschedulable: frozenset[str], pending: frozenset[str], now: float) -> None:
        """The attempt ended at `now`, refused by these plugins or, where both are empty, in an error."""
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


# Pods are refused in few different ways, so that the same tuples serve nearly all of them.
@lru_cache(maxsize=1024)
def _rejectors(pending: frozenset[str], unschedulable: frozenset[str], gating: str) -> tuple[str, ...]:
    others = unschedulable | {gating} if gating else unschedulable
    return (*sorted(pending), *sorted(others - pending))


class _Changes(NamedTuple):
    """The events of one kind of pod, made once: every report of a kubelet about a pod is one of them."""

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


def pod_change_events(new: PodLike, old: PodLike, *, assigned: bool = False) -> list[ClusterEvent]:
    """The events of `old` becoming `new`: a waiting pod, or one that has a node. None for one and the same version.

    After kube-scheduler's `PodSchedulingPropertiesChange`: one event a property that scheduling looks at, or
    UPDATE_POD_OTHER when none of them changed.
    """
    if new is old or (new.resource_version and new.resource_version == old.resource_version):
        return []
    changes = _OF_ASSIGNED if assigned else _OF_WAITING
    events = []
    if new.labels != old.labels:
        events.append(changes.label)
    before, after = old.requests, new.requests
    # Those of one class are one object.
    if before is not after:
        if _any_less(after, before):
            events.append(changes.scale_down)
        if _any_less(before, after):
            events.append(changes.scale_up)
    if len(new.gates) < len(old.gates):
        # One that is left need not keep it from whoever listens.
        events.append(changes.gates)
    if new.tolerations != old.tolerations:
        events.append(changes.toleration)
    if new.claim_statuses != old.claim_statuses:
        events.append(changes.claim)
    return events or [changes.other]


def _any_less(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    return any(left.get(name, 0) < amount for name, amount in right.items())
