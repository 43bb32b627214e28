"""The job controller on an embedded API server in virtual time, with the actions of users, kubelets and a scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agent_scheduler.controllers.jobs.controller import JobSettings
from agent_scheduler.objects.job import DEPENDS_ON_GANG, RESERVE
from agent_scheduler.process.controller_flags import JOB, QUEUE
from agent_scheduler.process.controllers import ControllersProcess
from tests.support import objects
from tests.support.batched import COMMANDS, command
from tests.support.controllers import BatchWorld, Dying, batch_world
from tests.support.embedded import NODES, PODS

#: Seconds after which no work is left.
REST = 3.0
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def policy(event: str, action: str, **more: Any) -> dict[str, Any]:
    return {"event": event, "action": action, **more}


def reported(phase: str) -> dict[str, Any]:
    """Return the status of a pod's container as the kubelet reports it."""
    return {"name": "c", "image": "i", "imageID": "", "restartCount": 0, "ready": phase == "Running"}


class JobsWorld(BatchWorld):
    """A cluster in which the test runs the pods: there are no other controllers than the product's."""

    def start(self, transport: Any = None, *, ssh: bool = False) -> ControllersProcess:  # type: ignore[override]
        return super().start(JOB, QUEUE, transport=transport, job=JobSettings(ssh=ssh))

    def dying(self, at: int, *, sent: bool) -> Dying:
        return Dying(self.another_transport(), at, sent=sent)

    # ---- what others do

    async def add_job(
        self, *tasks: dict[str, Any], minimum: int | None = None, reserves: bool = False, **spec: Any
    ) -> None:
        least = sum(each["replicas"] for each in tasks) if minimum is None else minimum
        annotations = {DEPENDS_ON_GANG: RESERVE} if reserves else {}
        body = objects.job("j", *tasks, minimum=least, annotations=annotations, queue="default", **spec)
        await self.add(JOBS, body)
        await asyncio.sleep(REST)

    async def let_in(self, *tasks: dict[str, Any], **spec: Any) -> None:
        """Add a Job and admit its group."""
        await self.add_job(*tasks, **spec)
        await self.group_is("Inqueue")

    async def group_is(self, phase: str) -> None:
        (group,) = await self.items(GROUPS)
        await self.patch(f"{GROUPS}/{group['metadata']['name']}", {"status": {"phase": phase}})
        await asyncio.sleep(REST)

    async def bind_all(self, *names: str) -> None:
        """Bind pods, so that their deletion lasts until the kubelet has ended them."""
        for name in names:
            await self.bind(name, "n")

    async def pods_are(self, phase: str, *names: str, code: int = 1) -> None:
        state = {"terminated": {"exitCode": code if phase == "Failed" else 0}}
        report = {**reported(phase), "state": {"running": {}} if phase == "Running" else state}
        for name in names:
            status = {"phase": phase, "containerStatuses": [report]}
            await self.patch(f"{PODS}/{name}/status", {"status": status})
        await asyncio.sleep(REST)

    async def reap(self) -> None:
        for name, pod in (await self.pods()).items():
            if "deletionTimestamp" in pod["metadata"]:
                await self.end_pod(name)
        await asyncio.sleep(REST)

    async def command(self, action: str, queue: str = "") -> None:
        """Add a Command for the Job, or for a queue."""
        body = command(action, queue)
        if not queue:
            body["target"] = {"apiVersion": objects.BATCH, "kind": "Job", "name": "j", "uid": "u"}
        await self.add(COMMANDS, body)

    async def ordered(self, action: str) -> None:
        """Add a Command and wait until it is executed."""
        await self.command(action)
        await asyncio.sleep(REST)

    # ---- what there is

    async def status(self) -> Any:
        return (await self.get(f"{JOBS}/j")).get("status") or {}

    async def phase(self) -> Any:
        return (await self.status())["state"]["phase"]

    async def notes(self) -> list[str]:
        found = await self.items("/apis/events.k8s.io/v1/namespaces/default/events")
        return sorted(each["note"] for each in found)


@asynccontextmanager
async def jobs_run(
    through: Callable[[JobsWorld], Any] = lambda _: None, *, ssh: bool = False
) -> AsyncIterator[JobsWorld]:
    """Run a controller's process; `through` creates its transport. With `ssh`, roles are not installed."""
    async with jobs_world(**({"components": ()} if ssh else {})) as it:
        it.start(through(it), ssh=ssh)
        await asyncio.sleep(REST)
        yield it


@asynccontextmanager
async def jobs_world(**cluster: Any) -> AsyncIterator[JobsWorld]:
    async with batch_world(JobsWorld, controllers=False, **cluster) as it:
        await it.add(NODES, {"metadata": {"name": "n"}})
        yield it
