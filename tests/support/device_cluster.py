"""An embedded cluster with a device driver and its claim controller, and the objects of users and drivers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from agent_scheduler.binding import background
from embedded_kubernetes import controllers
from embedded_kubernetes.controllers import Controller
from embedded_kubernetes.device_driver import (
    ATTACH_FAILED,
    ATTACHED,
    DRIVER,
    Attaching,
    DeviceAttacher,
    DeviceDriver,
    DevicesShape,
)
from embedded_kubernetes.resource_claims import DELETE_PROTECTION
from embedded_kubernetes.resource_claims import ResourceClaims as ClaimController
from kube_client.transport import Transport
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling

RESOURCE = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"
TEMPLATES = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"


class Devices:
    """The actions of users on a cluster, together with its controllers."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    def request(self, number: int = 1, **exactly: Any) -> dict[str, Any]:
        exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": number, **exactly}
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    async def add_template(self, name: str = "t", number: int = 1) -> None:
        body = {"metadata": {"name": name}, "spec": {"spec": self.request(number)}}
        await self.cluster.ask("POST", TEMPLATES, body)

    async def add_claim(self, name: str, number: int = 1, **exactly: Any) -> Any:
        body = {"metadata": {"name": name}, "spec": self.request(number, **exactly)}
        return await self.cluster.ask("POST", CLAIMS, body)

    async def add_pod(self, name: str, *, template: str = "", claim: str = "", **more: Any) -> Any:
        entry = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
        return await self.cluster.add_pod(name, resourceClaims=[{"name": "gpu", **entry}], **more)

    @asynccontextmanager
    async def settling(self, transport: Transport | None = None, **settings: Any) -> AsyncIterator[Running]:
        """Run `scheduling`; at the end, verify that nothing is assumed and every bound pod has its claims."""
        async with scheduling(transport or self.cluster.transport, **settings) as running:
            yield running
            await self.audit()
            await until(lambda: nothing_assumed(running))
            assert running.reports.failures == [] and running.reports.counts["after flush"] == 0

    async def claims(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in (await self.cluster.ask("GET", CLAIMS))["items"]}

    async def reserved(self, claim: str) -> list[str]:
        status = (await self.claims())[claim].get("status") or {}
        return sorted(each["name"] for each in status.get("reservedFor") or ())

    async def unreserved(self, claim: str) -> bool:
        return not await self.reserved(claim)

    async def is_free(self, claim: str) -> bool:
        return "allocation" not in ((await self.claims())[claim].get("status") or {})

    async def set_status(self, claim: str, **status: Any) -> None:
        await self.cluster.merge(f"{CLAIMS}/{claim}/status", {"status": status})

    async def reserve(self, claim: str, *pods: Any) -> None:
        """Reserve a claim as a previous scheduler did."""
        users = [
            {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]} for each in pods
        ]
        await self.set_status(claim, reservedFor=users)

    async def allocate(self, claim: str, node: str) -> None:
        """Allocate a claim as a previous scheduler did; no-op if it has an allocation."""
        if not await self.is_free(claim):
            return
        results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": "gpu-0"}]
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        selector = {"nodeSelectorTerms": [{"matchFields": [here]}]}
        await self.cluster.merge(f"{CLAIMS}/{claim}", {"metadata": {"finalizers": [DELETE_PROTECTION]}})
        await self.set_status(claim, allocation={"devices": {"results": results}, "nodeSelector": selector})

    async def allocate_to_attach(self, claim: str, node: str, *, at: str) -> None:
        """Allocate a device that needs to be attached, with the given time."""
        await self.allocate(claim, node)
        conditions = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [ATTACH_FAILED]}
        api = self.cluster.api
        table = api.registry.stored(("resource.k8s.io", "resourceclaims"))
        record = table.table.get("default", claim)
        body = table.stored.decode(record.data)
        body["status"]["allocation"]["allocationTimestamp"] = at
        for result in body["status"]["allocation"]["devices"]["results"]:
            result.update(conditions)
        api.store.replace(("resource.k8s.io", "resourceclaims"), record, body)

    async def report(self, claim: str, kind: str, message: str = "m") -> None:
        """Report a condition with status True for all devices of the claim, as a driver does."""
        results = (await self.claims())[claim]["status"]["allocation"]["devices"]["results"]
        condition = {"type": kind, "status": "True", "reason": "R", "message": message}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        reports = [
            {**{name: each[name] for name in ("driver", "pool", "device")}, "conditions": [condition]}
            for each in results
        ]
        await self.set_status(claim, devices=reports)

    async def cordon(self, node: str, is_cordoned: bool | None = True) -> None:
        await self.cluster.merge(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": is_cordoned}})

    async def add_hard_claim(self) -> None:
        """Add a claim that is too hard to solve in time: six requests for four devices each, of sixteen kinds."""
        exactly = {"deviceClassName": DRIVER, "count": 4, "allocationMode": "ExactCount"}
        requests = [{"name": f"r{index}", "exactly": dict(exactly)} for index in range(6)]
        selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].index >= 0"}}
        requests[-1]["exactly"] = {**exactly, "selectors": [selector]}
        unlike = [{"distinctAttribute": f"{DRIVER}/{name}", "requests": ["r5"]} for name in ("model", "numa")]
        spec = {"devices": {"requests": requests, "constraints": unlike}}
        await self.cluster.ask("POST", CLAIMS, {"metadata": {"name": "hard"}, "spec": spec})

    async def devices_in_use(self) -> list[tuple[str, str]]:
        """Return (pool, device) of all allocations; fails if two include the same device."""
        used = Counter(
            (result["pool"], result["device"])
            for claim in (await self.claims()).values()
            if "allocation" in (claim.get("status") or {})
            for result in claim["status"]["allocation"]["devices"]["results"]
        )
        assert not used or max(used.values()) == 1, used
        return sorted(used)

    async def audit(self) -> None:
        """Verify that every bound pod has its claims allocated on its node, and reserved for it."""
        claims = await self.claims()
        for name, pod in (await self.cluster.pods()).items():
            if not pod["spec"].get("nodeName"):
                continue
            made = {
                each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses") or ()
            }
            for entry in pod["spec"].get("resourceClaims") or ():
                claim = claims[entry.get("resourceClaimName") or made[entry["name"]]]
                status = claim["status"]
                assert pod["metadata"]["uid"] in [each["uid"] for each in status["reservedFor"]], name
                assert DELETE_PROTECTION in claim["metadata"]["finalizers"]
                pools = {result["pool"] for result in status["allocation"]["devices"]["results"]}
                assert pools == {pod["spec"]["nodeName"]}, name
        await self.devices_in_use()


