"""NodeShard (shard.volcano.sh/v1alpha1), cluster-scoped: the nodes that a scheduler should use, and those that it uses.

Wire-compatible with Volcano's. The spec belongs to a controller or an administrator, the status to the scheduler of
the shard.
"""

from __future__ import annotations

from apimachinery.wire import Wire

from .wire import Metadata

API_VERSION = "shard.volcano.sh/v1alpha1"
KIND = "NodeShard"
#: The path of all shards.
NODE_SHARDS = "/apis/shard.volcano.sh/v1alpha1/nodeshards"


class NodeShardSpec(Wire, frozen=True):
    """The desired nodes by name; they need not exist."""

    nodes_desired: tuple[str, ...] | None = None


class NodeShardStatus(Wire, frozen=True):
    """Names of nodes; the time is RFC 3339."""

    last_update_time: str | None = None
    nodes_in_use: tuple[str, ...] | None = None
    nodes_to_add: tuple[str, ...] | None = None
    nodes_to_remove: tuple[str, ...] | None = None


class NodeShard(Wire, frozen=True):
    """A shard, whose name is the name of the object."""

    metadata: Metadata
    spec: NodeShardSpec = NodeShardSpec()
    status: NodeShardStatus = NodeShardStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def desired(self) -> frozenset[str]:
        return frozenset(self.spec.nodes_desired or ())

    @property
    def in_use(self) -> frozenset[str]:
        return frozenset(self.status.nodes_in_use or ())
