"""The pods of other processes that this one is to bind, each to one node of its own.

A guest is in no queue here. It is decided on at once, for that node alone and by all filters, on the picture here,
which has all that is under way to the node; then the binder does with it what it does with any other. Whatever comes of
it is told to its home: no guest is tried twice, and nothing is said of it to users but that it was bound.

Invariant: every pod that was taken in is given back once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.shards.membership import Membership
from agent_scheduler.kube.retry import Timing

from .binder import Binder, ScheduleResult
from .cluster import Cluster
from .neighbours import Ending, Neighbours

#: Seconds for which the watch here may tell of a pod later than that of its home did, and between two looks.
_PATIENCE: Final = 1.0
_LOOK: Final = 0.005

#: Decides on one pod and one node.
Try = Callable[[PodInfo, str], ScheduleResult | None]


class Guests:
    """Owner of the pods that others have lent to this process."""

    def __init__(self, neighbours: Neighbours, part: Membership, *, cluster: Cluster, timing: Timing) -> None:
        """`part`: the nodes of this process."""
        self._neighbours = neighbours
        self._part = part
        self._cluster = cluster
        self._timing = timing
        #: UIDs of those whose bind is not over.
        self._binding: set[str] = set()
        #: Those that the watch here has not told of: UID -> the node, and until when that is waited for.
        self._unseen: dict[str, tuple[str, float]] = {}
        self._expected = asyncio.Event()
        self._try: Try | None = None
        self._binder: Binder | None = None
        self._closed = False

    def attach(self, *, decide: Try, binder: Binder) -> None:
        """Before the first guest comes. Both have to know of the guests first."""
        self._try, self._binder = decide, binder

    def close(self) -> None:
        """Take no further guest in: the process is ending."""
        self._closed = True

    def __len__(self) -> int:
        return len(self._binding) + len(self._unseen)

    def has(self, uid: str) -> bool:
        return uid in self._binding or uid in self._unseen

    def take_in(self, uid: str, node_name: str) -> None:
        """Bind it there if that can be."""
        pod = self._cluster.pods.get(uid)
        if self._closed or node_name not in self._part.nodes:
            self._neighbours.give_back(uid, Ending.REFUSED, "")
        elif pod is None:
            self._unseen[uid] = (node_name, self._timing.clock() + _PATIENCE)
            self._expected.set()
        else:
            self._bind(pod, node_name)

    def _bind(self, pod: PodInfo, node_name: str) -> None:
        cluster, uid = self._cluster, pod.uid
        assert self._try is not None and self._binder is not None, "attached before the first guest comes"
        self._binding.add(uid)
        if uid in cluster.ledger.placements or not cluster.waits(uid):
            self.ended(uid, Ending.GONE)
            return
        try:
            result = self._try(pod, node_name)
        except Exception as error:
            self.ended(uid, Ending.FAILED, f"{type(error).__name__}: {error}")
            return
        if result is None:
            self.ended(uid, Ending.REFUSED)
            return
        self._binder.submit(result)
        self._binder.judge()
        self._binder.send()

    def ended(self, uid: str, ending: Ending, message: str = "") -> bool:
        if uid not in self._binding:
            return False
        self._binding.discard(uid)
        self._neighbours.give_back(uid, ending, message)
        if ending in (Ending.REFUSED, Ending.FAILED) and self._cluster.waits_here(uid):
            # Its home ended meanwhile and is here by now, where the queue let go of it while it was assumed on a node.
            self._cluster.queue.add(self._cluster.pods[uid])
        return True

    async def run(self) -> None:
        """See to those that the watch has not told of, until cancelled."""
        while True:
            await self._expected.wait()
            for uid, (node_name, until) in list(self._unseen.items()):
                pod = self._cluster.pods.get(uid)
                if pod is None and self._timing.clock() < until:
                    continue
                del self._unseen[uid]
                if pod is not None:
                    self.take_in(uid, node_name)
                else:
                    # It is gone, or the watch here is late; its home knows which, or will.
                    self._neighbours.give_back(uid, Ending.REFUSED, "")
            if not self._unseen:
                self._expected.clear()
            await self._timing.sleep(_LOOK)