@asynccontextmanager
async def devices(
    *nodes: str, per_node: int = 2, controller: bool = True, attaching: Attaching | None = None
) -> AsyncIterator[Devices]:
    async with embedded_cluster() as cluster:
        api = cluster.api
        playing: list[Controller] = [DeviceDriver(api, DevicesShape(per_node, attaching=attaching))]
        if attaching is not None:
            playing.append(DeviceAttacher(api, DRIVER, attaching))
        if controller:
            playing.append(ClaimController(api))
        tasks = [asyncio.create_task(controllers.run(each, clock=api.registry.store.clock)) for each in playing]
        try:
            for node in nodes:
                await cluster.add_node(node)
            # A pod that is created before the driver has published the devices would be refused once and get a
            # condition.
            await until(lambda: _are_published(cluster, len(nodes)))
            yield Devices(cluster)
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _are_published(cluster: EmbeddedCluster, nodes: int) -> bool:
    classes, slices = [
        (await cluster.ask("GET", f"{RESOURCE}/{kind}"))["items"] for kind in ("deviceclasses", "resourceslices")
    ]
    return bool(classes) and len(slices) == nodes


def nothing_assumed(running: Any) -> bool:
    """Return whether the fast path has no assumed claims or pods."""
    books = running.fast_path.cluster.devices
    assert books.check() == []
    return not len(books.assumed) and not running.fast_path.ledger.assumed


def nothing_beside() -> bool:
    """Return whether no task of PreBind is running."""
    running = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
    return background._run.__code__ not in running
