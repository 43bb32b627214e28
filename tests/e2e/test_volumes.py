"""Pods with claims, over HTTP, with the volume controller and the provisioner of the embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.client import MERGE

from .plane import ControlPlane, Run

pytestmark = pytest.mark.usefixtures("scheduler")

HOST = "kubernetes.io/hostname"
CLASSES, VOLUMES = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"


class Storage:
    """Classes, volumes and claims of one test, by their short names."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.claims = f"/api/v1/namespaces/{plane.namespace}/persistentvolumeclaims"
        self._made: list[str] = []

    async def _make(self, collection: str, body: dict[str, Any]) -> None:
        await self.plane.ask("POST", collection, body)
        self._made.append(f"{collection}/{body['metadata']['name']}")

    async def add_class(self, name: str, *, waits: bool = True, provisioner: str = "e2e.example.com") -> None:
        body = {
            "metadata": {"name": self.plane.full(name)},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        }
        await self._make(CLASSES, body)

    async def add_volume(self, name: str, class_name: str, *, on: str) -> None:
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [self.plane.full(on)]}]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.plane.full(class_name),
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        await self._make(VOLUMES, {"metadata": {"name": self.plane.full(name)}, "spec": spec})

    async def add_claim(self, name: str, class_name: str) -> None:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": self.plane.full(class_name),
        }
        await self._make(self.claims, {"metadata": {"name": self.plane.full(name)}, "spec": spec})

    async def add_pod(self, name: str, claim: str, **spec: Any) -> None:
        source = {"claimName": self.plane.full(claim)}
        await self.plane.add_pod(name, volumes=[{"name": "v", "persistentVolumeClaim": source}], **spec)

    async def claim(self, name: str) -> Any:
        return await self.plane.ask("GET", f"{self.claims}/{self.plane.full(name)}")

    async def clean_up(self) -> None:
        for path in reversed(self._made):
            await self.plane.call("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
            await self.plane.ask("DELETE", path, also=(404,))


@pytest.fixture
async def storage(plane: ControlPlane, e2e_run: Run) -> AsyncIterator[Storage]:
    if not e2e_run.embedded:
        pytest.skip("it needs a volume controller, which a bare control plane has not")
    found = Storage(plane)
    try:
        yield found
    finally:
        await found.clean_up()


async def test_a_volume_is_made_where_its_pod_goes_and_the_pod_is_bound_after_it(
    plane: ControlPlane, storage: Storage
) -> None:
    await plane.add_node("n")
    await storage.add_class("late")
    await storage.add_claim("data", "late")
    await storage.add_pod("a", "data")
    assert await plane.bound("a") == {"a": "n"}
    claim = await storage.claim("data")
    assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == plane.full("n")
    assert claim["status"]["phase"] == "Bound"


async def test_of_two_pods_one_gets_the_only_volume_and_the_other_the_next(
    plane: ControlPlane, storage: Storage
) -> None:
    await plane.add_node("n")
    await storage.add_class("hand", provisioner="kubernetes.io/no-provisioner")
    for name in ("one", "two"):
        await storage.add_claim(name, "hand")
        await storage.add_pod(name, name)
    await plane.refused("one")
    await plane.refused("two")
    await storage.add_volume("v", "hand", on="n")
    await plane.pods.until(lambda: len(plane.placed()) == 1, "one pod on the node")
    await storage.add_volume("w", "hand", on="n")
    await plane.bound("one", "two")
    volumes = {(await storage.claim(name))["spec"]["volumeName"] for name in ("one", "two")}
    assert volumes == {plane.full("v"), plane.full("w")}
