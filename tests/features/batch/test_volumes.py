"""Installation whose members have volumes, in a whole process on an embedded cluster with its volume controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

import pytest

from embedded_kubernetes import controllers
from embedded_kubernetes.volume_binding import VolumeBinding
from tests.support.batched import add_group, install
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.installation import Installation, process

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
_COMMON: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
_SIZE = {"storage": "1Gi"}


class VolumeGangs(Installation):
    async def add_volume(self, name: str, node: str) -> None:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec = {
            **_COMMON,
            "capacity": _SIZE,
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
        await self.add(VOLUMES, {"metadata": {"name": name}, "spec": spec})

    async def volume_gang(self, name: str, members: int, **of_claim: Any) -> None:
        """Each member with a claim that is bound when its pod has a node."""
        await add_group(self, name, minMember=members, queue="q")
        for number in range(members):
            own = f"{name}-{number}"
            claim = {**_COMMON, "resources": {"requests": _SIZE}, **of_claim}
            await self.add(CLAIMS, {"metadata": {"name": own}, "spec": claim})
            spec = {
                "schedulerName": "volcano",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": own}}],
            }
            metadata = {"name": own, "annotations": {"scheduling.k8s.io/group-name": name}}
            await self.add(PODS, {"metadata": metadata, "spec": spec})

    async def used(self) -> list[str]:
        """Volumes that are somebody's."""
        volumes = await self.items(VOLUMES)
        return [each["metadata"]["name"] for each in volumes if each["spec"].get("claimRef")]


@asynccontextmanager
async def _volume_binding(cluster: EmbeddedCluster) -> AsyncIterator[None]:
    """What binds claims and makes volumes is at work."""
    binding = controllers.run(VolumeBinding(cluster.api), clock=cluster.api.registry.store.clock)
    playing = asyncio.create_task(binding)
    try:
        yield
    finally:
        playing.cancel()
        with suppress(asyncio.CancelledError):
            await playing


@asynccontextmanager
async def volume_gangs(*, provisioned: bool = True) -> AsyncIterator[VolumeGangs]:
    async with embedded_cluster() as cluster:
        await install(cluster)
        local = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        await cluster.add(CLASSES, {"metadata": {"name": "local"}, **local})
        async with _volume_binding(cluster) if provisioned else nullcontext(), process(cluster) as runtime:
            world = VolumeGangs(cluster, runtime)
            await world.queue("q")
            yield world


async def test_a_gang_with_too_few_volumes_holds_none_and_makes_no_session_due_by_what_is_tried_for_it() -> (
    None
):
    """Each session has volumes reserved for the members that fit, and gives them back."""
    async with volume_gangs() as world:
        await world.add_node("a", labels={"kubernetes.io/hostname": "a"})
        for number in range(2):
            await world.add_volume(f"pv-{number}", "a")
        await world.volume_gang("g", 3)
        await until(lambda: world.condition("g-2"))
        await world.rest()
        assert await world.is_left_alone()
        # One that something else makes due makes no other due, either.
        sessions = world.sessions
        world.batch.waiting.due.set()
        await until(lambda: world.sessions > sessions)
        assert await world.is_left_alone()
        assert await world.count_placed("g") == 0 and await world.used() == []
        await world.add_volume("pv-2", "a")
        await until(lambda: world.has_placed("g", 3))
        assert len(await world.used()) == 3


@pytest.mark.promise("L6")
async def test_a_process_ends_without_waiting_for_volumes_that_others_make() -> None:
    now = asyncio.get_running_loop().time
    async with volume_gangs(provisioned=False) as world:
        await world.add_node("a")
        remote = {"provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"}
        await world.add(CLASSES, {"metadata": {"name": "remote"}, **remote})
        await world.volume_gang("g", 2, storageClassName="remote")
        binder = world.runtime.fast_path.binder
        await until(lambda: binder.in_flight == 2)
        await world.rest()
        assert binder.in_flight == 2
        began = now()
    assert now() - began < 1.0
