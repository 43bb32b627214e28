"""Finds out whether nodes outside the scheduler's NodeShard fit pods that find none in it, in mode `hard`.

If so, the cluster has room, and an autoscaler would add a node in vain: the condition is `NodeShardFull`, and
`Unschedulable` only if no node at all fits. Both may become false by changes of other schedulers, which is no reason
to try a pod again, so the conditions are checked every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.decide.trial import START, Trial
from agent_scheduler.engine.dra.catalogue import PORTION
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.framework.prebind import Writes
from agent_scheduler.engine.shards.claims import Membership, Names
from agent_scheduler.engine.state.columns import Bools
from agent_scheduler.engine.state.nodeinfo import is_ready
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.telemetry.logs import get_logger
from kube_client.retry import Timing

_log = get_logger(__name__)

#: Seconds between two checks of the conditions.
_LOOK: Final = 5.0
#: Pods that are checked in one step.
_STRIDE: Final = 16


class _LastResult(NamedTuple):
    """The last result for a pod, or for pods that are placed together. `others_do`: nodes outside would fit."""

    uids: tuple[str, ...]
    others_do: bool


class _State(NamedTuple):
    """The versions that results depend on: of nodes and pods, of storage, and of the shard."""

    sequence: int
    catalogue: int
    mine: Names


class OutsideShard:
    """Owns a snapshot of all nodes, and the last results. Trials on it are undone before a method returns."""

    def __init__(
        self,
        cluster: Cluster,
        profiles: Mapping[str, Profile],
        membership: Membership,
        *,
        shard: str,
        writes: Writes,
        timing: Timing,
    ) -> None:
        """`profiles` are those of all schedulers of the process, each with the filter of the shard first."""
        self._cluster = cluster
        self._membership = membership
        self._why = f"node shard {shard} is full, and other nodes of the cluster would do"
        self._writes = writes
        self._timing = timing
        #: UID -> result; for several pods by the UID of the first one.
        self._said: dict[str, _LastResult] = {}
        #: The state at the last check.
        self._looked: _State | None = None
        #: For single pods without claims: profile and class -> the result in the state `_answered`.
        self._answers: dict[tuple[str, PodClass], bool] = {}
        self._answered: _State | None = None
        #: [row] ready nodes outside the shard, and the state in which they were found.
        self._outside: Bools = np.zeros(0, dtype=np.bool_)
        self._outside_at: tuple[int, int, object] = (-1, -1, None)
        self.reconfigure(profiles)

    def reconfigure(self, profiles: Mapping[str, Profile]) -> None:
        self._snapshot = Snapshot(self._cluster.ledger, self._cluster.handle)
        views = {
            name: ClassViews(replace(profile, filters=profile.filters[1:]), self._snapshot)
            for name, profile in profiles.items()
        }
        self._trial = Trial(self._cluster.ledger, self._snapshot, views, self._writes, self._cluster.events.muted)
        self._looked = self._answered = None
        self._outside_at = (-1, -1, None)

    def full(self, pods: Sequence[PodInfo]) -> str:
        """Return why pods without room in the shard need no additional nodes; empty if they do."""
        others_do = self._others_do(pods)
        self._said[pods[0].uid] = _LastResult(tuple(pod.uid for pod in pods), others_do)
        return self._why if others_do else ""

    async def run(self) -> None:
        """Retry pods whose result has changed, until cancelled."""
        while True:
            await self._timing.sleep(_LOOK)
            now = self._state()
            if self._said and now != self._looked:
                self._looked = now
                await self._look()

    def _state(self) -> _State:
        cluster = self._cluster
        return _State(cluster.ledger.sequence, cluster.catalogue.version, self._membership.nodes)

    async def _look(self) -> None:
        for number, (key, said) in enumerate(list(self._said.items())):
            if not number % _STRIDE:
                await asyncio.sleep(0)
            pods = [pod for uid in said.uids if (pod := self._waiting(uid)) is not None]
            if len(pods) < len(said.uids):
                if self._said.get(key) is said:
                    del self._said[key]
                continue
            try:
                others_do = self._others_do(pods)
            except Exception as error:
                # It concerns these pods only, whose next attempt asks again.
                _log.error("work failed", pod=pods[0].key, problem=f"{type(error).__name__}: {error}")
                self._said.pop(key, None)
                continue
            if others_do is not said.others_do:
                for pod in pods:
                    self._cluster.activate(pod)

    def _waiting(self, uid: str) -> PodInfo | None:
        cluster = self._cluster
        waits = cluster.waits(uid) and uid not in cluster.ledger.placements
        return cluster.pods[uid] if waits else None

    def _others_do(self, pods: Sequence[PodInfo]) -> bool:
        trial, pod = self._trial, pods[0]
        trial.reset()
        self._follow_shard()
        if not self._outside.any():
            return False
        if len(pods) > 1 or pod.claims or pod.cls.extended:
            return self._try(pods)
        if (now := self._state()) != self._answered:
            self._answers.clear()
            self._answered = now
        kind = pod.scheduler_name, self._snapshot.handle.class_of(pod)
        answer = self._answers.get(kind)
        if answer is None:
            answer = self._answers[kind] = self._try(pods)
        return answer

    def _try(self, pods: Sequence[PodInfo]) -> bool:
        try:
            return self._place_all(pods, self._outside)
        finally:
            self._trial.rollback(START)

    def _follow_shard(self) -> None:
        columns, mine = self._snapshot.columns, self._membership.nodes
        now = (self._snapshot.respecified.end, columns.size, mine)
        if now == self._outside_at:
            return
        self._outside_at = now
        nodes = columns.nodes[: columns.size]
        outside = (node is not None and node.name not in mine and is_ready(node) for node in nodes)
        self._outside = np.fromiter(outside, np.bool_, columns.size)

    def _place_all(self, pods: Sequence[PodInfo], outside: Bools) -> bool:
        """Place all pods. Of several, some may fit into the shard: then only the others need room outside."""
        columns, devices, several = self._snapshot.columns, self._cluster.devices, len(pods) > 1
        leaves = False
        for pod in pods:
            if pod.claims or pod.cls.extended:
                devices.again()
                devices.budget.left = PORTION
            before = self._trial.sequence
            rows = self._trial.view_of(pod).feasible_rows(columns)
            elsewhere = rows[outside[rows]]
            inside = [row for row in rows.tolist() if self._is_mine(row)] if several else []
            if pod.claims or pod.cls.extended:
                devices.again()
                self._trial.follow(before)
            if not inside and not elsewhere.size:
                return False
            leaves |= not inside
            if several:
                # Not by rows: a restarted process may have the nodes in another order, and must find the same.
                self._trial.place(pod, min(inside or elsewhere.tolist(), key=self._name_of))
        return leaves

    def _name_of(self, row: int) -> str:
        node = self._snapshot.columns.nodes[row]
        return "" if node is None else node.name

    def _is_mine(self, row: int) -> bool:
        node = self._snapshot.columns.nodes[row]
        return node is not None and node.name in self._membership.nodes
