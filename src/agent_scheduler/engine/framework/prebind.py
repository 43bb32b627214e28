"""Reserve, Permit and PreBind: what a plugin takes of a node beside capacity, whether a pod may go there yet, and what
is written before it is bound.

    decided ──> reserve and permit, in the step that assumes the pod ──> wait ──> pre_bind, in a task ──> the bind
                   └─> None: the next candidate                           └─> rejected ─┴─> failed: unreserve, take_back

A plugin says what is to be done and does no I/O of its own: requests go through the `Writes` that it is given, each
within a budget and as long as this process may write.
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
        """A pod no longer counts on what was reserved for it; others may have what nobody has written."""

    def bind(self, attempt: Attempt, timeout: float) -> Awaitable[str]:
        """Has the reserved volumes bound. What went wrong; empty once all are, up to `timeout` seconds."""


class Claims(Protocol):
    """Resource claims of decided pods."""

    def give_back(self, uid: str) -> None:
        """As `Volumes.give_back`."""

    def is_due(self, pod: PodInfo, reservation: ClaimReservation) -> bool: ...

    def write(self, attempt: Attempt, timeout: float) -> Awaitable[str]:
        """Writes the reserved claims and waits up to `timeout` seconds for their devices. What went wrong."""

    def take_back(self, attempt: Attempt) -> Awaitable[None]:
        """Takes the pod out of the claims that were written for it."""

    def keep(self, attempt: Attempt) -> None:
        """As `PreBind.keep`."""

    def in_doubt(self, attempt: Attempt) -> Callable[[], bool] | None:
        """As `PreBind.in_doubt`."""


class Writes(Protocol):
    """What plugins may have done between a decision and its bind."""

    @property
    def volumes(self) -> Volumes: ...
    @property
    def claims(self) -> Claims: ...

    def patch(
        self, path: str, body: bytes, *, wanted: Callable[[], bool], strategic: bool = False
    ) -> Awaitable[str]:
        """Changes one object once: a JSON merge patch, or a `strategic` one. `body` names in its metadata the UID and
        the resourceVersion that it was made for, so that it is carried out once however often it is sent. `wanted` is
        asked before each request. What went wrong; empty once the object holds the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A pod on its way to a node, as one plugin sees it."""

    pod: PodInfo
    node_name: str
    #: What the plugin's `reserve` gave.
    reservation: Any
    writes: Writes
    #: Whether the pod still is to go there; to be asked before each request.
    wanted: Callable[[], bool]
    #: To be entered while somebody else than the API server is waited for: a shutdown does not wait for it.
    waiting: Callable[[], AbstractContextManager[None]]


@runtime_checkable
class Reserve(Protocol):
    """Takes more of a node for a pod than capacity. The plugin is a filter, too, whose `prepare` gives the `state`: it
    is asked of pods that the filter has something to say about, in the order of the profile's filters."""

    name: str

    @abstractmethod
    def reserve(self, state: Any, pod: PodInfo, node: NodeInfo, at: str) -> Any | None:
        """Take what the pod needs of the node, as the cluster is now; None: it is not to be had, and nothing is taken.

        Called in the step that assumes the pod there, so nothing comes between. `at`: the time, as the API has it.
        """

    @abstractmethod
    def unreserve(self, pod: PodInfo, writes: Writes) -> None:
        """The attempt has failed: give back what the pod still counts on, if anything. Calling it twice is fine."""

    def bound(self, pod: PodInfo, writes: Writes) -> None:
        """The pod is bound to the node, and the watch will show it."""


class Rejected(NamedTuple):
    """Permit's answer for a pod that may not be bound now."""

    #: For people; told as a filter's reason is.
    reason: str


class Wait(NamedTuple):
    """Permit's answer for a pod that may be bound once the plugin allows it."""

    #: Seconds, 900 at most, after which the pod is rejected in the plugin's name.
    timeout: float


class WaitingPod(Protocol):
    """A pod that is assumed on its node until each plugin that answered `Wait` has allowed it, or any has rejected it.
    What comes after that does nothing."""

    pod: PodInfo
    node_name: str

    @property
    def pending_plugins(self) -> tuple[str, ...]:
        """Names of the plugins that have not allowed it yet."""

    def allow(self, plugin_name: str) -> None: ...
    def reject(self, plugin_name: str, reason: str) -> None: ...


@runtime_checkable
class Permit(Protocol):
    """Decides when a pod that has a node may be bound, pods of a group together for example."""

    name: str

    @abstractmethod
    def permit(
        self, pod: PodInfo, node: NodeInfo, waiting: Mapping[str, WaitingPod]
    ) -> Rejected | Wait | None:
        """None: it may be bound as far as this plugin is concerned. Called behind `reserve`, in the same step.
        `waiting`: by UID, the pods that wait now, of all profiles; it stays true and may be kept."""


@runtime_checkable
class PreBind(Protocol):
    """Has something written, or waits for something, before a pod with a reservation of this plugin is bound."""

    name: str
    #: Whether others than the API server are waited for throughout.
    waits_for_others: bool = False
    #: Whether what was written is taken back if the attempt fails; until that is done, the reservation stays where a
    #: request may still be carried out.
    takes_back: bool = False

    def is_due(self, pod: PodInfo, reservation: Any, writes: Writes) -> bool:
        """Whether there is anything to write or to wait for."""
        return True

    @abstractmethod
    def pre_bind(self, attempt: Attempt) -> Awaitable[str]:
        """Write and wait. What went wrong, for people; empty once the pod may be bound. May be cancelled."""

    def take_back(self, attempt: Attempt) -> Awaitable[None] | None:
        """Undo what was written, as far as the pod still has no node. None: there is nothing to undo."""
        return None

    def keep(self, attempt: Attempt) -> None:
        """Called instead of `take_back`: the bind has ended, and what was written stays as it is. The pod is bound, or
        it is gone or no longer to go there, of which the watch tells."""

    def in_doubt(self, attempt: Attempt) -> Callable[[], bool] | None:
        """None, or, where a request of this attempt got no answer and may still be carried out, what says whether
        anything of the attempt is still assumed. The reservation then stays until such a request cannot be carried out
        any more, and `take_back` and `unreserve` are called if anything still is. Asked once, when `pre_bind` has
        failed, of plugins that `takes_back`."""
        return None
