"""Schedulers that share a cluster by NodeShards: the real processes' runtimes, and an administrator's actions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import yaml

from agent_scheduler.objects.shard import NODE_SHARDS
from agent_scheduler.process.scheduler import SchedulerProcess
from embedded_kubernetes.requests import Request
from tests.support.batched import install
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.installation import Installation, started
from tests.support.sharded import CRD, CRDS, ShardedCluster
from tests.support.tap import Tap


class SharedCluster(EmbeddedCluster, ShardedCluster):
    """A cluster with the NodeShard kind, nodes `n0`, `n1`, … of 4 CPUs."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        EmbeddedCluster.__init__(self, cluster.api, cluster.transport, cluster._server)

    async def install(self, *, schema: bool = True) -> None:
        """Install the kind NodeShard; without `schema`, it has no validation."""
        definition = yaml.safe_load(CRD.read_text())
        if not schema:
            anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            for version in definition["spec"]["versions"]:
                version["schema"] = {"openAPIV3Schema": anything}
        await self.add(CRDS, definition)

    async def desire(self, shard: str, nodes: Iterable[str]) -> None:
        """Set the desired nodes of a shard, which is created if needed."""
        if await self.shard(shard) is None:
            await self.add_shard(shard, list(nodes), ours=False)
        else:
            await self.change_shard(shard, {"spec": {"nodesDesired": list(nodes)}})

    async def write_status(self, shard: str, **lists: Any) -> None:
        """Write the status as a scheduler of another vendor does."""
        await self.change_shard(shard, {"status": lists}, status=True)

    async def status(self, shard: str) -> dict[str, Any]:
        return (await self.get(f"{NODE_SHARDS}/{shard}")).get("status") or {}

    async def in_use(self, shard: str) -> str:
        """Return the names of the nodes in use as one text: `n0 n1`."""
        return " ".join((await self.status(shard)).get("nodesInUse") or [])

    async def uses(self, shard: str, nodes: str) -> bool:
        """Return whether the shard uses exactly these nodes, with no change pending."""
        status = await self.status(shard)
        rest = (status.get("nodesToAdd") or []) + (status.get("nodesToRemove") or [])
        return " ".join(status.get("nodesInUse") or []) == nodes and not rest

    async def is_removing(self, shard: str, *nodes: str) -> bool:
        return (await self.status(shard)).get("nodesToRemove") == list(nodes)

    async def is_adding(self, shard: str, *nodes: str) -> bool:
        return (await self.status(shard)).get("nodesToAdd") == list(nodes)

    async def delete_shard(self, shard: str) -> None:
        await self.delete(f"{NODE_SHARDS}/{shard}")


def lists_shards(request: Request) -> bool:
    return request.method == "GET" and request.path == NODE_SHARDS and not request.flag("watch")


async def has_looked_again(shared: SharedCluster, shard: str, tap: Tap) -> None:
    """Wait until the shard's scheduler has handled it once more from beginning to end."""
    for number in range(2):
        seen = tap.count(lists_shards)
        await shared.change_shard(shard, {"metadata": {"labels": {"looks": f"{seen}-{number}"}}})
        await until(lambda seen=seen: tap.count(lists_shards) > seen)


def decides_on(runtime: SchedulerProcess, *nodes: str) -> bool:
    """Return whether the runtime currently decides on exactly these nodes."""
    path = runtime.fast_path
    return path is not None and path.shard is not None and path.shard.membership.nodes == set(nodes)


@asynccontextmanager
async def shared_cluster(
    nodes: int = 0, *, kind: bool = True, schema: bool = True, **server: Any
) -> AsyncIterator[SharedCluster]:
    """Start a cluster; without `kind`, NodeShard is not installed, and without `schema`, it has no validation."""
    async with embedded_cluster(**server) as cluster:
        shared = SharedCluster(cluster)
        if kind:
            await shared.install(schema=schema)
        for number in range(nodes):
            await shared.add_node(f"n{number}", cpu="4")
        yield shared


@asynccontextmanager
async def scheduler(
    shared: SharedCluster,
    name: str,
    mode: str = "hard",
    *,
    fence: str = "1s",
    more: str = "",
    nodes: str = "",
    **other: Any,
) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler. `nodes` are names, as one text; its shard desires them, and it uses them."""
    text = f"""
apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {{port: 0}}
profiles: [{{schedulerName: {name}}}]
leaderElection: {{leaseDuration: 2s, renewDeadline: 1s, retryPeriod: 100ms}}
sharding: {{mode: {mode}, leaseNamespace: default, fencePeriod: {fence}}}
{more}"""
    async with started(shared, text, **other) as (runtime, _):
        if nodes:
            await shared.desire(name, nodes.split())
            await until(lambda: decides_on(runtime, *nodes.split()))
        yield runtime


@asynccontextmanager
async def batch_cluster(nodes: int) -> AsyncIterator[SharedCluster]:
    async with shared_cluster(nodes) as shared:
        await install(shared)
        yield shared


@asynccontextmanager
async def batch(
    shared: SharedCluster, name: str, mode: str = "hard", sessions: str = "", **other: Any
) -> AsyncIterator[Installation]:
    """Run a scheduler of the shard `name`, with a batch scheduler `batch-<name>` and a queue `q-<name>`."""
    more = f"batch: {{schedulerName: batch-{name}, defaultQueue: q-{name}, schedulePeriod: 50ms{sessions}}}"
    async with scheduler(shared, name, mode, more=more, **other) as runtime:
        world = Installation(shared, runtime)
        await world.queue(f"q-{name}")
        yield world
