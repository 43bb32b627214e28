"""Pods that are resized in place count as their kubelet counts them, and others are placed beside them."""

from __future__ import annotations

from typing import Any

from tests.support.embedded import PODS, STRATEGIC, until
from tests.support.installation import installed


async def test_a_resize_counts_as_much_as_its_kubelet_says() -> None:
    async with installed(kubelets=True) as world:

        async def resize(cpu: str) -> None:
            containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
            body = {"spec": {"containers": containers}}
            assert (await world.call("PATCH", f"{PODS}/a/resize", body, content_type=STRATEGIC)).status == 200

        async def runs(*names: str) -> bool:
            pods: dict[str, Any] = await world.pods()
            return all(pods[name]["status"]["phase"] == "Running" for name in names)

        async def says(*about: str) -> bool:
            status = (await world.get(f"{PODS}/a"))["status"]
            (report,) = status["containerStatuses"]
            reasons = [each.get("reason") for each in status["conditions"] if each["type"] == "PodResizePending"]
            return [*reasons, report["resources"]["requests"]["cpu"]] == list(about)

        await world.add_node("n", cpu="4")
        for name in "ab":
            await world.add_pod(name, cpu="1")
        await until(lambda: runs("a", "b"))
        # An impossible resize does not count; one that has to wait for room does.
        await resize("9")
        await until(lambda: says("Infeasible", "1"))
        await world.add_pod("c", cpu="2")
        await until(lambda: runs("c"))
        await resize("2")
        await world.add_pod("d", cpu="1")
        await until(lambda: world.says("d", "Unschedulable"))
        await until(lambda: says("Deferred", "1"))
        await world.delete(f"{PODS}/b")
        await until(lambda: says("2"))
        assert await world.says("d", "Unschedulable")
        await resize("1")
        await until(lambda: runs("a", "c", "d"))
