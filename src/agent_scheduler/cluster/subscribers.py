"""The receivers of the cluster's events: the schedulers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from agent_scheduler.engine.events.events import ClusterEvent
from agent_scheduler.engine.state.podinfo import PodInfo


class EventReceiver(Protocol):
    """Receives everything that may help a waiting pod."""

    def move_all(self, event: ClusterEvent, old: object | None = None, new: object | None = None) -> int: ...
    def assigned_pod_updated(self, old: PodInfo, new: PodInfo) -> int: ...
    def burst(self) -> AbstractContextManager[None]: ...


class Subscriber(EventReceiver, Protocol):
    """Schedules the pods of some profiles. The methods are as those of the queue."""

    def add(self, pod: PodInfo) -> None: ...
    def delete(self, uid: str, *, node_name: str = "") -> None: ...
    def activate(self, uids: Iterable[str]) -> object: ...


class EventReceivers:
    """All receivers of events, the fast path's queue first. Owned by the cluster.

    A single receiver is called directly.
    """

    def __init__(self, queue: EventReceiver) -> None:
        self._told: tuple[EventReceiver, ...] = (queue,)
        self.move_all: Callable[..., object] = queue.move_all
        self.assigned_pod_updated: Callable[[PodInfo, PodInfo], object] = queue.assigned_pod_updated

    def also_tell(self, other: EventReceiver) -> None:
        self._told = (*self._told, other)
        self.move_all, self.assigned_pod_updated = self._move_all, self._assigned_pod_updated

    def _move_all(self, event: ClusterEvent, old: object | None = None, new: object | None = None) -> None:
        for each in self._told:
            each.move_all(event, old, new)

    def _assigned_pod_updated(self, old: PodInfo, new: PodInfo) -> None:
        for each in self._told:
            each.assigned_pod_updated(old, new)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Suppress all events: for the reservations of a trial, which nothing has seen.

        Otherwise its own pods would be tried again endlessly.
        """
        move_all, self.move_all = self.move_all, _nothing
        try:
            yield
        finally:
            self.move_all = move_all

    @contextmanager
    def burst(self) -> Iterator[None]:
        with ExitStack() as bursts:
            for each in self._told:
                bursts.enter_context(each.burst())
            yield


def _nothing(event: ClusterEvent, old: object | None = None, new: object | None = None) -> None:
    """Do nothing with an event."""
