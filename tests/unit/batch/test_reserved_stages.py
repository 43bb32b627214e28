"""Jobs that keep room for the tasks which come later (`agent-scheduler.io/depends-on-gang: reserve`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from agent_scheduler.config.load import load_text
from agent_scheduler.objects.batch import STAGE_GATE
from agent_scheduler.objects.job import DEPENDS_ON_GANG
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from agent_scheduler.process.runtime import Runtime
from tests.support.embedded import PODS, until
from tests.support.places import CONFIG
from tests.unit.controllers.batch_world import BatchWorld, batch_world

from .test_end_to_end import CONFIGURATION

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
WORKERS = {"j-worker-0", "j-worker-1"}


class Reserved:
    """A cluster whose pods start when they are told to, with controllers and a scheduler."""

    def __init__(self, world: BatchWorld) -> None:
        self.world = world
        self.cluster = world.cluster
        self._scheduler: tuple[Runtime, asyncio.Task[int]] | None = None

    def start(self) -> None:
        runtime = Runtime(load_text(CONFIGURATION), **self.cluster.way())
        self._scheduler = runtime, asyncio.create_task(runtime.run(signals=False))

    async def stop(self) -> None:
        assert self._scheduler is not None
        runtime, ending = self._scheduler
        runtime.stop()
        await asyncio.wait_for(ending, 20)

    async def run_job(self, *, value: str = "reserve", master: str = "1", minimum: int = 3) -> None:
        body = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j", "annotations": {DEPENDS_ON_GANG: value}},
            "spec": {
                "queue": "default",
                "schedulerName": "volcano",
                "minAvailable": minimum,
                "tasks": [
                    _task("master", 1, cpu=master),
                    _task("worker", 2, dependsOn={"name": ["master"]}),
                ],
            },
        }
        await self.cluster.ask("POST", _JOBS, body)

    async def starts(self, name: str) -> None:
        """As its kubelet says."""
        status = {
            "phase": "Running",
            "containerStatuses": [
                {"name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "", "state": {}}
            ],
        }
        await self.cluster.ask(
            "PATCH",
            f"{PODS}/{name}/status",
            {"status": status},
            content_type="application/merge-patch+json",
        )

    async def placed(self, *names: str) -> bool:
        return set(await self.cluster.placed()) == set(names)

    async def standing_by(self) -> dict[str, str]:
        """Pod -> the node that it is to go to."""
        pods = await self.cluster.pods()
        return {
            name: pod["status"].get("nominatedNodeName", "")
            for name, pod in pods.items()
            if {"name": STAGE_GATE} in (pod["spec"].get("schedulingGates") or [])
        }

    def assumed(self) -> int:
        """Pods whose bind was not answered."""
        assert self._scheduler is not None
        fast_path = self._scheduler[0].fast_path
        return 0 if fast_path is None else fast_path.ledger.assumed

    async def stand_by_on(self, node: str) -> bool:
        return await self.standing_by() == dict.fromkeys(WORKERS, node)


def _task(name: str, replicas: int, *, cpu: str = "1", **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"name": name, "replicas": replicas, "minAvailable": replicas, "template": template, **more}


@asynccontextmanager
async def reserved() -> AsyncIterator[Reserved]:
    async with batch_world() as it:
        definition = yaml.safe_load((CONFIG / "crd" / "batch.volcano.sh_jobs.yaml").read_text())
        await it.cluster.call("POST", _DEFINITIONS, definition)
        it.start(JOB, PODGROUP, QUEUE)
        found = Reserved(it)
        found.start()
        try:
            await it.until_states(root="Open", default="Open")
            yield found
        finally:
            await found.stop()


@pytest.mark.parametrize("scheduler", ["agent-scheduler", "volcano"])
async def test_nobody_takes_the_room_of_tasks_that_wait_for_the_first(scheduler: str) -> None:
    async with reserved() as it:
        await it.cluster.add_node("n1", cpu="3")
        await it.run_job()
        await until(lambda: it.stand_by_on("n1"))
        assert await it.placed("j-master-0")
        await it.cluster.add_pod("other", cpu="1", scheduler=scheduler)
        await until(lambda: it.cluster.condition("other"))
        assert await it.placed("j-master-0")
        for _ in range(30):
            assert it.assumed() == 2, "no bind is sent that the API server would refuse"
            await asyncio.sleep(0.01)
        await it.starts("j-master-0")
        await until(lambda: it.placed("j-master-0", *WORKERS))
        assert await it.standing_by() == {}


async def test_the_room_is_given_back_when_the_job_ends() -> None:
    async with reserved() as it:
        await it.cluster.add_node("n1", cpu="3")
        await it.run_job()
        await until(lambda: it.stand_by_on("n1"))
        await it.cluster.add_pod("other", cpu="2")
        await until(lambda: it.cluster.condition("other"))
        await it.cluster.ask("DELETE", f"{_JOBS}/j")

        async def is_placed() -> bool:
            return "other" in await it.cluster.placed()

        await until(is_placed)


async def test_none_of_a_job_is_bound_for_which_there_is_room_for_the_first_task_alone() -> None:
    async with reserved() as it:
        await it.cluster.add_node("n1", cpu="2")
        # So that the group is let in.
        await it.cluster.add_node("n2", cpu="2", unschedulable=True)
        await it.run_job()

        async def all_say_why() -> bool:
            pods = await it.cluster.pods()
            said = [await it.cluster.condition(name) for name in pods]
            return len(pods) == 3 and all(each and each["reason"] == "Unschedulable" for each in said)

        await until(all_say_why)
        assert await it.placed()
        await it.cluster.add_node("n3", cpu="1")
        await until(lambda: it.placed("j-master-0"))
        await it.starts("j-master-0")
        await until(lambda: it.placed("j-master-0", *WORKERS))


async def test_tasks_that_wait_keep_no_room_for_themselves_alone() -> None:
    async with reserved() as it:
        await it.cluster.add_node("n1", cpu="3")
        # So that the group is let in.
        await it.cluster.add_node("n2", cpu="4", unschedulable=True)
        # Any of its pods are enough, and the one that runs first does not fit.
        await it.run_job(master="4", minimum=1)

        async def says_why() -> bool:
            # Those of the workers say from the start that they have a gate.
            return "j-master-0" in await it.cluster.pods() and bool(await it.cluster.condition("j-master-0"))

        await until(says_why)
        await it.cluster.add_pod("other", cpu="3")

        async def is_placed() -> bool:
            return "other" in await it.cluster.placed()

        await until(is_placed)
        assert it.assumed() == 0


async def test_a_scheduler_that_is_started_anew_keeps_the_room_for_them() -> None:
    async with reserved() as it:
        await it.cluster.add_node("n1", cpu="3")
        await it.run_job()
        await until(lambda: it.stand_by_on("n1"))
        await it.stop()
        await it.cluster.add_pod("other", cpu="1")
        it.start()
        await until(lambda: it.cluster.condition("other"))
        await it.starts("j-master-0")
        await until(lambda: it.placed("j-master-0", *WORKERS))


async def test_those_whose_node_goes_have_room_kept_on_another() -> None:
    async with reserved() as it:
        await it.cluster.add_node("n1", cpu="3")
        await it.run_job()
        await until(lambda: it.stand_by_on("n1"))
        await it.cluster.add_node("n2", cpu="3")
        await it.cluster.ask("DELETE", "/api/v1/nodes/n1")
        await until(lambda: it.stand_by_on("n2"))


async def test_one_that_is_deleted_while_it_stands_by_gives_its_room_back_and_is_made_again() -> None:
    async with reserved() as it:
        await it.cluster.add_node("n1", cpu="3")
        await it.run_job()
        await until(lambda: it.stand_by_on("n1"))
        uid = (await it.cluster.pods())["j-worker-0"]["metadata"]["uid"]
        await it.cluster.ask("DELETE", f"{PODS}/j-worker-0")

        async def made_again() -> bool:
            pod = (await it.cluster.pods()).get("j-worker-0")
            return pod is not None and pod["metadata"]["uid"] != uid

        await until(made_again)
        await until(lambda: it.stand_by_on("n1"))


async def test_those_who_are_to_run_first_are_given_room_that_others_stand_by_with() -> None:
    async with reserved() as it:
        await it.cluster.add_node("n1", cpu="4")
        await it.run_job(master="2", minimum=1)
        await until(lambda: it.stand_by_on("n1"))
        pod = (await it.cluster.pods())["j-master-0"]
        # With what the workers have there is enough for the master alone.
        for field in ("capacity", "allocatable"):
            await it.cluster.ask(
                "PATCH",
                "/api/v1/nodes/n1/status",
                {"status": {field: {"cpu": "3"}}},
                content_type="application/merge-patch+json",
            )
        await it.cluster.ask("DELETE", f"{PODS}/j-master-0", {"gracePeriodSeconds": 0})

        async def is_placed_again() -> bool:
            found = (await it.cluster.pods()).get("j-master-0")
            is_new = found is not None and found["metadata"]["uid"] != pod["metadata"]["uid"]
            return is_new and await it.placed("j-master-0")

        await until(is_placed_again)
