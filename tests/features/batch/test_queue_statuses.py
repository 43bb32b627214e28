"""What the status of a queue says that its pods hold, beside the queue controller."""

from __future__ import annotations

from typing import Any

from agent_scheduler.objects.batch import pod_group_path, queue_path
from agent_scheduler.process.controller_flags import QUEUE
from tests.support import objects
from tests.support.batched import add_group, add_queue
from tests.support.client import until
from tests.support.embedded import NODES, PODS
from tests.support.tap import Tap
from tests.support.whole import Whole, whole

GPU = "example.com/gpu"
Q = f"{queue_path('q')}/status"


async def says(it: Whole, **held: str) -> None:
    async def so() -> bool:
        return bool((await it.get(Q))["status"].get("allocated") == {"memory": "0", **held})

    await until(so, seconds=60)


async def test_a_queue_says_what_its_pods_hold_whoever_placed_them_and_no_more_once_they_are_gone() -> None:
    tap = Tap()
    async with whole(QUEUE, kubelets=False, disturb=tap) as it:
        await it.add(NODES, objects.node("n", cpu="20", extended={GPU: "4"}))
        await add_queue(it, "q")
        await add_group(it, "g", minMember=2, queue="q")
        about: Any = {"annotations": objects.in_queue("q")}
        for number in range(2):
            asked = objects.container(requests={"cpu": "1", GPU: "1"}, limits={GPU: "1"})
            member = {"containers": [asked], "scheduler": "volcano", "group": "g", **about}
            await it.add(PODS, objects.pod(f"g-{number}", **member))
        await until(lambda: it.is_bound("g-0", "g-1"))
        for number in range(10):
            await it.add(PODS, objects.pod(f"agent-{number}", **about))
        held = {"cpu": "3", GPU: "2", "pods": "12"}
        await says(it, **held)
        # Also without a group, when somebody else has written it, and when its own pods have left one by one.
        await it.delete(pod_group_path("default", "g"))
        await it.patch(Q, {"status": {"allocated": {"cpu": "7", "example.com/other": "1"}}})
        await says(it, **held)
        # In all this it was written whenever it was looked at and another, and not for each pod.
        assert tap.count(lambda request: request.method == "PATCH" and request.path == Q) < 12
        for name in await it.pods():
            await it.end_pod(name)
        await says(it, cpu="0")
