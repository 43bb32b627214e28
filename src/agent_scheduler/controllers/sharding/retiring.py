"""Decides when a shard that the configuration no longer has may be deleted.

The object lists the nodes that its scheduler uses. If it were deleted while these are in use, other schedulers would
use them while binds of its scheduler are under way. So it is emptied first, which makes its scheduler release the
nodes, and deleted when

- its scheduler uses no nodes, and the object has not changed for `SETTLED` seconds: decisions that its scheduler made
  before it received the empty shard are complete, or visible in the object;
- or its scheduler is dead by its lease, as for other schedulers (`shards.holders`);
- or its scheduler holds no lease, as Volcano's do not, and has had `HOLDERLESS` seconds to release the nodes. Other
  schedulers never consider it dead; here the configuration states that it is to have no nodes.

Times are measured from the first observation of the current state by this process, on its own clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent_scheduler.engine.shards.claims import Liveness
from agent_scheduler.shards.holders import Holders
from kube_client.retry import Clock

from .store import ShardInfo

SETTLED = 5.0
HOLDERLESS = 300.0


class Retirement:
    """Owner of the observations of shards to delete, by UID; `only` removes those of all others."""

    def __init__(self, holders: Holders, *, clock: Clock) -> None:
        self._holders = holders
        self._clock = clock
        #: The observed state, and the time of its first observation.
        self._seen: dict[str, tuple[str, float]] = {}

    def only(self, shards: Iterable[ShardInfo]) -> None:
        """Set the shards that are to be deleted."""
        uids = {shard.uid for shard in shards}
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in uids}

    async def may_go(self, shard: ShardInfo) -> bool:
        """Return whether `shard`, which desires no nodes, may be deleted now."""
        if not shard.used:
            return self._unchanged(shard, f"unused {shard.resource_version}") >= SETTLED
        liveness = (await self._holders.look([shard.name]))[shard.name]
        if liveness is Liveness.UNKNOWN:
            return self._unchanged(shard, "no lease") >= HOLDERLESS
        self._seen.pop(shard.uid, None)
        return liveness is Liveness.DEAD

    def _unchanged(self, shard: ShardInfo, what: str) -> float:
        """Return the seconds for which `what` has been observed without change."""
        now = self._clock()
        seen = self._seen.get(shard.uid)
        if seen is None or seen[0] != what:
            seen = self._seen[shard.uid] = (what, now)
        return now - seen[1]
