"""The batch scheduler beside the queue and podgroup controllers: nobody plays a part of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent_scheduler.config.load import load_text
from agent_scheduler.kube.transport import Endpoint
from agent_scheduler.process.runtime import Runtime
from tests.batched import member, owner
from tests.embedded import PODS, until
from tests.unit.controllers.batch_world import BatchWorld, batch_world

from .test_end_to_end import CONFIGURATION


@asynccontextmanager
async def whole() -> AsyncIterator[BatchWorld]:
    async with batch_world(kubelets=True) as it:
        it.start()
        runtime = Runtime(load_text(CONFIGURATION), endpoint=Endpoint(it.cluster.server.url))
        ending = asyncio.create_task(runtime.run(signals=False))
        try:
            await it.until_states(root="Open", default="Open")
            yield it
        finally:
            runtime.stop()
            await asyncio.wait_for(ending, 20)


async def workload(it: BatchWorld, *, minimum: int) -> str:
    """A ReplicaSet whose pods are scheduled so many at once; its UID."""
    path, body = owner("ReplicaSet", annotations={"scheduling.volcano.sh/group-min-member": str(minimum)})
    return str((await it.cluster.ask("POST", path, body))["metadata"]["uid"])


async def status(it: BatchWorld, queue: str = "default") -> dict[str, Any]:
    found: dict[str, Any] = (await it.queue(queue)).get("status") or {}
    return found


async def placed(it: BatchWorld, *names: str) -> bool:
    return set(await it.cluster.placed()) == set(names)


async def test_pods_of_a_workload_are_bound_when_its_minimum_fits_and_its_queue_tells_of_them() -> None:
    async with whole() as it:
        await it.cluster.add_node("n1", cpu="4")
        uid = await workload(it, minimum=2)
        await it.cluster.ask("POST", PODS, member("a", "ReplicaSet", uid))
        await until(it.groups)
        await asyncio.sleep(0.4)
        assert await placed(it)
        await it.cluster.ask("POST", PODS, member("b", "ReplicaSet", uid))
        await until(lambda: placed(it, "a", "b"))

        async def told() -> bool:
            found = await status(it)
            return (found.get("running"), found.get("allocated", {}).get("cpu")) == (1, "2")

        await until(told)
        (group,) = (await it.groups()).values()
        assert (group["status"]["phase"], group["status"]["running"]) == ("Running", 2)


async def test_nothing_is_bound_from_a_closed_queue_until_it_is_opened() -> None:
    async with whole() as it:
        await it.cluster.add_node("n1", cpu="4")
        await it.command("CloseQueue", "default")
        await it.until_states(default="Closed")
        uid = await workload(it, minimum=1)
        await it.cluster.ask("POST", PODS, member("a", "ReplicaSet", uid))
        await until(it.groups)
        await asyncio.sleep(0.5)
        assert await placed(it)
        await it.command("OpenQueue", "default")
        await until(lambda: placed(it, "a"))
