"""Pods that are resized in place: the scheduler counts them as their kubelet does, and places others beside them."""

from __future__ import annotations

from typing import Any

from tests.support.embedded import PODS, STRATEGIC, until
from tests.support.installation import Installation, installed


async def resize(world: Installation, name: str, cpu: str) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    body = {"spec": {"containers": containers}}
    answer = await world.call("PATCH", f"{PODS}/{name}/resize", body, content_type=STRATEGIC)
    assert answer.status == 200, answer.body


async def test_a_resize_counts_as_much_as_its_kubelet_says() -> None:
    async with installed(kubelets=True) as world:

        async def runs(*names: str) -> bool:
            pods: dict[str, Any] = await world.pods()
            return all(pods[name]["status"]["phase"] == "Running" for name in names)

        async def waits(reason: str) -> bool:
            conditions = (await world.get(f"{PODS}/a"))["status"]["conditions"]
            return ("PodResizePending", reason) in [(each["type"], each.get("reason")) for each in conditions]

        await world.add_node("n", cpu="4")
        for name in "ab":
            await world.add_pod(name, cpu="1")
        await until(lambda: runs("a", "b"))
        # What can never be is not counted; what has to wait for room is.
        await resize(world, "a", "9")
        await until(lambda: waits("Infeasible"))
        await world.add_pod("c", cpu="2")
        await until(lambda: runs("c"))
        await resize(world, "a", "2")
        await world.add_pod("d", cpu="1")
        await until(lambda: world.says("d", "Unschedulable"))
        await until(lambda: waits("Deferred"))
        await world.delete(f"{PODS}/b")

        async def is_resized() -> bool:
            (report,) = (await world.get(f"{PODS}/a"))["status"]["containerStatuses"]
            return bool(report["resources"]["requests"]["cpu"] == "2")

        await until(is_resized)
        assert await world.says("d", "Unschedulable")
        await resize(world, "a", "1")
        await until(lambda: runs("a", "c", "d"))
