"""Users' and volume plugins' actions on an embedded API server, and its volume controller, which can be paused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from embedded_kubernetes import controllers
from embedded_kubernetes.volume_binding import VolumeBinding
from kube_client.transport import Transport
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling
from tests.support.terms import HOSTNAME, term

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
STORAGE = "/apis/storage.k8s.io/v1"
#: The provisioner of classes whose volumes another component creates.
NOBODY = "kubernetes.io/no-provisioner"
_COMMON = {"accessModes": ["ReadWriteOnce"]}
_SIZE = {"storage": "1Gi"}


class Storage:
    """The actions on a cluster; the controller that it starts ends with `storage`."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self._controller: asyncio.Task[None] | None = None

    def play(self) -> None:
        api = self.cluster.api
        self._controller = asyncio.create_task(controllers.run(VolumeBinding(api), clock=api.registry.store.clock))

    async def hold(self) -> None:
        if self._controller is not None:
            self._controller.cancel()
            with suppress(asyncio.CancelledError):
                await self._controller
            self._controller = None

    async def add_class(self, name: str = "late", *, waits: bool = True, provisioner: str = "made.example.com") -> None:
        mode = "WaitForFirstConsumer" if waits else "Immediate"
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        await self.cluster.add(f"{STORAGE}/storageclasses", body)

    async def add_claim(self, name: str, class_name: str = "late", **spec: Any) -> Any:
        spec = {**_COMMON, "resources": {"requests": _SIZE}, "storageClassName": class_name, **spec}
        return await self.cluster.add(CLAIMS, {"metadata": {"name": name}, "spec": spec})

    async def add_volume(
        self, name: str, *, on: str = "", labels: Any = None, class_name: str = "late", **spec: Any
    ) -> None:
        source = {"driver": "made.example.com", "volumeHandle": name}
        spec = {**_COMMON, "capacity": _SIZE, "storageClassName": class_name, "csi": source, **spec}
        if on:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term(HOSTNAME, on)]}}
        await self.cluster.add(VOLUMES, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})

    async def add_pod(self, name: str, *claims: str, **spec: Any) -> None:
        await self.cluster.add_pod(name, volumes=using(*claims), **spec)

    async def pod_with_claim(self, *nodes: str, **its_class: Any) -> None:
        """Add a pod whose claim waits for its consumer, and nodes."""
        await self.add_class(**its_class)
        await self.add_claim("data")
        await self.add_nodes(*nodes)
        await self.add_pod("p", "data")

    async def add_nodes(self, *names: str, **labels: str) -> None:
        for name in names:
            await self.cluster.add_node(name, labels={HOSTNAME: name, **labels})

    @asynccontextmanager
    async def settling(self, transport: Transport | None = None, **settings: Any) -> AsyncIterator[Running]:
        """Run `scheduling`; at the end, verify that nothing is reserved."""
        async with scheduling(transport or self.cluster.transport, **settings) as running:
            yield running
            await until(lambda: nothing_reserved(running))
            assert running.reports.failures == [] and not running.reports.counts["after flush"]

    async def refused(self, name: str) -> str:
        """Return the message of the pod's condition, once there is one."""
        message: str = (await until(lambda: self.cluster.condition(name)))["message"]
        return message

    async def selected(self, claim: str = "data") -> str | None:
        """Return the node that was selected for a claim."""
        about = (await self.cluster.get(f"{CLAIMS}/{claim}"))["metadata"].get("annotations") or {}
        node: str | None = about.get("volume.kubernetes.io/selected-node")
        return node

    async def claimed(self) -> dict[str, str]:
        """Return the claim of each volume that has one, by the volume's name."""
        return {
            each["metadata"]["name"]: each["spec"]["claimRef"]["name"]
            for each in await self.cluster.items(VOLUMES)
            if each["spec"].get("claimRef")
        }


def using(*claims: str) -> list[dict[str, Any]]:
    """Return volumes of a pod, each named after its claim."""
    return [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]


@asynccontextmanager
async def storage(*, controller: bool = True) -> AsyncIterator[Storage]:
    async with embedded_cluster() as cluster:
        found = Storage(cluster)
        if controller:
            found.play()
        try:
            yield found
        finally:
            await found.hold()


def nothing_reserved(running: Running) -> bool:
    catalogue = running.fast_path.cluster.catalogue
    assert catalogue.check() == []
    return not len(catalogue.taken) and not len(catalogue.selected) and not running.fast_path.ledger.assumed
