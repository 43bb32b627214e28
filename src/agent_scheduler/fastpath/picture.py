"""The watches: what the API server has, and how each change of it reaches the cluster as we know it.

Nodes and pods are always watched; other kinds only where a plugin of some profile asks for them. Each kind has a
reflector of its own, so the changes of one come in order and those of two in any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from agent_scheduler.engine.nodeinfo import node_info
from agent_scheduler.engine.podinfo import PodReader
from agent_scheduler.engine.preemption.budgets import Budgets, budget
from agent_scheduler.kube.reflector import Change, ChangeType, Reflector, WatchTimes
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport
from agent_scheduler.kube.watch_events import Decode
from agent_scheduler.objects import wire
from agent_scheduler.objects.policy import PodDisruptionBudget

from .cluster import Cluster

#: What the API server is asked for: a pod that finished holds nothing, so it leaves the watch as DELETED.
_LIVING_PODS = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


class PictureObserver(Protocol):
    """Is told how the watches go."""

    def watched(self, kind: str, what: str) -> None:
        """A reflector's count; see `Reflector`."""

    def received(self, kind: str, changes: Sequence[Change[Any]], began: float) -> None:
        """A batch of changes was handled, from clock `began` until now."""

    def change_failed(self, kind: str, key: str, error: Exception) -> None:
        """A change could not be taken in. The picture lacks it; the changes behind it go on."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object that is watched: where it is, how it is read, and who is told of it.

    What `read` gives has `metadata` with uid, name, namespace and resource_version; it raises msgspec.DecodeError.
    """

    name: str
    path: str
    read: Decode[Any]
    set: Callable[[Any], None]
    delete: Callable[[Any], None]
    query: dict[str, str] | None = None


class Picture:
    """Owner of the reflectors."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        *,
        transport: Transport,
        times: WatchTimes,
        timing: Timing,
        observer: PictureObserver,
    ) -> None:
        self._timing = timing
        self._observer = observer
        self._reflectors = [
            Reflector(
                transport,
                kind.path,
                kind.read,
                partial(self._take_in, kind),
                query=kind.query or {},
                times=times,
                timing=timing,
                count=partial(observer.watched, kind.name),
            )
            for kind in kinds
        ]

    async def run(self) -> None:
        """Keep the picture until cancelled."""
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

    async def renew(self) -> None:
        """Take it anew; when this returns, it has all that was true when this was called. Needs `run`."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.renew())

    def _take_in(self, kind: Kind, changes: list[Change[Any]]) -> None:
        began = self._timing.clock()
        for change in changes:
            try:
                if change.type is ChangeType.DELETED:
                    kind.delete(change.object)
                else:
                    kind.set(change.object)
            except Exception as error:
                metadata = change.object.metadata
                key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
                self._observer.change_failed(kind.name, key, error)
        self._observer.received(kind.name, changes, began)


def nodes(cluster: Cluster) -> Kind:
    decode = msgspec.json.Decoder(wire.Node).decode
    return Kind(
        "Node",
        "/api/v1/nodes",
        lambda raw: node_info(decode(raw)),
        cluster.set_node,
        lambda node: cluster.delete_node(node.name),
    )


def pods(cluster: Cluster, read: PodReader) -> Kind:
    return Kind(
        "Pod",
        "/api/v1/pods",
        read,
        cluster.set_pod,
        lambda pod: cluster.delete_pod(pod.uid),
        query=_LIVING_PODS,
    )


def budgets(found: Budgets) -> Kind:
    """For preemption, which breaks as few as it can."""
    decode = msgspec.json.Decoder(PodDisruptionBudget).decode
    return Kind(
        "PodDisruptionBudget",
        "/apis/policy/v1/poddisruptionbudgets",
        lambda raw: budget(decode(raw)),
        found.set,
        lambda each: found.delete(each.namespace, each.name),
    )


def namespaces(cluster: Cluster) -> Kind:
    """For terms that choose namespaces by their labels."""
    return Kind(
        "Namespace",
        "/api/v1/namespaces",
        msgspec.json.Decoder(wire.Namespace).decode,
        lambda each: cluster.namespaces.set(each.metadata.name, each.metadata.labels or {}),
        lambda each: cluster.namespaces.delete(each.metadata.name),
    )
