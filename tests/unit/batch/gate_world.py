"""Pods behind the gate of their queue's capacity, in a whole process on an embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.engine.quotas.book import Standing
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from tests.support.batched import add_group
from tests.support.embedded import until

from .test_end_to_end import CONFIGURATION, PODS, Gangs, gangs

OTHER = "example.com/other"
BOTH = pytest.mark.parametrize("scheduler", ["agent-scheduler", "volcano"])


class Gates:
    """What tests do with gated pods and see of them."""

    def __init__(self, world: Gangs) -> None:
        self.world = world
        self.cluster = world.cluster

    async def pod(
        self,
        name: str,
        *,
        scheduler: str = "volcano",
        queue: str = "q",
        cpu: str = "1",
        group: str = "",
        role: str = "",
        gates: tuple[str, ...] = (QUEUE_ALLOCATION_GATE,),
        annotation: str = "true",
        **spec: Any,
    ) -> None:
        requests = {"cpu": cpu, "memory": "16Mi"} if cpu else {}
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        annotations = {QUEUE_ALLOCATION_GATE: annotation, "scheduling.volcano.sh/queue-name": queue}
        if group:
            annotations["scheduling.k8s.io/group-name"] = group
        if role:
            annotations["volcano.sh/task-spec"] = role
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "schedulerName": scheduler,
                "containers": [container],
                "schedulingGates": [{"name": each} for each in gates],
                **spec,
            },
        }
        await self.cluster.ask("POST", PODS, body)

    async def gang(self, name: str, members: int, *, minimum: int = 0, queue: str = "q", **more: Any) -> None:
        await add_group(self.cluster, name, minMember=minimum or members, queue=queue)
        for number in range(members):
            await self.pod(f"{name}-{number}", group=name, queue=queue, **more)

    async def gates(self, name: str) -> list[str]:
        pod = await self.cluster.ask("GET", f"{PODS}/{name}")
        return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]

    async def is_let_past(self, name: str) -> bool:
        return not await self.gates(name)

    async def is_gated_by(self, name: str, *gates: str) -> bool:
        return tuple(await self.gates(name)) == gates

    async def all_let_past(self, prefix: str, number: int) -> bool:
        return await self.let_past(prefix) == number

    async def let_past(self, prefix: str) -> int:
        pods = (await self.cluster.ask("GET", PODS))["items"]
        return sum(
            pod["metadata"]["name"].startswith(prefix) and not pod["spec"].get("schedulingGates")
            for pod in pods
        )

    async def says(self, name: str, reason: str) -> bool:
        condition = await self.cluster.condition(name)
        return condition is not None and condition["reason"] == reason

    async def is_bound(self, name: str) -> bool:
        return name in await self.cluster.placed()

    async def told(self, name: str) -> list[str]:
        """Notes of events that say that its queue's gate holds the pod."""
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        events = (await self.cluster.ask("GET", path))["items"]
        return [
            each["note"]
            for each in events
            if each["reason"] == "QueueFull" and each["regarding"]["name"] == name
        ]

    async def has_told(self, name: str, number: int) -> bool:
        return len(await self.told(name)) == number

    async def delete(self, name: str) -> None:
        await self.cluster.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    async def stays_held(self, *names: str) -> None:
        """Nothing more happens, and these have their gate and say nothing that an autoscaler would take for a want of
        nodes."""
        await self.world.rest()
        for name in names:
            assert QUEUE_ALLOCATION_GATE in await self.gates(name)
            assert await self.says(name, "SchedulingGated")

    def standing(self, name: str) -> Standing | None:
        fast_path = self.world.runtime.fast_path
        assert fast_path is not None
        uid = next((pod.uid for pod in fast_path.cluster.pods.values() if pod.name == name), "")
        entry = fast_path.ledger.usage.book.entry(uid)
        return None if entry is None else entry.standing

    async def stands(self, name: str, standing: Standing | None) -> None:
        await until(lambda: self.standing(name) is standing)


@asynccontextmanager
async def gated(text: str = CONFIGURATION, **capability: str) -> AsyncIterator[Gates]:
    async with gangs(text) as world:
        await world.queue("full", capability=capability or {"cpu": "1"})
        yield Gates(world)
