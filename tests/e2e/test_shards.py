"""Schedulers as processes that share a cluster's nodes by NodeShards, over HTTP."""

from __future__ import annotations

import pytest

from agent_scheduler.objects.shard import NODE_SHARDS
from tests.support.batched import definition
from tests.support.objects import node_shard
from tests.support.picture import Picture
from tests.support.sharded import CRD, CRDS

from .conftest import Start
from .plane import OF, ControlPlane

HOST = "kubernetes.io/hostname"
OUTSIDE = "node isn't in scheduler node shard"


class Shards:
    """The NodeShards of a test by their short names, and the schedulers that follow them."""

    def __init__(self, plane: ControlPlane, picture: Picture) -> None:
        self.plane = plane
        self.picture = picture

    async def desire(self, name: str, *nodes: str) -> None:
        full, wanted = self.plane.full(name), [self.plane.full(node) for node in nodes]
        if self.picture.named(full):
            await self.plane.merge(f"{NODE_SHARDS}/{full}", {"spec": {"nodesDesired": wanted}})
        else:
            await self.plane.add(NODE_SHARDS, node_shard(full, wanted, labels={OF: self.plane.test}))
            await self.picture.until(lambda: self.picture.named(full), name)

    async def shows(self, name: str, *in_use: str) -> None:
        """Wait until the shard lists these nodes in use, and none to add or remove."""
        wanted = [[self.plane.full(node) for node in in_use], [], []]

        def told() -> bool:
            status = (self.picture.named(self.plane.full(name)) or {}).get("status") or {}
            return wanted == [sorted(status.get(key) or ()) for key in ("nodesInUse", "nodesToAdd", "nodesToRemove")]

        await self.picture.until(told, f"{name}: {wanted}")

    def assert_never_shared(self) -> None:
        """Assert that two schedulers never used the same node: the later claim on a node is withdrawn."""
        used: dict[str, set[str]] = {}
        twice: dict[str, int] = {}
        for shard in self.picture.history:
            name = shard["metadata"]["name"]
            used[name] = set((shard.get("status") or {}).get("nodesInUse") or ())
            for node in set().union(*used.values()):
                owners = [each for each, nodes in used.items() if node in nodes]
                twice[node] = twice.get(node, 0) + 1 if len(owners) > 1 else 0
                # A claim beside another one is withdrawn by the next write of either scheduler.
                assert twice[node] <= 2, (node, owners)


@pytest.mark.promise("S20", "L11")
async def test_nodes_go_from_one_scheduler_to_the_other(plane: ControlPlane, start: Start) -> None:
    await plane.ask("POST", CRDS, definition(CRD), also=(409,))
    await plane.seen(NODE_SHARDS, bool)
    try:
        async with Picture(plane.transport, NODE_SHARDS, {"labelSelector": f"{OF}={plane.test}"}) as picture:
            await _exchanged(plane, Shards(plane, picture), start)
    finally:
        await plane.delete(f"{NODE_SHARDS}?labelSelector={plane.selector}")


async def _exchanged(plane: ControlPlane, shards: Shards, start: Start) -> None:
    for number in range(6):
        await plane.add_node(f"node{number}")
    await shards.desire("volcano", "node0", "node1", "node2")
    await shards.desire("agent", "node3", "node4", "node5")
    flags = ["--scheduler-sharding-mode=hard", f"--sharding-lease-namespace={plane.namespace}"]
    volcano, agent = (plane.full(name) for name in ("volcano", "agent"))
    for name in ("volcano", "agent"):
        profiles = [{"schedulerName": plane.full(name)}]
        await start(name, config={"profiles": profiles, "podInitialBackoffSeconds": 0.1}, flags=flags).ready()
    await shards.shows("volcano", "node0", "node1", "node2")
    await shards.shows("agent", "node3", "node4", "node5")
    on_node0 = {HOST: plane.full("node0")}
    await plane.add_pod("ours", scheduler_name=volcano, select=on_node0)
    await plane.bound("ours")
    await shards.desire("volcano", "node1", "node2", "node3")
    await shards.desire("agent", "node0", "node4", "node5")
    await shards.shows("volcano", "node1", "node2", "node3")
    await shards.shows("agent", "node0", "node4", "node5")
    await plane.add_pod("theirs", scheduler_name=agent, select=on_node0)
    await plane.add_pod("late", scheduler_name=volcano, select=on_node0)
    assert await plane.bound("ours", "theirs") == {"ours": "node0", "theirs": "node0"}
    await plane.pods.until(lambda: OUTSIDE in (plane.condition("late") or {}).get("message", ""), "a refusal")
    shards.assert_never_shared()
    assert all(shard["status"]["lastUpdateTime"] for shard in shards.picture.objects.values())
