"""Gangs from their objects to their binds, in a whole process on an embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from agent_scheduler.config.load import load_text
from agent_scheduler.kube.transport import Endpoint
from agent_scheduler.process.runtime import Runtime
from tests.embedded import EmbeddedCluster, embedded_cluster, until

CONFIGURATION = """
apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {port: 0}
leaderElection: {leaderElect: false}
batch: {schedulePeriod: 50ms}
"""
GROUP = "/apis/scheduling.volcano.sh/v1beta1"
PODS = "/api/v1/namespaces/default/pods"


class Gangs:
    def __init__(self, cluster: EmbeddedCluster, runtime: Runtime) -> None:
        self.cluster = cluster
        self.runtime = runtime

    async def queue(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
        await self.cluster.ask("POST", f"{GROUP}/queues", {**body, "spec": spec})
        # As the queue controller does.
        state = {"status": {"state": "Open"}}
        await self.cluster.ask(
            "PATCH",
            f"{GROUP}/queues/{name}/status",
            state,
            content_type="application/merge-patch+json",
        )

    async def gang(self, name: str, members: int, *, cpu: str = "1", queue: str = "q", **spec: Any) -> None:
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": members, "queue": queue, **spec},
        }
        await self.cluster.ask("POST", f"{GROUP}/namespaces/default/podgroups", group)
        for number in range(members):
            await self.member(f"{name}-{number}", name, cpu=cpu)

    async def member(self, name: str, group: str, *, cpu: str = "1") -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
        metadata = {"name": name, "annotations": {"scheduling.k8s.io/group-name": group}}
        spec = {"schedulerName": "volcano", "containers": [container]}
        await self.cluster.ask("POST", PODS, {"metadata": metadata, "spec": spec})

    async def status(self, name: str) -> dict[str, Any]:
        group = await self.cluster.ask("GET", f"{GROUP}/namespaces/default/podgroups/{name}")
        status: dict[str, Any] = group.get("status") or {}
        return status

    async def placed(self, name: str) -> int:
        return sum(each.startswith(f"{name}-") for each in await self.cluster.placed())

    async def has_placed(self, name: str, number: int) -> bool:
        return await self.placed(name) == number

    @property
    def sessions(self) -> int:
        assert self.runtime.batch is not None
        return self.runtime.batch.sessions

    async def rest(self) -> int:
        """Returns once no session is due any more; how many there were."""
        batch = self.runtime.batch
        assert batch is not None
        quiet = 0
        while quiet < 10:
            before = batch.sessions
            await asyncio.sleep(0.06)
            quiet = quiet + 1 if batch.sessions == before and not batch.waiting.due.is_set() else 0
        return batch.sessions


@asynccontextmanager
async def gangs(text: str = CONFIGURATION, *, kubelets: bool = False) -> AsyncIterator[Gangs]:
    async with embedded_cluster(kubelets=kubelets) as cluster:
        for crd in sorted(Path("config/crd").glob("scheduling.*.yaml")):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await cluster.ask("POST", path, yaml.safe_load(crd.read_text()))
        runtime = Runtime(load_text(text), endpoint=Endpoint(cluster.server.url))
        ending = asyncio.create_task(runtime.run(signals=False))
        try:
            found = Gangs(cluster, runtime)
            await until(lambda: runtime.batch is not None and runtime.batch.sessions)
            await found.queue("q")
            yield found
        finally:
            runtime.stop()
            await asyncio.wait_for(ending, 10)


async def test_a_gang_is_bound_whole_and_one_that_does_not_fit_waits_until_a_node_comes() -> None:
    async with gangs() as world:
        cluster = world.cluster
        await cluster.add_node("a", cpu="4")
        await world.gang("fits", 3)
        await until(lambda: world.has_placed("fits", 3))
        await world.gang("large", 3, cpu="2")

        async def is_told() -> Any:
            conditions = (await world.status("large")).get("conditions") or []
            return next((each for each in conditions if each["type"] == "Unschedulable"), None)

        condition = await until(is_told)
        assert condition["reason"] == "NotEnoughResources"
        assert "3/3 tasks in gang unschedulable" in condition["message"]
        assert (await world.status("large"))["phase"] in ("Pending", "Inqueue")
        pod = await cluster.condition("large-0")
        assert pod is not None and (pod["status"], pod["reason"]) == ("False", "Unschedulable")
        sessions = await world.rest()
        assert await world.placed("large") == 0
        await asyncio.sleep(0.3)
        assert world.sessions == sessions, "a session was held though nothing had changed"

        await cluster.add_node("b", cpu="8")
        await until(lambda: world.has_placed("large", 3))
        queue = await cluster.ask("GET", f"{GROUP}/queues/q")
        assert queue["status"]["state"] == "Open"
