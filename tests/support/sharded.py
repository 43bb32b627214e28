"""A user's actions on nodes, shards and the sharding controller's ConfigMap, and the observed shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from agent_scheduler.controllers.sharding.store import OWNER, OWNER_LABEL
from agent_scheduler.objects.shard import NODE_SHARDS
from kube_client.transport import Transport
from tests.support import objects
from tests.support.batched import definition
from tests.support.client import MERGE, Client
from tests.support.embedded import NODES, PODS, until
from tests.support.picture import Picture
from tests.support.places import ROOT

CRD = ROOT / "config" / "crd" / "shard.volcano.sh_nodeshards.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE, NAME = "volcano-system", "volcano-sharding-configmap"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
CONFIG_MAP = f"{CONFIG_MAPS}/{NAME}"
EVENTS = "/apis/events.k8s.io/v1/events"

READY = {"type": "Ready", "status": "True"}


def shard_manifest(name: str, nodes: list[str], *, ours: bool = True) -> dict[str, Any]:
    return objects.node_shard(name, nodes, labels={OWNER_LABEL: OWNER} if ours else {})


def limits(**shards: int) -> dict[str, Any]:
    """Return a configuration with a maximum of nodes per shard, and the remaining nodes in none."""
    return {
        "schedulerConfigs": [
            {"name": name, "policies": [{"name": "node-limit", "arguments": {"maxNodes": count}}]}
            for name, count in shards.items()
        ],
        "leftover": "none",
    }


class ShardedCluster(Client):
    """A client with the states of shards' specs in `shards.history` while that is entered."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.watch_shards()

    def watch_shards(self) -> None:
        self.shards = Picture(self.transport, NODE_SHARDS)

    async def prepare(self) -> None:
        """Create the kind and the ConfigMap's namespace."""
        await self.add(CRDS, definition(CRD))
        await self.add("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    async def add_node(
        self, name: str, *, cpu: str = "10", labels: Mapping[str, str] | None = None, ready: bool = True
    ) -> None:
        conditions = [READY] if ready else []
        await self.add(NODES, objects.node(name, cpu=cpu, memory="64Gi", labels=labels, conditions=conditions))

    async def add_nodes(self, count: int, **more: Any) -> list[str]:
        names = [f"n{number:03}" for number in range(count)]
        for name in names:
            await self.add_node(name, **more)
        return names

    async def change_node(self, name: str, change: Any) -> None:
        await self.patch(f"/api/v1/nodes/{name}", change)

    async def delete_node(self, name: str) -> None:
        await self.delete(f"/api/v1/nodes/{name}")

    async def load(self, node: str, cpu: str) -> None:
        """Replace the pod on a node by one that requests `cpu`."""
        await self.unload(node)
        spec = {"scheduler": "default-scheduler", "node": node}
        await self.add(PODS, objects.pod(f"on-{node}", cpu=cpu, memory="16Mi", **spec))

    async def unload(self, node: str) -> None:
        await self.call("DELETE", f"{PODS}/on-{node}", {"gracePeriodSeconds": 0})

    async def configure(self, config: Any) -> None:
        """Create or change the ConfigMap. `config` is the key's text, or its content; None removes the key."""
        text = config if isinstance(config, str) else yaml.safe_dump(config)
        data = {"data": {"sharding.yaml": None if config is None else text}}
        answer = await self.call("PATCH", CONFIG_MAP, data, content_type=MERGE)
        if answer.status == 404:
            data = {"data": {} if config is None else data["data"]}
            await self.add(CONFIG_MAPS, {"metadata": {"name": NAME}, **data})

    async def add_shard(self, name: str, nodes: list[str], *, ours: bool = True) -> None:
        await self.add(NODE_SHARDS, shard_manifest(name, nodes, ours=ours))

    async def change_shard(self, name: str, change: Any, *, status: bool = False) -> None:
        path = f"{NODE_SHARDS}/{name}" + ("/status" if status else "")
        await self.patch(path, change)

    async def shard(self, name: str) -> dict[str, Any] | None:
        answer = await self.call("GET", f"{NODE_SHARDS}/{name}")
        return json.loads(answer.body) if answer.status == 200 else None

    async def specs(self) -> dict[str, list[str]]:
        items = await self.items(NODE_SHARDS)
        return {item["metadata"]["name"]: item["spec"]["nodesDesired"] for item in items}

    async def until_specs(self, **wanted: list[str]) -> None:
        """Wait until the shards are exactly these, with these nodes."""
        expected = {name.replace("_", "-"): nodes for name, nodes in wanted.items()}
        seen: dict[str, list[str]] = {}

        async def so() -> bool:
            nonlocal seen
            seen = await self.specs()
            return seen == expected

        try:
            await until(so)
        except AssertionError:
            assert seen == expected
            raise

    async def until_counts(self, **wanted: int) -> dict[str, list[str]]:
        """Wait until the shards are exactly these, with these numbers of nodes; return the specs."""
        expected = {name.replace("_", "-"): count for name, count in wanted.items()}

        async def so() -> bool:
            return {name: len(nodes) for name, nodes in (await self.specs()).items()} == expected

        await until(so)
        return await self.specs()

    async def events(self, reason: str) -> list[dict[str, Any]]:
        items = await self.items(EVENTS)
        return [item for item in items if item["reason"] == reason]

    async def until_event(self, reason: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = await until(lambda: self.events(reason))
        return found[-1]

    def assert_never_overlapped(self) -> None:
        """Verify that in no observed state two of our shards desired one node."""
        now: dict[str, set[str]] = {}
        assert self.shards.history
        for state in self.shards.history:
            name = state["metadata"]["name"]
            if (state["metadata"].get("labels") or {}).get(OWNER_LABEL) != OWNER:
                now.pop(name, None)
                continue
            now[name] = set(state["spec"]["nodesDesired"])
            for other, nodes in now.items():
                assert other == name or not nodes & now[name], (name, other, now)
