"""What the controller watches: nodes, pods on them, NodeShards and one ConfigMap.

Nodes and pods go to the planner; the rest to who asked. Of most changes, such as heartbeats of nodes and conditions of
pods, a plan cannot know: these are dropped here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.rates import node_facts
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.kube.reflector import Reflector, WatchTimes
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport
from agent_scheduler.kube.waiting import RENEWAL_PATIENCE
from agent_scheduler.kube.watch_events import DELETED, Change, Decode, Handler
from agent_scheduler.objects import wire
from agent_scheduler.objects.config_map import ConfigMap, config_maps
from agent_scheduler.objects.shard import NODE_SHARDS, NodeShard

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
#: Pods that take capacity of a node. Those of the kubelet itself (static pods' mirrors) are among them.
ON_NODES = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}

read_shard = msgspec.json.Decoder(NodeShard).decode
read_config_map = msgspec.json.Decoder(ConfigMap).decode
_decode_node = msgspec.json.Decoder(wire.Node).decode


def read_node(raw: bytes | memoryview | msgspec.Raw) -> NodeInfo:
    return node_info(_decode_node(raw))


def pod_reader() -> PodReader:
    return PodReader(PodClasses())


def set_node(planner: Planner, new: NodeInfo, old: NodeInfo | None) -> bool:
    """Whether a plan can tell the difference."""
    facts = node_facts(new)
    if old is not None and facts == node_facts(old):
        return False
    planner.set_node(facts)
    return True


def set_pod(planner: Planner, new: PodInfo, old: PodInfo | None) -> bool:
    """Whether a plan can tell the difference."""
    if new.finished or not new.node_name:
        # Who asks with `ON_NODES` gets none of these; a server may leave the selector to us.
        planner.delete_pod(new.uid)
        return old is not None
    if old is not None and old.node_name == new.node_name and old.requests == new.requests:
        return False
    planner.set_pod(new.uid, new.node_name, new.requests)
    return True


class WatchObserver(Protocol):
    """Is told how the watches go."""

    def watched(self, kind: str, what: str) -> None:
        """A reflector's count; see `Reflector`."""

    def received(self, kind: str, changes: Sequence[Change[Any]]) -> None:
        """A batch of changes was taken in."""


class Watches:
    """Owner of the reflectors.

    `nodes_changed` is called after changes of nodes and pods that a plan can tell; the others get the changes. `shards`
    gets none when the API server, which had no such kind, comes to have it.
    """

    def __init__(
        self,
        transport: Transport,
        planner: Planner,
        *,
        config_map: tuple[str, str],
        nodes_changed: Callable[[], None],
        shards: Handler[NodeShard],
        configuration: Handler[ConfigMap],
        observer: WatchObserver,
        times: WatchTimes,
        timing: Timing,
    ) -> None:
        """`config_map`: namespace and name."""
        self._planner = planner
        self._nodes_changed = nodes_changed
        self._shards = shards
        self._observer = observer
        #: Whether the API server has no such kind as NodeShard. Owner: what its reflector tells.
        self.is_kind_missing = False
        pods = pod_reader()
        namespace, name = config_map

        def reflector(
            kind: str, path: str, read: Decode[Any], handler: Handler[Any], **more: Any
        ) -> Reflector[Any]:
            how = {"times": times, "timing": timing, "count": partial(observer.watched, kind), **more}
            return Reflector(transport, path, read, partial(self._counted, kind, handler), **how)

        self._reflectors: tuple[Reflector[Any], ...] = (
            reflector("Node", NODES, read_node, self._take_nodes),
            reflector("Pod", PODS, pods, self._take_pods, query=ON_NODES, read_event=pods.read_event),
            # Without the kind there is nothing to wait for; `is_kind_missing` keeps us from making any.
            reflector("NodeShard", NODE_SHARDS, read_shard, shards, optional=True, count=self._count_shards),
            reflector(
                "ConfigMap",
                config_maps(namespace),
                read_config_map,
                configuration,
                query={"fieldSelector": f"metadata.name={name}"},
            ),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())

    async def synced(self) -> None:
        """Returns once all that existed at the start has been seen."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    @property
    def is_synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self._reflectors)

    @property
    def stale(self) -> list[str]:
        """Kinds of which the API server has not been heard for too long."""
        named = zip(("Node", "Pod", "NodeShard", "ConfigMap"), self._reflectors, strict=True)
        return [name for name, each in named if each.synced.is_set() and each.is_stale]

    async def renew(self) -> None:
        """When this returns, all has been seen that was true when this was called. Needs `run`. Raises NotListed, in a
        group, if the API server does not list one of them."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.renew(patience=RENEWAL_PATIENCE))

    def _counted(self, kind: str, take: Handler[Any], changes: list[Change[Any]]) -> None:
        take(changes)
        self._observer.received(kind, changes)

    def _take_nodes(self, changes: list[Change[NodeInfo]]) -> None:
        told = False
        for change in changes:
            if change.type is DELETED:
                self._planner.delete_node(change.object.name)
                told = True
            else:
                told |= set_node(self._planner, change.object, change.old)
        if told:
            self._nodes_changed()

    def _take_pods(self, changes: list[Change[PodInfo]]) -> None:
        told = False
        for change in changes:
            if change.type is DELETED:
                self._planner.delete_pod(change.object.uid)
                told = True
            else:
                told |= set_pod(self._planner, change.object, change.old)
        if told:
            self._nodes_changed()

    def _count_shards(self, what: str) -> None:
        if what == "absent":
            self.is_kind_missing = True
        elif what == "watch" and self.is_kind_missing:
            self.is_kind_missing = False
            self._shards([])
        self._observer.watched("NodeShard", what)
