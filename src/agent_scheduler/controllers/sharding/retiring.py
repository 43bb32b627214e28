"""When a shard may go that the configuration no longer has.

The object says which nodes its scheduler uses. If it went while these are used, others would take them with binds of
its scheduler still under way. So it is emptied first, which makes its scheduler leave, and deleted when

- its scheduler uses no nodes, and nothing of the object has changed for `SETTLED` seconds: what its scheduler decided
  before it saw the empty shard has come to an end, or shows in the object;
- or its scheduler is dead by its lease, as schedulers judge one another (`shards.holders`);
- or its scheduler holds no lease, as Volcano's do not, and has had `HOLDERLESS` seconds to leave. Among schedulers such
  a one is never taken for dead; here the configuration says that it is to have nothing.

Times count from when this process first saw things as they are, by its own clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent_scheduler.engine.shards.claims import Liveness
from agent_scheduler.kube.retry import Clock
from agent_scheduler.shards.holders import Holders

from .store import Shard

SETTLED = 5.0
HOLDERLESS = 300.0


class Retirement:
    """Owner of what was seen of shards that are to go, by UID; `only` forgets all others."""

    def __init__(self, holders: Holders, *, clock: Clock) -> None:
        self._holders = holders
        self._clock = clock
        #: What was seen, and since when it has been so.
        self._seen: dict[str, tuple[str, float]] = {}

    def only(self, shards: Iterable[Shard]) -> None:
        """These are all that are to go."""
        uids = {shard.uid for shard in shards}
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in uids}

    async def may_go(self, shard: Shard) -> bool:
        """Whether `shard`, which desires nothing, may be deleted now."""
        if not shard.used:
            return self._unchanged(shard, f"unused {shard.resource_version}") >= SETTLED
        liveness = (await self._holders.look([shard.name]))[shard.name]
        if liveness is Liveness.UNKNOWN:
            return self._unchanged(shard, "no lease") >= HOLDERLESS
        self._seen.pop(shard.uid, None)
        return liveness is Liveness.DEAD

    def _unchanged(self, shard: Shard, what: str) -> float:
        """Seconds since `what` was first seen, and nothing else in between."""
        now = self._clock()
        seen = self._seen.get(shard.uid)
        if seen is None or seen[0] != what:
            seen = self._seen[shard.uid] = (what, now)
        return now - seen[1]
