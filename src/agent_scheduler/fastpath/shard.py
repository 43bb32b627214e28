"""The fast path's part in sharing nodes: the nodes that decisions see, and what is in flight to them.

Every decision is made, judged and assumed between two awaits, so a change of the shard comes between cycles for all
workers. The binder judges earlier decisions by the current shard, and judged ones stay assumed in the ledger until
their result is known. So nothing is in flight to a node outside the shard once no pod is assumed there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from agent_scheduler.cluster.subscribers import EventReceivers
from agent_scheduler.engine.events.events import NODE_SHARD_UPDATE
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.plugins.node_shard import NodeShard
from agent_scheduler.engine.shards.claims import Membership, Names, ShardingMode, Shared


def within(membership: Membership, profiles: Mapping[str, Profile]) -> dict[str, Profile]:
    """Return the profiles restricted to the nodes of the shard."""
    mine = NodeShard(membership)
    return {name: replace(profile, filters=(mine, *profile.filters)) for name, profile in profiles.items()}


class SchedulerShard(Shared):
    """A scheduler's shard in mode `soft` or `hard`. It is the `Side` of `shards.coordinator`."""

    def __init__(
        self,
        mode: ShardingMode,
        membership: Membership,
        *,
        ledger: Ledger,
        events: EventReceivers,
        caught_up: Callable[[str], Awaitable[None]],
    ) -> None:
        """`events` informs all schedulers of the process.

        `caught_up` returns once all pods that had a node by then are known; see `Side.catch_up`.
        """
        self.mode = mode
        self.membership = membership
        self._ledger = ledger
        self._events = events
        self._caught_up = caught_up
        #: Owned by the coordinator.
        self._held: Names = frozenset()

    @property
    def unready(self) -> str:
        """The reason, other than room, why no decision is possible yet; else empty."""
        return self.membership.unready if self.mode is ShardingMode.HARD else ""

    def use(self, nodes: Names, unready: str) -> None:
        joined, left, other = self.membership.set(nodes, unready)
        self._ledger.touch(sorted(joined | left), spec=True)
        if self.mode is ShardingMode.HARD:
            there = [node for name in sorted(joined) if (node := self._ledger.node(name)) is not None]
            if other or there:
                self._events.move_all(NODE_SHARD_UPDATE, None, None if other else there)

    def hold(self, nodes: Names) -> None:
        self._held = nodes

    def may_bind_to(self, node_name: str) -> bool:
        """Return whether a bind may be sent there now, according to the claims."""
        return self.mode is not ShardingMode.HARD or node_name in self._held

    def in_flight(self, nodes: Names) -> Names:
        return self._ledger.assumed_on(nodes)

    async def catch_up(self, version: str) -> None:
        await self._caught_up(version)
