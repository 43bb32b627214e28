"""Which nodes the children may use: all of the cluster, or those of the scheduler's NodeShard.

In mode `none` the names of all nodes are followed; in mode `hard` those that the coordinator says; in mode `soft` both:
those of the shard come first, and are divided apart from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from agent_scheduler.engine.shards.claims import Names
from agent_scheduler.kube.changes import DELETED, Change
from agent_scheduler.kube.reflector import Reflector
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport
from agent_scheduler.objects import wire

from .exchange import Exchange

_NODES: Final = "/api/v1/nodes"


class NodeName(msgspec.Struct, frozen=True):
    """All that is read of a node."""

    metadata: wire.Metadata


class Nodes:
    """Owner of the set of nodes that may be used. In modes `soft` and `hard` it is the `Side` of the coordinator."""

    def __init__(
        self,
        exchange: Exchange,
        transport: Transport,
        *,
        mode: Literal["none", "soft", "hard"],
        timing: Timing,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is told that nodes have come or gone."""
        self._exchange = exchange
        self._mode = mode
        self._changed = changed
        #: Of the NodeShard.
        self._shard: Names = frozenset()
        #: Whether the children may be told of nodes: where there are shards, not before it is known what they say.
        self._is_open = not self.is_side
        self._all: set[str] = set()
        self._reflector: Reflector[NodeName] | None = None
        if mode != "hard":
            self._reflector = Reflector(
                transport,
                _NODES,
                msgspec.json.Decoder(NodeName).decode,
                self._take_in,
                timing=timing,
            )

    @property
    def is_side(self) -> bool:
        return self._mode != "none"

    def open(self) -> None:
        """What the coordinator has said holds."""
        self._is_open = True
        self._divide()

    def begin(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        if self._reflector is None:
            return []
        return [tasks.create_task(self._reflector.run()), tasks.create_task(self._first(self._reflector))]

    async def _first(self, reflector: Reflector[NodeName]) -> None:
        await reflector.synced.wait()
        self._divide()

    def _take_in(self, changes: list[Change[NodeName]]) -> None:
        before = len(self._all)
        joined = False
        for change in changes:
            name = change.object.metadata.name
            if change.type is DELETED:
                self._all.discard(name)
            elif name not in self._all:
                self._all.add(name)
                joined = True
        if joined or len(self._all) != before:
            self._divide()

    def _divide(self) -> None:
        if not self._is_open or (self._reflector is not None and not self._reflector.synced.is_set()):
            return
        first = self._shard if self.is_side else self._all
        rest = self._all - first if self._mode == "soft" else ()
        self._exchange.divide(first, rest)
        self._changed()

    # ---- Side

    def use(self, nodes: Names, unready: str) -> None:
        self._exchange.share(nodes, unready)
        if nodes != self._shard:
            self._shard = nodes
            self._divide()

    def hold(self, nodes: Names) -> None:
        self._exchange.claim(nodes)

    def in_flight(self, nodes: Names) -> Names:
        return self._exchange.under_way(nodes)

    async def catch_up(self, version: str) -> None:
        """Every child does, before it uses a node that it is given."""
        self._exchange.learn(version)
