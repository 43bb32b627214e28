"""The resources that the status of a queue reports as allocated."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_scheduler.objects.batch import pod_group_path, queue_path
from agent_scheduler.process.controller_flags import QUEUE
from tests.support import objects
from tests.support.batched import add_group, add_queue
from tests.support.embedded import NODES, PODS, until
from tests.support.tap import Tap
from tests.support.whole import whole

GPU, Q = "example.com/gpu", f"{queue_path('q')}/status"
IN_Q: Any = {"annotations": objects.in_queue("q")}


async def test_a_queue_says_what_its_pods_hold_whoever_placed_them_and_no_more_once_they_are_gone() -> None:
    tap = Tap()
    async with whole(QUEUE, kubelets=False, disturb=tap) as it:
        await it.add(NODES, objects.node("n", cpu="20", extended={GPU: "4"}))
        await add_queue(it, "q")
        await add_group(it, "g", minMember=2, queue="q")
        asked = objects.container(requests={"cpu": "1", GPU: "1"}, limits={GPU: "1"})
        for name in ("g-0", "g-1"):
            await it.add(PODS, objects.pod(name, containers=[asked], scheduler="volcano", group="g", **IN_Q))
        await until(lambda: it.is_bound("g-0", "g-1"))
        for number in range(10):
            await it.add(PODS, objects.pod(f"agent-{number}", **IN_Q))
        held = {"cpu": "3", "memory": "0", GPU: "2", "pods": "12"}
        await it.seen(Q, lambda queue: queue["status"]["allocated"] == held)
        # Pods without their group still count.
        await it.delete(pod_group_path("default", "g"))
        await asyncio.sleep(5)
        await it.seen(Q, lambda queue: queue["status"]["allocated"] == held)
        for name in await it.pods():
            await it.end_pod(name)
        await it.seen(Q, lambda queue: queue["status"]["allocated"] == {"cpu": "0", "memory": "0"})
        # The status is written only if it has changed when it is checked, and not for each pod.
        assert tap.count(lambda request: request.method == "PATCH" and request.path == Q) < 10
