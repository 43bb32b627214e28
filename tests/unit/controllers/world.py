"""The sharding controller's process against an embedded cluster, over HTTP, and what a test does to the two."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from agent_scheduler.config.schema import LeaderElection, Logging, Serving
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS, parse_scheduler_configs
from agent_scheduler.controllers.sharding.book import OWNER, OWNER_LABEL
from agent_scheduler.controllers.sharding.configuration import complete
from agent_scheduler.controllers.sharding.controller import ControllerSettings
from agent_scheduler.controlling.flags import ControllersSettings
from agent_scheduler.controlling.process import ControllersProcess
from agent_scheduler.kube.reflector import WatchTimes
from agent_scheduler.kube.transport import Endpoint
from agent_scheduler.objects.shard import API_VERSION, KIND, NODE_SHARDS
from tests.e2e.picture import Picture
from tests.embedded import PODS, EmbeddedCluster, embedded_cluster, until

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE, NAME = "volcano-system", "volcano-sharding-configmap"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
CONFIG_MAP = f"{CONFIG_MAPS}/{NAME}"
EVENTS = "/apis/events.k8s.io/v1/events"
MERGE = "application/merge-patch+json"

READY = {"type": "Ready", "status": "True"}


def shard_manifest(name: str, nodes: list[str], *, ours: bool = True) -> dict[str, Any]:
    labels = {OWNER_LABEL: OWNER} if ours else {}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodesDesired": nodes},
    }


def limits(**shards: int) -> dict[str, Any]:
    """A configuration in which each shard has so many nodes at most, and what is left is in none."""
    return {
        "schedulerConfigs": [
            {"name": name, "policies": [{"name": "node-limit", "arguments": {"maxNodes": count}}]}
            for name, count in shards.items()
        ],
        "leftover": "none",
    }


class World:
    """Owner of the controller's processes. Whatever the specs of shards were is in `shards.history`."""

    def __init__(self, cluster: EmbeddedCluster, shards: Picture) -> None:
        self.cluster = cluster
        self.shards = shards
        self.processes: list[ControllersProcess] = []
        self._running: list[asyncio.Task[int]] = []

    # ---- the controller

    def settings(
        self,
        *,
        configs: str = DEFAULT_SCHEDULER_CONFIGS,
        period: float = 60.0,
        trigger: bool = True,
        elect: bool = False,
    ) -> ControllersSettings:
        return ControllersSettings(
            enabled=("sharding",),
            kubeconfig="",
            election=LeaderElection(
                leader_elect=elect,
                lease_duration=2,
                renew_deadline=1.0,
                retry_period=0.1,
                resource_name="controllers",
                resource_namespace="default",
            ),
            serving=Serving(port=0),
            logging=Logging(),
            sharding=ControllerSettings(
                flags=complete(
                    parse_scheduler_configs(configs), period, event_trigger=trigger, source="the flags"
                ),
                lease_namespace="default",
                fence=0.1,
                debounce=0.02,
                retry=0.1,
                watch_times=WatchTimes(),
            ),
        )

    def start(self, **settings: Any) -> ControllersProcess:
        process = ControllersProcess(
            self.settings(**settings),
            endpoint=Endpoint(self.cluster.server.url),
            identity=f"c{len(self.processes)}",
        )
        self.take(process)
        return process

    def take(self, process: ControllersProcess) -> None:
        """Run it until the end of the world."""
        self.processes.append(process)
        self._running.append(asyncio.create_task(process.run(signals=False)))

    async def stop(self, process: ControllersProcess) -> int:
        """Its exit code."""
        process.stop()
        return await asyncio.wait_for(self._running[self.processes.index(process)], 20)

    async def end(self) -> None:
        for process in self.processes:
            assert await self.stop(process) == 0

    def metric(self, name: str, *, of: int = -1, **labels: str) -> float:
        """Sum of the samples called `name` that have `labels`."""
        text = self.processes[of].metrics.exposition()[0].decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    # ---- the cluster

    async def add_node(
        self, name: str, *, cpu: str = "10", labels: Mapping[str, str] | None = None, ready: bool = True
    ) -> None:
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [READY] if ready else []}
        node = {"metadata": {"name": name, "labels": dict(labels or {})}, "status": status}
        await self.cluster.ask("POST", "/api/v1/nodes", node)

    async def add_nodes(self, count: int, **more: Any) -> list[str]:
        names = [f"n{number:03}" for number in range(count)]
        for name in names:
            await self.add_node(name, **more)
        return names

    async def change_node(self, name: str, change: Any) -> None:
        await self.cluster.ask("PATCH", f"/api/v1/nodes/{name}", change, content_type=MERGE)

    async def delete_node(self, name: str) -> None:
        await self.cluster.ask("DELETE", f"/api/v1/nodes/{name}")

    async def load(self, node: str, cpu: str) -> None:
        """A pod of so much CPU on a node, in the place of the one that was there."""
        await self.unload(node)
        await self.cluster.add_pod(f"on-{node}", cpu=cpu, nodeName=node)

    async def unload(self, node: str) -> None:
        await self.cluster.call("DELETE", f"{PODS}/on-{node}", {"gracePeriodSeconds": 0})

    async def configure(self, config: Any) -> None:
        """Makes or changes the ConfigMap. `config`: the key's text, or what to write there; None: without the key."""
        text = config if isinstance(config, str) else yaml.safe_dump(config)
        data = {"data": {"sharding.yaml": None if config is None else text}}
        answer = await self.cluster.call("PATCH", CONFIG_MAP, data, content_type=MERGE)
        if answer.status == 404:
            data = {"data": {} if config is None else data["data"]}
            await self.cluster.ask("POST", CONFIG_MAPS, {"metadata": {"name": NAME}, **data})

    async def add_shard(self, name: str, nodes: list[str], *, ours: bool = True) -> None:
        await self.cluster.ask("POST", NODE_SHARDS, shard_manifest(name, nodes, ours=ours))

    async def change_shard(self, name: str, change: Any, *, status: bool = False) -> None:
        path = f"{NODE_SHARDS}/{name}" + ("/status" if status else "")
        await self.cluster.ask("PATCH", path, change, content_type=MERGE)

    async def shard(self, name: str) -> dict[str, Any] | None:
        answer = await self.cluster.call("GET", f"{NODE_SHARDS}/{name}")
        return json.loads(answer.body) if answer.status == 200 else None

    async def specs(self) -> dict[str, list[str]]:
        items = (await self.cluster.ask("GET", NODE_SHARDS))["items"]
        return {item["metadata"]["name"]: item["spec"]["nodesDesired"] for item in items}

    async def until_specs(self, **wanted: list[str]) -> None:
        """Once the shards are exactly these, with these nodes."""
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
        """The specs, once the shards are exactly these, with so many nodes."""
        expected = {name.replace("_", "-"): count for name, count in wanted.items()}

        async def so() -> bool:
            return {name: len(nodes) for name, nodes in (await self.specs()).items()} == expected

        await until(so)
        return await self.specs()

    async def events(self, reason: str) -> list[dict[str, Any]]:
        items = (await self.cluster.ask("GET", EVENTS))["items"]
        return [item for item in items if item["reason"] == reason]

    async def until_event(self, reason: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = await until(lambda: self.events(reason))
        return found[-1]

    def assert_never_overlapped(self) -> None:
        """At no moment that was seen did two shards of ours desire one node."""
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


async def install_kind(cluster: EmbeddedCluster) -> None:
    manifest = yaml.safe_load((ROOT / "config" / "crd" / "shard.volcano.sh_nodeshards.yaml").read_text())
    await cluster.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest)


@asynccontextmanager
async def world(**server: Any) -> AsyncIterator[World]:
    """Its controllers end in order, with exit code 0, and no two shards of theirs ever overlapped."""
    async with embedded_cluster(**server) as cluster:
        await install_kind(cluster)
        await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        async with Picture(cluster.transport, NODE_SHARDS) as shards:
            made = World(cluster, shards)
            try:
                yield made
            finally:
                await made.end()
            if shards.history:
                made.assert_never_overlapped()
