"""Reads what there is: NodeShards, nodes, pods, the ConfigMap, the leases of the shards. Nothing is written.

Whatever goes wrong becomes one `Unreadable` with a complete message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from agent_scheduler.controllers.sharding.watching import (
    NODES,
    ON_NODES,
    PODS,
    pod_reader,
    read_config_map,
    read_node,
    read_shard,
)
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.errors import FailureClass, RequestFailed
from agent_scheduler.kube.paging import collect
from agent_scheduler.kube.transport import Transport, segment
from agent_scheduler.kube.watch_events import Decode, Object
from agent_scheduler.objects.config_map import ConfigMap, config_maps
from agent_scheduler.objects.shard import API_VERSION, KIND, NODE_SHARDS, NodeShard
from agent_scheduler.objects.wire import Lease
from agent_scheduler.shards.holders import lease_name

T = TypeVar("T", bound=Object)

#: Seconds for each request.
_PATIENCE = 60.0

_decode_lease = msgspec.json.Decoder(Lease).decode


class Unreadable(Exception):
    """The message says what could not be read, and what may help."""


class Holder(NamedTuple):
    """Who holds a shard's lease. `problem` says why that is not known; with none of the three, nobody does."""

    lease: Lease | None = None
    problem: str = ""


async def shards(transport: Transport) -> list[NodeShard]:
    """By name. Raises Unreadable, which says so where the kind is not installed."""
    return sorted(await _all(transport, NODE_SHARDS, read_shard), key=lambda shard: shard.name)


async def nodes(transport: Transport) -> list[NodeInfo]:
    """By name. Raises Unreadable."""
    return sorted(await _all(transport, NODES, read_node), key=lambda node: node.name)


async def pods(transport: Transport) -> list[PodInfo]:
    """Those that take capacity of a node. Raises Unreadable."""
    return await _all(transport, PODS, pod_reader(), ON_NODES)


async def config_map(transport: Transport, namespace: str, name: str) -> ConfigMap | None:
    """None if there is none. Raises Unreadable."""
    selector = {"fieldSelector": f"metadata.name={name}"}
    found = await _all(transport, config_maps(namespace), read_config_map, selector)
    return found[0] if found else None


async def holders(transport: Transport, namespace: str | None, names: list[str]) -> Mapping[str, Holder]:
    """By shard. `namespace` None: wherever the leases are."""
    found = await asyncio.gather(*(_holder(transport, namespace, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _holder(transport: Transport, namespace: str | None, shard: str) -> Holder:
    name = lease_name(shard)
    place = "" if namespace is None else f"/namespaces/{segment(namespace)}"
    path, selector = f"/apis/coordination.k8s.io/v1{place}/leases", {"fieldSelector": f"metadata.name={name}"}
    try:
        found = await _all(transport, path, _decode_lease, selector)
    except Unreadable as error:
        return Holder(problem=f"lease {name}: {error}")
    # Where schedulers of one shard are in several namespaces, each has its own; the last to renew tells most.
    return Holder(max(found, key=lambda lease: lease.spec.renew_time or "", default=None))


async def _all(
    transport: Transport, path: str, decode: Decode[T], query: Mapping[str, str] | None = None
) -> list[T]:
    """Raises Unreadable, for an object that has no meaning, too: what is shown is to be all there is."""

    def malformed(raw: bytes, error: Exception) -> str:
        raise Unreadable(f"list {path}: an object cannot be read: {error}")

    try:
        _, found, _ = await collect(
            transport,
            path,
            decode,
            query=query or {},
            timeout=_PATIENCE,
            malformed=malformed,
        )
    except RequestFailed as error:
        if path == NODE_SHARDS and error.failure.kind is FailureClass.NOT_SERVED:
            raise Unreadable(
                f"the API server has no {KIND} ({API_VERSION}); install it: kubectl apply -k config/crd"
            ) from None
        raise Unreadable(str(error)) from None
    return list(found.values())
