"""A scheduler with a console, on a busy embedded cluster: for tests, and for the pictures of the documentation."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from agent_scheduler.config.load import load_text
from agent_scheduler.engine.state.gpus import RESOURCE as SHARED_GPU
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from agent_scheduler.process.controllers import ControllersProcess
from agent_scheduler.process.scheduler import SchedulerProcess
from embedded_kubernetes.simulated_nodes import GPU, nodes
from kube_client.transport import Endpoint
from tests.support import objects
from tests.support.batched import add_queue
from tests.support.controllers import batch_world
from tests.support.embedded import PODS, EmbeddedCluster, until
from tests.support.shared import SharedCluster

_CONFIGURATION = """
apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {port: %d, console: true}
leaderElection: {leaderElect: false}
batch: {schedulePeriod: 100ms}
"""
#: The scheduler's own shard, and that of another scheduler that does not run.
SHARDS = ("agent-scheduler", "training")
_SHARDED = "sharding: {mode: hard, leaseNamespace: default}\n"
_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


class ConsoleWorld:
    def __init__(
        self, cluster: EmbeddedCluster, runtime: SchedulerProcess, controllers: ControllersProcess, url: str
    ) -> None:
        self.cluster = cluster
        self.runtime = runtime
        self.controllers = controllers
        self.url = url

    async def agents(self, rate: float, *, lives: float = 8.0, seed: int = 1) -> None:
        """Create `rate` pods a second that end by themselves, until canceled."""
        rng, numbers = random.Random(seed), itertools.count()
        while True:
            for _ in range(max(1, int(rate / 10))):
                name = f"agent-{next(numbers):06d}"
                annotations = {"agent-scheduler.io/run-seconds": f"{rng.uniform(lives / 2, lives):.1f}"}
                cpu = rng.choice(("250m", "500m", "1"))
                about = {"annotations": annotations, "restartPolicy": "Never"}
                await self.cluster.add(PODS, objects.pod(name, cpu=cpu, memory="512Mi", **about))
            await asyncio.sleep(0.1)

    async def services(self, count: int, *, seed: int = 1) -> None:
        """Create pods that stay, bind them, and delete a third of them, which leaves nodes of every fill."""
        rng = random.Random(seed)
        names = [f"service-{number:05d}" for number in range(count)]
        for name in names:
            await self.cluster.add(PODS, objects.pod(name, cpu=rng.choice(("2", "3", "5")), memory="4Gi"))
        await until(lambda: self.cluster.has_placed("service-", count))
        for name in rng.sample(names, count // 3):
            await self.cluster.ask("DELETE", f"{PODS}/{name}")

    async def queues(self) -> None:
        for name, spec in {
            "research": {"capability": {"cpu": "400", "memory": "1Ti"}, "deserved": {"cpu": "200"}},
            "training": {"parent": "research", "capability": {"cpu": "60"}},
            "serving": {"capability": {"cpu": "100", GPU: "32"}},
        }.items():
            await add_queue(self.cluster, name, **spec)

    async def jobs(self, count: int) -> None:
        """Create jobs with a master, workers that wait for it, and a report after them; the last need too much."""
        for number in range(count):
            tasks = (
                _task("master", 1, "1"),
                _task("worker", 4, "8" if number < count - 2 else "64", dependsOn={"name": ["master"]}),
                _task("report", 1, "1", minimum=0, dependsOn={"name": ["worker"]}),
            )
            await self.cluster.add(_JOBS, objects.job(f"train-{number}", *tasks, minimum=5, queue="training"))


def _task(name: str, replicas: int, cpu: str, *, minimum: int | None = None, **more: Any) -> objects.Object:
    container = objects.container(requests={"cpu": cpu, "memory": "1Gi"})
    template = {"containers": [container], "restartPolicy": "Never"}
    least = replicas if minimum is None else minimum
    return objects.task(name, replicas, least, template=template, **more)


@asynccontextmanager
async def console_world(
    count: int, *, port: int, cpu: str = "16", sharded: bool = False
) -> AsyncIterator[ConsoleWorld]:
    """Run the world with `count` nodes; of each eight one has GPUs, and one has GPUs that pods share.

    `sharded`: two thirds of the nodes are desired for the scheduler's shard, of which the other scheduler still has the
    last, and the rest for the other one.
    """
    async with batch_world(kubelets=True) as batch:
        cluster = batch.cluster
        for number, node in enumerate(nodes(count, {"cpu": cpu, "memory": "64Gi", "pods": "110"}, kubelets=False)):
            gpus = {0: {GPU: "8"}, 1: {SHARED_GPU: "4000"}}.get(number % 8)
            if gpus is not None:
                amounts = node["status"]["capacity"] | gpus
                node["status"] = {**node["status"], "capacity": amounts, "allocatable": amounts}
            await cluster.ask("POST", "/api/v1/nodes", node)
        controllers = batch.start(JOB, PODGROUP, QUEUE)
        if sharded:
            shared, names = SharedCluster(cluster), [f"node-{number:05d}" for number in range(count)]
            own = 2 * count // 3
            await shared.install()
            await shared.desire(SHARDS[1], names[own:])
            await shared.write_status(SHARDS[1], nodesInUse=names[own - 1 :])
            await shared.desire(SHARDS[0], names[:own])
        configuration = _CONFIGURATION % port + (_SHARDED if sharded else "")
        runtime = SchedulerProcess(load_text(configuration), source=None, endpoint=Endpoint(cluster.server.url))
        ending = asyncio.create_task(runtime.run(signals=False))
        world = ConsoleWorld(cluster, runtime, controllers, f"http://127.0.0.1:{port}/ui/")
        try:
            await batch.until_states(root="Open", default="Open")
            await until(lambda: runtime.fast_path is not None and runtime.fast_path.is_synced)
            yield world
        finally:
            runtime.stop()
            with suppress(TimeoutError):
                await asyncio.wait_for(ending, 60)
