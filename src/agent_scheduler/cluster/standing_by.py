"""Pods that are given nodes and stand by until others of their Job have run (docs/decisions/0047)."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager

from agent_scheduler.engine.state.podinfo import PodInfo


class StandingBy:
    """Owner of what tells those that wait with such a pod that something has changed. On one event loop."""

    def __init__(self) -> None:
        #: By UID, set when the pod has changed or is gone, or a node is.
        self._changed: dict[str, asyncio.Event] = {}
        #: UIDs of those whose turn cannot come, as nobody who is to run before them has room any more.
        self._alone: set[str] = set()

    @contextmanager
    def waiting(self, uid: str) -> Iterator[asyncio.Event]:
        """It is cleared by whoever waits."""
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
        """It was not bound after all, of all `pods`; `placed` are the UIDs of those that have room.

        Those of its group that stand by give theirs back if they are all that is left: it is of use to nobody who runs
        before them, and two groups that each keep what the other needs would wait for one another.
        """
        if not self._changed or pod.batch is None or pod.batch.group is None:
            return
        group = pod.batch.group
        members = [each for each in pods if each.batch is not None and each.batch.group == group]
        if not any(each.uid in placed for each in members if not each.stands_by):
            self.left_alone(each.uid for each in members)

    def left_alone(self, uids: Iterable[str]) -> None:
        """Those of them that stand by give their room back."""
        for uid in uids:
            if uid in self._changed:
                self._alone.add(uid)
                self._changed[uid].set()
