"""Pods with resource claims, over HTTP: devices that a test publishes for nodes of its own, and the cluster's own claim
controller.

What is true of every state of the claims that was seen, and not only of the last, is checked after each test: no device
in two allocations. Nobody is rescued by the queue's flush: who is bound here, was woken.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.embedded import until
from tests.support.picture import Picture

from .conftest import Start
from .plane import ControlPlane, Run, container
from .processes import Scheduler

RESOURCE = "/apis/resource.k8s.io/v1"
PROTECTION = "resource.kubernetes.io/delete-protection"

#: Writes take their time, so that there are some under way whenever the test looks.
SLOWLY = {"clientConnection": {"qps": 60, "burst": 1}, "bindConcurrency": 8, "workerCount": 4}


class Devices:
    """Class, slices and templates of one test, with a driver of its own, and the claims that came of them."""

    def __init__(self, plane: ControlPlane, run: Run) -> None:
        self.plane = plane
        self.run = run
        self.driver = f"{plane.test}.e2e.example.com"
        self.class_name = plane.full("gpu")
        self.resource = f"{plane.test}.e2e.example.com/gpu"
        self._namespaced = f"{RESOURCE}/namespaces/{plane.namespace}"
        #: Whether devices can be asked for as an extended resource (a feature of the API server).
        self.stands_for_resources = False
        self.claims = Picture(plane.transport, f"{self._namespaced}/resourceclaims")

    async def begin(self) -> None:
        cel = {"cel": {"expression": f"device.driver == '{self.driver}'"}}
        spec = {"selectors": [cel], "extendedResourceName": self.resource}
        made = await self.plane.add_cluster_object(
            f"{RESOURCE}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": spec}
        )
        if made.status == 404:
            pytest.skip("the cluster has no resource.k8s.io/v1")
        self.stands_for_resources = "extendedResourceName" in json.loads(made.body)["spec"]
        exactly = {"deviceClassName": self.class_name, "allocationMode": "ExactCount", "count": 1}
        template = {
            "metadata": {"name": self.plane.full("one")},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
        }
        await self.plane.ask("POST", f"{self._namespaced}/resourceclaimtemplates", template)

    async def add_node(self, name: str, devices: int, **node: Any) -> None:
        """A node with a pool of its own."""
        await self.plane.add_node(name, **node)
        spec = {
            "driver": self.driver,
            "pool": {"name": self.plane.full(name), "generation": 1, "resourceSliceCount": 1},
            "nodeName": self.plane.full(name),
            "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
        }
        made = await self.plane.add_cluster_object(
            f"{RESOURCE}/resourceslices", {"metadata": {"name": name}, "spec": spec}
        )
        assert made.status == 201, made.body

    async def add_pods(self, *names: str, **pod: Any) -> None:
        """Pods with a device of their own each."""
        claims = [{"name": "gpu", "resourceClaimTemplateName": self.plane.full("one")}]
        await self.plane.add_pods(names, resourceClaims=claims, **pod)

    async def add_askers(self, *names: str) -> None:
        """Pods that ask for a device each as an extended resource."""
        if not self.stands_for_resources:
            pytest.skip("the cluster's device classes stand for no extended resources")
        await self.plane.add_pods(names, containers=[container(more={self.resource: "1"})])

    def claim_of(self, name: str) -> str:
        """The claim that was made for a pod: of its template, or for its extended resource."""
        status = (self.plane.pods.named(self.plane.full(name)) or {}).get("status") or {}
        if (extended := status.get("extendedResourceClaimStatus")) is not None:
            return str(extended["resourceClaimName"])
        made = status.get("resourceClaimStatuses") or ()
        return next((each["resourceClaimName"] for each in made if each["name"] == "gpu"), "")

    def used(self, claim: dict[str, Any]) -> list[tuple[str, str]]:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        return [(each["pool"], each["device"]) for each in results if each["driver"] == self.driver]

    def in_use(self) -> dict[tuple[str, str], str]:
        """Device -> UID of the claim that has it. Fails on a device that two have."""
        return _users({uid: self.used(claim) for uid, claim in self.claims.objects.items()})

    def assert_never_twice(self, *, deletions: bool) -> None:
        """In all that was seen. With `deletions`, of which the history does not tell, at the end alone."""
        self.in_use()
        seen: dict[str, list[tuple[str, str]]] = {}
        for claim in () if deletions else self.claims.history:
            seen[claim["metadata"]["uid"]] = self.used(claim)
            _users(seen)

    async def audit(self, *names: str) -> None:
        """These pods are bound, each with its claim allocated for its node and reserved for it."""
        placed = await self.plane.bound(*names)
        await self.claims.until(lambda: len(self.in_use()) >= len(names), f"{len(names)} devices in use")
        for name in names:
            pod = self.plane.pods.named(self.plane.full(name))
            claim = self.claims.named(self.claim_of(name))
            assert pod is not None and claim is not None, name
            assert pod["metadata"]["uid"] in [each["uid"] for each in claim["status"]["reservedFor"]], name
            assert PROTECTION in claim["metadata"]["finalizers"], name
            assert {pool for pool, _ in self.used(claim)} == {self.plane.full(placed[name])}, name

    async def clean_up(self) -> None:
        of = self.plane.full("one")
        await self.plane.ask("DELETE", f"{self._namespaced}/resourceclaimtemplates/{of}", also=(404,))


def _users(claims: dict[str, list[tuple[str, str]]]) -> dict[tuple[str, str], str]:
    users: dict[tuple[str, str], str] = {}
    for uid, used in claims.items():
        for device in used:
            assert device not in users, f"{device} is in claims {uid} and {users[device]}"
            users[device] = uid
    return users


@pytest.fixture
async def devices(plane: ControlPlane, e2e_run: Run) -> AsyncIterator[Devices]:
    found = Devices(plane, e2e_run)
    await found.begin()
    async with found.claims:
        try:
            if not e2e_run.embedded:
                await _needs_a_claim_controller(found)
            yield found
        finally:
            await found.clean_up()


async def _needs_a_claim_controller(devices: Devices) -> None:
    """A bare control plane has none; nobody makes claims of templates there."""
    await devices.add_pods("probe", scheduler_name="nobody")
    try:
        await until(lambda: devices.claim_of("probe"), seconds=5)
    except AssertionError:
        pytest.skip("the cluster has no claim controller")
    await devices.plane.delete_pod("probe")


@pytest.mark.promise("S17", "S18")
async def test_a_burst_with_a_template_gets_each_device_once(
    plane: ControlPlane, devices: Devices, scheduler: Scheduler
) -> None:
    for number in range(3):
        await devices.add_node(f"n{number}", 17, cpu="16")
    names = [f"p{number}" for number in range(50)]
    await devices.add_pods(*names)
    await devices.audit(*names)
    assert len(devices.in_use()) == 50
    devices.assert_never_twice(deletions=False)
    plane.assert_never_moved()


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["template", "extended resource"])
async def test_a_scheduler_that_is_killed_in_the_middle_of_a_burst_leaves_no_device_twice(
    plane: ControlPlane, devices: Devices, start: Start, kind: str
) -> None:
    for number in range(3):
        await devices.add_node(f"n{number}", 20, cpu="16")
    names = [f"p{number}" for number in range(60)]
    await (devices.add_pods if kind == "template" else devices.add_askers)(*names)
    first = start("first", config=SLOWLY)
    await plane.pods.until(lambda: len(plane.placed()) >= 10, "10 pods on nodes")
    assert await first.terminate(signal.SIGKILL) == -signal.SIGKILL
    assert len(plane.placed()) < 60
    start("second", config={"workerCount": 4})
    await devices.audit(*names)
    # There are as many devices as pods: what the first had written for a pod is used by that pod, or by another.
    assert len(devices.in_use()) == 60
    owners = [
        each["uid"]
        for claim in devices.claims.objects.values()
        for each in claim["metadata"]["ownerReferences"]
        if plane.short(each["name"]) in names
    ]
    assert len(owners) == len({*owners}) == 60
    devices.assert_never_twice(deletions=kind != "template")
    plane.assert_never_moved()
