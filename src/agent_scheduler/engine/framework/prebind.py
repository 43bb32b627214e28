"""Reserve and PreBind: what a plugin takes of a node beside capacity, and what it has written before a pod is bound.

    decided ──> reserve, in the step that assumes the pod ──> pre_bind, in a task ──> the bind
                   └─> None: the next candidate                 └─> failed: unreserve, take_back

A plugin says what is to be done and does no I/O of its own: requests go through the `Writes` that it is given, each
within a budget and as long as this process may write.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..dra.reservation import Reservation as ClaimReservation
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
