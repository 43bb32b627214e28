"""The last known state of NodeShards, and which of them are ours.

Our shards have the label that this controller adds at creation. All others belong to other clients, whatever their
names: they are read and never written. To assign a shard to this controller, add the label to it; to withdraw it,
remove the label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from agent_scheduler.objects.shard import NodeShard
from kube_client.watch_events import is_older

#: The label of shards that this controller creates.
OWNER_LABEL = "app.kubernetes.io/managed-by"
OWNER = "agent-scheduler-sharding"


class ShardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One NodeShard at one resourceVersion."""

    name: str
    uid: str
    resource_version: str
    #: Whether this controller may write it.
    ours: bool
    desired: frozenset[str]
    #: Whether its scheduler reports nodes in use.
    used: bool


def shard_of(found: NodeShard) -> ShardInfo:
    return ShardInfo(
        name=found.name,
        uid=found.metadata.uid,
        resource_version=found.metadata.resource_version,
        ours=(found.metadata.labels or {}).get(OWNER_LABEL) == OWNER,
        desired=found.desired,
        used=bool(found.status.nodes_in_use),
    )


class _Unconfirmed(NamedTuple):
    """Writes without a response: their base version ("" for a creation), their nodes, and when they expire."""

    version: str
    nodes: frozenset[str]
    until: float


class ShardStore:
    """Owner of the known NodeShards, which the watch and the responses to our writes update, in any order.

    Invariants: no version replaces a newer one; a write that may still be carried out is recorded for as long as that
    is possible. Times are of one monotonic clock.
    """

    def __init__(self) -> None:
        self._shards: dict[str, ShardInfo] = {}
        #: Unconfirmed writes by the shard's name.
        self._unconfirmed: dict[str, _Unconfirmed] = {}

    def __iter__(self) -> Iterator[ShardInfo]:
        """Iterate over the shards in the order of their names."""
        return iter([self._shards[name] for name in sorted(self._shards)])

    def get(self, name: str) -> ShardInfo | None:
        return self._shards.get(name)

    def unconfirmed(self, now: float) -> Mapping[str, frozenset[str]]:
        """Return the nodes that each shard may get by a write without a response."""
        self._unconfirmed = {name: write for name, write in self._unconfirmed.items() if now < write.until}
        return {name: write.nodes for name, write in self._unconfirmed.items()}

    def set(self, shard: ShardInfo) -> bool:
        """Apply a shard. Returns whether its desired nodes or its owner has changed."""
        known = self._shards.get(shard.name)
        if known is None:
            self._put(shard)
            return True
        if is_older(shard.resource_version, known.resource_version):
            return False
        if shard.desired == known.desired:
            # The status is written often; its updates share the set of names.
            shard = msgspec.structs.replace(shard, desired=known.desired)
        self._put(shard)
        return (shard.uid, shard.ours, shard.desired) != (known.uid, known.ours, known.desired)

    def delete(self, shard: ShardInfo) -> bool:
        """Remove the shard. Returns whether it was known; another object may have its name by now."""
        known = self._shards.get(shard.name)
        if known is None or known.uid != shard.uid:
            return False
        del self._shards[shard.name]
        write = self._unconfirmed.get(shard.name)
        if write is not None and write.version:
            # A write that names a deleted object is refused.
            del self._unconfirmed[shard.name]
        return True

    def note_unconfirmed(self, name: str, version: str, nodes: frozenset[str], *, until: float) -> None:
        """Record a write without a response, which the server may apply until `until` if the shard is at `version`.

        Earlier writes to the same version remain possible too. A creation (`version` is "") may be applied whenever the
        shard does not exist, which includes after its deletion.
        """
        known = self._shards.get(name)
        if version and (known is None or known.resource_version != version):
            return
        before = self._unconfirmed.get(name)
        if before is not None and before.version == version:
            nodes |= before.nodes
        self._unconfirmed[name] = _Unconfirmed(version, nodes, until)

    def _put(self, shard: ShardInfo) -> None:
        self._shards[shard.name] = shard
        write = self._unconfirmed.get(shard.name)
        if write is not None and write.version not in ("", shard.resource_version):
            del self._unconfirmed[shard.name]
