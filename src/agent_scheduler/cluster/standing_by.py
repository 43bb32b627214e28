"""Pods that have nodes and wait until others of their Job have run (docs/decisions/0047)."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager

from agent_scheduler.engine.state.podinfo import PodInfo


class StandingBy:
    """Informs the tasks that wait with such pods. For one event loop."""

    def __init__(self) -> None:
        #: UID -> event, set when the pod has changed or is gone, or a node is gone.
        self._changed: dict[str, asyncio.Event] = {}
        #: UIDs of pods whose turn cannot come, because none of the pods before them has room any longer.
        self._alone: set[str] = set()

    @contextmanager
    def waiting(self, uid: str) -> Iterator[asyncio.Event]:
        """Provide an event, which the waiting task clears."""
        changed = self._changed[uid] = asyncio.Event()
        try:
            yield changed
        finally:
            del self._changed[uid]
            self._alone.discard(uid)

    def is_alone(self, uid: str) -> bool:
        return uid in self._alone

    def pod_changed(self, uid: str) -> None:
        if uid in self._changed:
            self._changed[uid].set()

    def node_gone(self) -> None:
        for changed in self._changed.values():
            changed.set()

    def member_lost_room(self, pod: PodInfo, pods: Iterable[PodInfo], placed: Container[str]) -> None:
        """Handle a member that was not bound after all. `pods` are all pods, `placed` the UIDs of those with room.

        If only waiting pods of its group are left with room, they release it: they are useless without the pods
        before them, and two groups that each keep what the other needs would block each other.
        """
        if not self._changed or pod.batch is None or pod.batch.group is None:
            return
        group = pod.batch.group
        members = [each for each in pods if each.batch is not None and each.batch.group == group]
        if not any(each.uid in placed for each in members if not each.stands_by):
            self.left_alone(each.uid for each in members)

    def left_alone(self, uids: Iterable[str]) -> None:
        """Release the room of pods whose stage has not begun, among `uids`; see `batch.conclusions.left_alone`."""
        for uid in uids:
            if uid in self._changed:
                self._alone.add(uid)
                self._changed[uid].set()
