"""The scheduler's process with those of controllers; the test simulates only nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent_scheduler.config.load import load_text
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from agent_scheduler.process.scheduler import SchedulerProcess
from tests.support import objects
from tests.support.controllers import BatchWorld, batch_world
from tests.support.embedded import NODES, PODS
from tests.support.installation import ACCOUNT, CONFIGURATION
from tests.support.jobs import GROUPS, JOBS, reported


class Whole(BatchWorld):
    """Owner of the controllers' and the scheduler's processes."""

    _scheduler: tuple[SchedulerProcess, asyncio.Task[int]] | None = None
    configuration = CONFIGURATION

    def start_scheduler(self) -> None:
        runtime = SchedulerProcess(load_text(self.configuration), source=None, **self.way(account=ACCOUNT))
        self._scheduler = runtime, asyncio.create_task(runtime.run(signals=False))

    async def stop_scheduler(self) -> None:
        assert self._scheduler is not None
        runtime, ending = self._scheduler
        runtime.stop()
        await asyncio.wait_for(ending, 60)

    @property
    def runtime(self) -> SchedulerProcess:
        assert self._scheduler is not None
        return self._scheduler[0]

    # ---- what users and nodes do

    async def make_job(self, name: str, *tasks: objects.Object, minimum: int, **more: Any) -> None:
        await self.add(JOBS, objects.job(name, *tasks, minimum=minimum, queue="default", **more))

    async def starts(self, name: str) -> None:
        """Report the pod as running, as its node's kubelet does."""
        status = {"phase": "Running", "containerStatuses": [{**reported("Running"), "state": {}}]}
        await self.patch(f"{PODS}/{name}/status", {"status": status})

    async def open_node(self, name: str) -> None:
        await self.patch(f"{NODES}/{name}", {"spec": {"unschedulable": False}})

    # ---- what there is

    async def there(self, *names: str) -> bool:
        """Return whether pods of these names exist."""
        return set(names) <= (await self.pods()).keys()

    async def is_another(self, name: str, before: Any) -> bool:
        """Return whether the pod of this name is not the pod `before`."""
        found = (await self.pods()).get(name)
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    async def job_status(self, name: str) -> dict[str, Any]:
        return (await self.get(f"{JOBS}/{name}")).get("status") or {}

    async def runs(self, name: str, running: int, **counts: int) -> bool:
        """Return whether the Job runs with `running` pods; other counts of its status by name."""
        found = await self.job_status(name)
        counts = {"running": running, **counts}
        return found.get("state", {}).get("phase") == "Running" and all(
            found.get(each, 0) == count for each, count in counts.items()
        )

    async def group(self) -> dict[str, Any]:
        """Return the only group."""
        (found,) = await self.items(GROUPS)
        return dict(found)


def stage(name: str, replicas: int, minimum: int, *, cpu: str = "1", gated: bool = False, **more: Any) -> Any:
    """Return a task of pods that run and end once; with the queue's gate if they are `gated`."""
    containers = [objects.container(requests={"cpu": cpu, "memory": "64Mi"})]
    template: dict[str, Any] = {"containers": containers, "restartPolicy": "Never"}
    if gated:
        template["schedulingGates"] = [{"name": QUEUE_ALLOCATION_GATE}]
    found = objects.task(name, replicas, minimum=minimum, template=template, **more)
    if gated:
        found["template"]["metadata"] = {"annotations": {QUEUE_ALLOCATION_GATE: "true"}}
    return found


@asynccontextmanager
async def whole(
    *controllers: str,
    made: type[Whole] = Whole,
    kubelets: bool = True,
    configuration: str = CONFIGURATION,
    **cluster: Any,
) -> AsyncIterator[Any]:
    """Run all processes; without `kubelets`, pods start when the test reports it."""
    async with batch_world(made, kubelets=kubelets, **cluster) as it:
        it.configuration = configuration
        it.start(*controllers)
        it.start_scheduler()
        try:
            await it.until_states(root="Open", default="Open")
            yield it
        finally:
            await it.stop_scheduler()
