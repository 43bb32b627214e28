"""Reads NodeShards, nodes, pods, the ConfigMap, and the leases of the shards. Nothing is written.

Every failure becomes one `ReadError` with a complete message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

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
from agent_scheduler.objects.config_map import ConfigMap, config_maps
from agent_scheduler.objects.shard import NODE_SHARDS, NodeShard
from agent_scheduler.objects.wire import Lease
from agent_scheduler.shards.holders import lease_name
from kube_client.transport import Transport, segment

from .listing import ReadError, list_all

_decode_lease = msgspec.json.Decoder(Lease).decode


class Holder(NamedTuple):
    """The holder of a shard's lease. `problem` says why it is unknown; without both there is no holder."""

    lease: Lease | None = None
    problem: str = ""


async def shards(transport: Transport) -> list[NodeShard]:
    """Return the shards sorted by name. Raises ReadError, which says if the kind is not installed."""
    return sorted(await list_all(transport, NODE_SHARDS, read_shard), key=lambda shard: shard.name)


async def nodes(transport: Transport) -> list[NodeInfo]:
    """Return the nodes sorted by name. Raises ReadError."""
    return sorted(await list_all(transport, NODES, read_node), key=lambda node: node.name)


async def pods(transport: Transport) -> list[PodInfo]:
    """Return the pods that use capacity of a node. Raises ReadError."""
    return await list_all(transport, PODS, pod_reader(), ON_NODES)


async def config_map(transport: Transport, namespace: str, name: str) -> ConfigMap | None:
    """Return the ConfigMap or None. Raises ReadError."""
    selector = {"fieldSelector": f"metadata.name={name}"}
    found = await list_all(transport, config_maps(namespace), read_config_map, selector)
    return found[0] if found else None


async def holders(transport: Transport, namespace: str | None, names: list[str]) -> Mapping[str, Holder]:
    """Return the holders by shard. If `namespace` is None, leases of all namespaces count."""
    found = await asyncio.gather(*(_holder(transport, namespace, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _holder(transport: Transport, namespace: str | None, shard: str) -> Holder:
    name = lease_name(shard)
    place = "" if namespace is None else f"/namespaces/{segment(namespace)}"
    path, selector = f"/apis/coordination.k8s.io/v1{place}/leases", {"fieldSelector": f"metadata.name={name}"}
    try:
        found = await list_all(transport, path, _decode_lease, selector)
    except ReadError as error:
        return Holder(problem=f"lease {name}: {error}")
    # If schedulers of one shard run in several namespaces, each has its own lease; the last renewed one counts.
    return Holder(max(found, key=lambda lease: lease.spec.renew_time or "", default=None))
