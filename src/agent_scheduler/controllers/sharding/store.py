"""NodeShards as the API server has them, as far as we know, and which of them are ours.

Ours are those with the label that this controller puts on what it makes. All others belong to other clients, whatever
they are called: they are read and never written. To give a shard to this controller, put the label on it; to take one
away, take the label off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from agent_scheduler.kube.watch_events import is_older
from agent_scheduler.objects.shard import NodeShard

#: The label of what this controller makes.
OWNER_LABEL = "app.kubernetes.io/managed-by"
OWNER = "agent-scheduler-sharding"


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One NodeShard at one resourceVersion."""

    name: str
    uid: str
    resource_version: str
    #: Whether this controller may write it.
    ours: bool
    desired: frozenset[str]
    #: Whether its scheduler says that it uses nodes.
    used: bool


def shard_of(found: NodeShard) -> Shard:
    return Shard(
        name=found.name,
        uid=found.metadata.uid,
        resource_version=found.metadata.resource_version,
        ours=(found.metadata.labels or {}).get(OWNER_LABEL) == OWNER,
        desired=found.desired,
        used=bool(found.status.nodes_in_use),
    )


class _Unconfirmed(NamedTuple):
    """Writes without an answer: the version that they were for ("" if they were to make the shard), their nodes, and
    when none of them can be carried out any more."""

    version: str
    nodes: frozenset[str]
    until: float


class ShardStore:
    """Owner of what is known of NodeShards. It is updated by the watch and by the answers to our writes, in any order.

    Invariants: no version takes the place of a newer one; what may still be written is known as long as it may. Times
    are of one monotonic clock.
    """

    def __init__(self) -> None:
        self._shards: dict[str, Shard] = {}
        #: By name: what may be written besides.
        self._unconfirmed: dict[str, _Unconfirmed] = {}
        #: Names of shards that only answers have shown. The watch may never deliver them: not those deleted before it
        #: saw them, nor again those whose deletion it has delivered.
        self._unwatched: set[str] = set()

    def __iter__(self) -> Iterator[Shard]:
        """In the order of their names."""
        return iter([self._shards[name] for name in sorted(self._shards)])

    def get(self, name: str) -> Shard | None:
        return self._shards.get(name)

    def unconfirmed(self, now: float) -> Mapping[str, frozenset[str]]:
        """By shard: nodes that it may come to have by a write that got no answer."""
        self._unconfirmed = {name: write for name, write in self._unconfirmed.items() if now < write.until}
        return {name: write.nodes for name, write in self._unconfirmed.items()}

    @property
    def unwatched(self) -> list[Shard]:
        """Those that may have gone without a word."""
        return [self._shards[name] for name in sorted(self._unwatched)]

    def observe(self, shard: Shard) -> None:
        """An answer to a request shows it."""
        if shard.name not in self._shards:
            self._unwatched.add(shard.name)
        self._set(shard)

    def set(self, shard: Shard) -> bool:
        """The watch has delivered it. Whether what the shard desires, or whose it is, has changed."""
        self._unwatched.discard(shard.name)
        return self._set(shard)

    def _set(self, shard: Shard) -> bool:
        known = self._shards.get(shard.name)
        if known is None:
            self._put(shard)
            return True
        if is_older(shard.resource_version, known.resource_version):
            return False
        if shard.desired == known.desired:
            # Status is written often; its updates need not bring the same names anew.
            shard = msgspec.structs.replace(shard, desired=known.desired)
        self._put(shard)
        return (shard.uid, shard.ours, shard.desired) != (known.uid, known.ours, known.desired)

    def delete(self, shard: Shard) -> bool:
        """Whether that is news: by now another object may have its name."""
        known = self._shards.get(shard.name)
        if known is None or known.uid != shard.uid:
            return False
        del self._shards[shard.name]
        self._unwatched.discard(shard.name)
        write = self._unconfirmed.get(shard.name)
        if write is not None and write.version:
            # A write is refused that names an object which is gone.
            del self._unconfirmed[shard.name]
        return True

    def note_unconfirmed(self, name: str, version: str, nodes: frozenset[str], *, until: float) -> None:
        """A write of these to the shard as of `version` got no answer, and may be carried out `until` then, as long as
        the shard is so; so may an earlier one. One to make the shard ("") may be whenever there is none: it may be
        deleted."""
        known = self._shards.get(name)
        if version and (known is None or known.resource_version != version):
            return
        before = self._unconfirmed.get(name)
        if before is not None and before.version == version:
            nodes |= before.nodes
        self._unconfirmed[name] = _Unconfirmed(version, nodes, until)

    def _put(self, shard: Shard) -> None:
        self._shards[shard.name] = shard
        write = self._unconfirmed.get(shard.name)
        if write is not None and write.version not in ("", shard.resource_version):
            del self._unconfirmed[shard.name]
