"""Reserve, Permit and PreBind: the steps between a decision and its bind.

Plugins reserve resources of a node beside capacity, decide whether a pod may be bound yet, and write before the bind.

    decided ──> reserve and permit, in the step that assumes the pod ──> wait ──> pre_bind, in a task ──> the bind
                   └─> None: the next candidate                           └─> rejected ─┴─> failed: unreserve, take_back

A plugin requests work and does no I/O of its own: requests go through its `Writes`, each within a budget and as long as
this process may write.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..dra.reservation import ReservedClaims as ClaimReservation
from ..state.nodeinfo import NodeInfo
from ..state.podinfo import PodInfo


class Volumes(Protocol):
    """Volume claims of decided pods."""

    def give_back(self, uid: str) -> None:
        """Release the reservations of a pod; other pods may use volumes whose bind was not written."""

    def bind(self, attempt: Attempt, timeout: float) -> Awaitable[str]:
        """Bind the reserved volumes within `timeout` seconds. Return the error, empty once all are bound."""


class Claims(Protocol):
    """Resource claims of decided pods."""

    def give_back(self, uid: str) -> None:
        """Release the reservations as `Volumes.give_back`."""

    def is_due(self, pod: PodInfo, reservation: ClaimReservation) -> bool: ...

    def write(self, attempt: Attempt, timeout: float) -> Awaitable[str]:
        """Write the reserved claims and wait up to `timeout` seconds for their devices. Return the error, or ""."""

    def take_back(self, attempt: Attempt) -> Awaitable[None]:
        """Remove the pod from the claims that were written for it."""

    def keep(self, attempt: Attempt) -> None:
        """Keep the claims as `PreBind.keep`."""

    def in_doubt(self, attempt: Attempt) -> Callable[[], bool] | None:
        """Return the test of `PreBind.in_doubt`."""


class Writes(Protocol):
    """Writes that plugins may request between a decision and its bind."""

    @property
    def volumes(self) -> Volumes: ...
    @property
    def claims(self) -> Claims: ...

    def patch(self, path: str, body: bytes, *, wanted: Callable[[], bool], strategic: bool = False) -> Awaitable[str]:
        """Change one object once by a JSON merge patch, or a `strategic` one.

        Return the error, or "" if the change is applied. `body` has in its metadata the UID and the resourceVersion
        that it was made for, so that it is applied once however often it is sent. `wanted` is called before each
        request.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A pod on its way to a node, as one plugin receives it."""

    pod: PodInfo
    node_name: str
    #: The return value of the plugin's `reserve`.
    reservation: Any
    writes: Writes
    #: Whether the pod should still go there; called before each request.
    wanted: Callable[[], bool]
    #: Entered while waiting for a component other than the API server: a shutdown does not wait for it.
    waiting: Callable[[], AbstractContextManager[None]]


@runtime_checkable
class Reserve(Protocol):
    """Takes more of a node for a pod than capacity.

    The plugin is a filter, too, whose `prepare` returns the `state`: it is called for pods that the filter applies to,
    in the order of the profile's filters.
    """

    name: str

    @abstractmethod
    def reserve(self, state: Any, pod: PodInfo, node: NodeInfo, at: str) -> Any | None:
        """Take what the pod needs of the node in the current state; None, with nothing taken, if unavailable.

        Called in the step that assumes the pod there, so nothing runs in between. `at` is the time in the API's format.
        """

    @abstractmethod
    def unreserve(self, pod: PodInfo, writes: Writes) -> None:
        """Release what is still reserved for the pod after its attempt failed. A second call is harmless."""

    def bound(self, pod: PodInfo, writes: Writes) -> None:
        """Handle the bind of the pod, which the watch will report."""


class Rejected(NamedTuple):
    """Permit's answer for a pod that may not be bound now."""

    #: The text for people; reported like a filter's reason.
    reason: str


class Wait(NamedTuple):
    """Permit's answer for a pod that may be bound once the plugin allows it."""

    #: Seconds, 900 at most, after which the pod is rejected in the plugin's name.
    timeout: float


class WaitingPod(Protocol):
    """A pod that is assumed on its node until each plugin that answered `Wait` has allowed it, or any has rejected it.

    Later calls have no effect.
    """

    pod: PodInfo
    node_name: str

    @property
    def pending_plugins(self) -> tuple[str, ...]:
        """Names of the plugins that have not allowed it yet."""

    def allow(self, plugin_name: str) -> None: ...
    def reject(self, plugin_name: str, reason: str) -> None: ...


@runtime_checkable
class Permit(Protocol):
    """Decides when a pod that has a node may be bound, for example pods of a group together."""

    name: str

    @abstractmethod
    def permit(self, pod: PodInfo, node: NodeInfo, waiting: Mapping[str, WaitingPod]) -> Rejected | Wait | None:
        """Return None if this plugin allows the bind. Called after `reserve`, in the same step.

        `waiting` has the waiting pods of all profiles by UID; it stays current and may be kept.
        """


@runtime_checkable
class PreBind(Protocol):
    """Writes or waits before a pod with a reservation of this plugin is bound."""

    name: str
    #: Whether `pre_bind` waits for components other than the API server throughout.
    waits_for_others: bool = False
    #: Whether the written changes are undone if the attempt fails. Until then, the reservation stays where a request
    #: may still be applied.
    takes_back: bool = False

    def is_due(self, pod: PodInfo, reservation: Any, writes: Writes) -> bool:
        """Return whether there is anything to write or to wait for."""
        return True

    @abstractmethod
    def pre_bind(self, attempt: Attempt) -> Awaitable[str]:
        """Write and wait. Return the error for people, empty once the pod may be bound. May be cancelled."""

    def take_back(self, attempt: Attempt) -> Awaitable[None] | None:
        """Undo the written changes if the pod still has no node. None: there is nothing to undo."""
        return None

    def keep(self, attempt: Attempt) -> None:
        """Handle the end of the bind, instead of `take_back`: the written changes stay.

        The pod is bound, deleted or no longer wanted there, which the watch reports.
        """

    def in_doubt(self, attempt: Attempt) -> Callable[[], bool] | None:
        """Return None unless a request of this attempt got no response and may still be applied.

        Otherwise return a test whether anything of the attempt is still assumed. The reservation then stays until such
        a request can no longer be applied; then `take_back` and `unreserve` are called if the test is true. Called
        once, when `pre_bind` has failed, for plugins with `takes_back`.
        """
        return None
