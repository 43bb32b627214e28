"""What makes devices and claims in a world: the embedded cluster's controllers, and a driver of the world's own.

What this driver publishes it publishes anew now and then, as drivers do: all slices of the next generation come one by
one, and then the old ones go. In between the pool is not complete, and nobody may take anything of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from embedded_kubernetes import controllers
from embedded_kubernetes.device_driver import Attaching, DeviceDriver, DevicesShape
from embedded_kubernetes.pacing import CollectorTurns
from embedded_kubernetes.resource_claims import ResourceClaims

from .device_attaching import Attacher
from .device_load import CLASSES, GROUP, Devices, class_bodies, pools, slice_body
from .device_reading import Reading, is_made, owner_of

if TYPE_CHECKING:
    from .world import World

Json = dict[str, Any]


class DeviceCluster:
    """Made with its world."""

    def __init__(self, world: World, shape: Devices) -> None:
        self._world = world
        self._shape = shape
        self.reading = Reading(world.store)
        self._collector: CollectorTurns | None = None
        #: Pool of the world's own driver -> its last generation, and how many slices that has.
        self._published: dict[str, tuple[int, int]] = {}
        self._busy: set[str] = set()

    def start(self, clock: Callable[[], float]) -> list[asyncio.Task[None]]:
        """Before the first node is made."""
        world = self._world
        self._collector = CollectorTurns(world.api.collector, world.loop)
        # What these say of their devices is `Attacher`'s.
        attaching = Attaching(None) if self._shape.attached else None
        driver = DeviceDriver(world.api, DevicesShape(self._shape.per_node, attaching=attaching))
        if self._shape.attached:
            Attacher(world)
        for body in class_bodies():
            world.call("POST", CLASSES, body)
        for name, specs in pools().items():
            for index, spec in enumerate(specs):
                self._post(name, 1, index, len(specs), spec)
            self._published[name] = 1, len(specs)
        return [
            world.loop.create_task(controllers.run(each, clock=clock), name=type(each).__name__)
            for each in (ResourceClaims(world.api), driver)
        ]

    def stop(self) -> None:
        if self._collector is not None:
            self._collector.stop()

    def pool_names(self) -> list[str]:
        """Those that can be published anew now."""
        return [name for name in self._published if name not in self._busy]

    async def republish(self, name: str, specs: Sequence[Json], gaps: Sequence[float]) -> None:
        """Publish the pool as `specs` say, one slice after each of `gaps`; the last gap is before the old ones go."""
        self._busy.add(name)
        generation, count = self._published[name]
        self._published[name] = generation + 1, len(specs)
        for index, spec in enumerate(specs):
            await asyncio.sleep(gaps[index])
            self._post(name, generation + 1, index, len(specs), spec)
        await asyncio.sleep(gaps[-1])
        for index in range(count):
            self._world.call("DELETE", f"{GROUP}/resourceslices/{name}-{generation}-{index}")
        self._busy.discard(name)

    def copy(self, name: str, pod: Callable[..., Json]) -> None:
        """Make a pod that names a claim which was generated for another one from a template, if there is any."""
        made = sorted(
            each["metadata"]["name"]
            for each in self.reading.claims()
            if owner_of(each) and not is_made(each) and "deletionTimestamp" not in each["metadata"]
        )
        if not made:
            return
        entries = [{"name": "e0", "resourceClaimName": self._world.rng.choice(made)}]
        body = pod(name, cpu=10, lives=self._world.rng.choice((None, 3.0)), resourceClaims=entries)
        self._world.states.reached("pod names a claim of another")
        self._world.call("POST", "/api/v1/namespaces/default/pods", body)

    def _post(self, name: str, generation: int, index: int, count: int, spec: Json) -> None:
        body = slice_body(name, generation, index, count, spec)
        answer = self._world.call("POST", f"{GROUP}/resourceslices", body)
        assert answer.status == 201, answer.body
