"""Who is told of what happens in the cluster: those who find nodes for pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from agent_scheduler.engine.events.events import ClusterEvent
from agent_scheduler.engine.state.podinfo import PodInfo


class Wakes(Protocol):
    """Is told of everything in the cluster that may help a pod that waits."""

    def move_all(self, event: ClusterEvent, old: object | None = None, new: object | None = None) -> int: ...
    def assigned_pod_updated(self, old: PodInfo, new: PodInfo) -> int: ...
    def burst(self) -> AbstractContextManager[None]: ...


class Subscriber(Wakes, Protocol):
    """Who finds nodes for the pods of some profiles. As the queue's methods of these names."""

    def add(self, pod: PodInfo) -> None: ...
    def delete(self, uid: str, *, node_name: str = "") -> None: ...
    def activate(self, uids: Iterable[str]) -> object: ...


class Events:
    """All who are to be told of events, the fast path's queue first. Owner: the cluster. While it is alone, it is told
    without a detour."""

    def __init__(self, queue: Wakes) -> None:
        self._told: tuple[Wakes, ...] = (queue,)
        self.move_all: Callable[..., object] = queue.move_all
        self.assigned_pod_updated: Callable[[PodInfo, PodInfo], object] = queue.assigned_pod_updated

    def also_tell(self, other: Wakes) -> None:
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
        """Meanwhile nobody is told: for what a trial reserves and gives back, which nobody has seen. Its own pods would
        be tried again, without end."""
        told, self.move_all = self.move_all, _nothing
        try:
            yield
        finally:
            self.move_all = told

    @contextmanager
    def burst(self) -> Iterator[None]:
        with ExitStack() as bursts:
            for each in self._told:
                bursts.enter_context(each.burst())
            yield


def _nothing(event: ClusterEvent, old: object | None = None, new: object | None = None) -> None:
    """Of an event that nobody is told of."""
