"""Schedulers as processes that share a cluster's nodes by NodeShards, over HTTP."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
import yaml

from agent_scheduler.objects.shard import NODE_SHARDS
from tests.support.picture import Picture
from tests.support.places import CONFIG

from .conftest import Start
from .plane import OF, ControlPlane, Object
from .processes import Scheduler

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_FILE = CONFIG / "crd/shard.volcano.sh_nodeshards.yaml"
HOST = "kubernetes.io/hostname"
OUTSIDE = "node isn't in scheduler node shard"


class Shards:
    """The NodeShards of a test, by their short names, and the schedulers that follow them."""

    def __init__(self, plane: ControlPlane, picture: Picture, start: Callable[..., Scheduler]) -> None:
        self.plane = plane
        self.picture = picture
        self._start = start

    async def start(self, *names: str, mode: str = "hard", **more: Any) -> list[Scheduler]:
        """A scheduler for each shard, ready."""
        started = [
            self._start(
                name,
                config={
                    "profiles": [{"schedulerName": self.plane.full(name)}],
                    "podInitialBackoffSeconds": 0.1,
                },
                flags=[
                    f"--scheduler-sharding-mode={mode}",
                    f"--sharding-lease-namespace={self.plane.namespace}",
                    "--leader-elect-lease-duration=15s",
                    "--leader-elect-renew-deadline=12s",
                    "--leader-elect-retry-period=300ms",
                    "--sharding-fence-period=2s",
                ],
                **more,
            )
            for name in names
        ]
        for each in started:
            await each.ready()
        return started

    async def desire(self, name: str, nodes: Iterable[str]) -> None:
        spec = {"nodesDesired": [self.plane.full(node) for node in nodes]}
        if self.picture.named(self.plane.full(name)) is None:
            body = {
                "apiVersion": "shard.volcano.sh/v1alpha1",
                "kind": "NodeShard",
                "metadata": {"name": name},
            }
            answer = await self.plane.add_cluster_object(NODE_SHARDS, {**body, "spec": spec})
            assert answer.status < 300, answer.body
            await self.picture.until(lambda: self.picture.named(self.plane.full(name)), name)
        else:
            path = f"{NODE_SHARDS}/{self.plane.full(name)}"
            await self.plane.merge(path, {"spec": spec})

    def table(self, name: str) -> tuple[str, str, str]:
        """In use, to be added and to be removed, as now told."""
        shard = self.picture.named(self.plane.full(name))
        return self._table(shard or {})

    def _table(self, shard: Object) -> tuple[str, str, str]:
        status = shard.get("status") or {}
        used, added, removed = (
            " ".join(sorted(self.plane.short(node) for node in status.get(key) or ()))
            for key in ("nodesInUse", "nodesToAdd", "nodesToRemove")
        )
        return used, added, removed

    async def shows(self, name: str, in_use: str, to_add: str = "", to_remove: str = "") -> None:
        wanted = (in_use, to_add, to_remove)
        await self.picture.until(lambda: self.table(name) == wanted, f"{name}: {wanted}")

    def assert_never_shared(self) -> None:
        """At no time were two sure of the same node: who saw another's claim beside its own withdrew it."""
        used: dict[str, set[str]] = {}
        twice: dict[str, int] = {}
        for shard in self.picture.history:
            name = shard["metadata"]["name"]
            used[name] = set((shard.get("status") or {}).get("nodesInUse") or ())
            for node in set().union(*used.values()):
                owners = [each for each, nodes in used.items() if node in nodes]
                twice[node] = twice.get(node, 0) + 1 if len(owners) > 1 else 0
                # A claim that met another one is withdrawn by the next write of either.
                assert twice[node] <= 2, (node, owners)


@pytest.fixture
async def shards(plane: ControlPlane, start: Start) -> AsyncIterator[Shards]:
    await plane.ask("POST", CRDS, yaml.safe_load(_FILE.read_text()), also=(409,))
    await plane.seen(NODE_SHARDS, bool)
    async with Picture(plane.transport, NODE_SHARDS, {"labelSelector": f"{OF}={plane.test}"}) as picture:
        yield Shards(plane, picture, start)


@pytest.mark.promise("S20", "L11")
async def test_nodes_go_from_one_scheduler_to_the_other(plane: ControlPlane, shards: Shards) -> None:
    for number in range(6):
        await plane.add_node(f"node{number}")
    await shards.desire("volcano", ["node0", "node1", "node2"])
    await shards.desire("agent", ["node3", "node4", "node5"])
    await shards.start("volcano", "agent")
    await shards.shows("volcano", "node0 node1 node2")
    await shards.shows("agent", "node3 node4 node5")
    volcano, agent = (plane.full(name) for name in ("volcano", "agent"))
    on_node0 = {HOST: plane.full("node0")}
    await plane.add_pod("ours", scheduler_name=volcano, select=on_node0)
    await plane.bound("ours")
    await shards.desire("volcano", ["node1", "node2", "node3"])
    await shards.desire("agent", ["node0", "node4", "node5"])
    await shards.shows("volcano", "node1 node2 node3")
    await shards.shows("agent", "node0 node4 node5")
    await plane.add_pod("theirs", scheduler_name=agent, select=on_node0)
    await plane.add_pod("late", scheduler_name=volcano, select=on_node0)
    assert await plane.bound("ours", "theirs") == {"ours": "node0", "theirs": "node0"}
    await plane.pods.until(lambda: OUTSIDE in (plane.condition("late") or {}).get("message", ""), "a refusal")
    shards.assert_never_shared()
    assert all(shard["status"]["lastUpdateTime"] for shard in shards.picture.objects.values())


@pytest.mark.wide
async def test_nodes_of_a_scheduler_that_was_killed_go_to_another_and_come_back(
    plane: ControlPlane, shards: Shards
) -> None:
    await plane.add_node("n0")
    await plane.add_node("n1")
    await shards.desire("dies", ["n0"])
    await shards.desire("lives", ["n0", "n1"])
    (dies,) = await shards.start("dies")
    await shards.shows("dies", "n0")
    (lives,) = await shards.start("lives")
    await shards.shows("lives", "n1", to_add="n0")
    dies.send(signal.SIGKILL)
    await shards.shows("lives", "n0 n1")
    await plane.add_pod("p", scheduler_name=plane.full("lives"), select={HOST: plane.full("n0")})
    await plane.bound("p")
    # Who comes back finds its node in use, and gets it when the other one ends.
    await shards.start("dies")
    await shards.shows("dies", "", to_add="n0")
    assert await lives.terminate() == 0
    await shards.shows("lives", "", to_add="n0 n1")
    await shards.shows("dies", "n0")
