"""The drivers, controllers and clients of a world's devices.

`Attacher` makes devices ready after their allocation (binding conditions, KEP-5007): it handles each allocation of a
device that must be attached once. The driver reports after a while that it is attached, and during faults also that
this failed, or nothing.

`DeviceCluster` runs the embedded cluster's controllers and simulated driver, and a driver of the world's own. That one
publishes its pools again from time to time, as drivers do: it creates all slices of the next generation one by one, and
then deletes the old ones. In between the pool is incomplete, and no device of it may be allocated.

`DeviceNemesis` changes claims, classes and pools while pods get devices. Its requests never fail.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Sequence

import orjson

from embedded_kubernetes.device_driver import ATTACH_FAILED, ATTACHED, DRIVER, Attaching, DeviceDriver, DevicesShape
from embedded_kubernetes.pacing import CollectorTurns
from embedded_kubernetes.requests import Request
from embedded_kubernetes.resource_claims import DELETE_PROTECTION, ResourceClaims
from embedded_kubernetes.store import Event
from tests.decisions.devices.validity import device_of, results_of

from . import device_load as load
from .api import PODS, PODS_PATH, Json, content, name_of, node_of, pod, some_of, uid_of
from .device_load import ATTACHED_WITHIN, CLAIMS_PATH, CLASSES_PATH, GROUP, TIMEOUT, Devices, pools
from .device_reading import CLAIMS, Reading, allocation_of, awaited, is_made, owner_of, reserved_for, ways
from .faults import FaultMaker
from .kinds import Process, World


class Attacher:
    """The part of the drivers that attaches devices; subscribes to the claims of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} attaching")
        world.store.tables[CLAIMS].subscribers.append(self._changed)

    def _changed(self, event: Event) -> None:
        if event.type == "DELETED":
            return
        now = content(event.record)
        # A driver that starts over after a restore handles all existing claims.
        first = event.previous is None or self._world.backups.restoring
        before = None if first or event.previous is None else allocation_of(content(event.previous))
        allocation = allocation_of(now)
        if not allocation or before == allocation:
            return
        for result in awaited(allocation):
            self._begin(event.record.uid, name_of(now), allocation, result)

    def _begin(self, uid: str, name: str, allocation: Json, result: Json) -> None:
        world = self._world
        fails = False
        if world.plan.strikes("not_attached", now=world.loop.time(), share=4.0):
            world.plan.lasts(world.loop.time() + 3 * TIMEOUT)
            fails = self._rng.random() < 0.5
            if not fails:
                return
        seconds = self._rng.choice((0.001, self._rng.uniform(0, ATTACHED_WITHIN)))
        world.loop.call_later(seconds, self._say, uid, name, allocation, result, fails, context=world.context)

    def _say(self, uid: str, name: str, allocation: Json, result: Json, fails: bool) -> None:
        world = self._world
        record = world.store.tables[CLAIMS].get("default", name)
        if record is None or record.uid != uid:
            return
        claim = content(record)
        said = [device_of(each) for each in claim["status"].get("devices") or ()]
        # The claim may have been deallocated and allocated again in the same second.
        if allocation_of(claim) != allocation or device_of(result) in said:
            return
        said = {"type": ATTACH_FAILED if fails else ATTACHED, "status": "True"}
        condition = {**said, "reason": "Simulated", "message": "", "lastTransitionTime": world.timestamp()}
        named = some_of(result, "driver", "pool", "device", "shareID")
        told = [*(claim["status"].get("devices") or ()), {**named, "conditions": [condition]}]
        answer = world.call("PATCH", f"{CLAIMS_PATH}/{name}/status", {"status": {"devices": told}})
        assert answer.status == 200, answer.body
        world.states.reached("device could not be attached" if fails else "device attached late")


class DeviceCluster:
    """The devices of a world: controllers, drivers and pools. Created with the world."""

    def __init__(self, world: World, shape: Devices) -> None:
        self._world = world
        self._shape = shape
        self.reading = Reading(world.store)
        self._collector: CollectorTurns | None = None
        #: Pool of the world's own driver -> its last generation and the number of its slices.
        self._published: dict[str, tuple[int, int]] = {}
        self._busy: set[str] = set()

    def start(self) -> list[asyncio.Task[None]]:
        """Start the controllers and drivers, before the first node is created; return their tasks."""
        world = self._world
        self._collector = CollectorTurns(world.api.collector, world.loop)
        # `Attacher` writes the conditions of these devices.
        attaching = Attaching(None) if self._shape.attached else None
        driver = DeviceDriver(world.api, DevicesShape(self._shape.per_node, attaching=attaching))
        if self._shape.attached:
            Attacher(world)
        for body in load.class_bodies():
            world.call("POST", CLASSES_PATH, body)
        for name, specs in pools().items():
            for index, spec in enumerate(specs):
                self._post(name, 1, index, len(specs), spec)
            self._published[name] = 1, len(specs)
        return [world.control(each, type(each).__name__) for each in (ResourceClaims(world.api), driver)]

    def stop(self) -> None:
        if self._collector is not None:
            self._collector.stop()

    def pool_names(self) -> list[str]:
        """Return the pools that can be published again now."""
        return [name for name in self._published if name not in self._busy]

    async def republish(self, name: str, specs: Sequence[Json], gaps: Sequence[float]) -> None:
        """Publish `specs`, one slice after each of `gaps`; the last gap precedes the deletion of the old ones."""
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

    def copy(self, name: str) -> None:
        """Create a pod that names a claim which was generated from a template for another pod, if there is one."""
        claims = [each for each in self.reading.claims() if owner_of(each) and not is_made(each)]
        made = sorted(name_of(each) for each in claims if "deletionTimestamp" not in each["metadata"])
        if not made:
            return
        entries = [{"name": "e0", "resourceClaimName": self._world.rng.choice(made)}]
        body = pod(name, cpu=10, lives=self._world.rng.choice((None, 3.0)), resourceClaims=entries)
        self._world.states.reached("pod names a claim of another")
        self._world.call("POST", PODS_PATH, body)

    def _post(self, name: str, generation: int, index: int, count: int, spec: Json) -> None:
        body = load.slice_body(name, generation, index, count, spec)
        answer = self._world.call("POST", f"{GROUP}/resourceslices", body)
        assert answer.status == 201, answer.body


_TAINT = {"key": "example.com/worn", "effect": "NoSchedule"}


class DeviceNemesis(FaultMaker):
    """Other schedulers, users and drivers."""

    shares = {"claim_changed": 2.0, "pool_changed": 2.0, "class_changed": 2.0}  # noqa: RUF012

    def __init__(self, world: World, devices: DeviceCluster) -> None:
        super().__init__(world, "device nemesis")
        self._devices = devices
        self._rivals = 0
        #: Class -> its unchanged content.
        self._classes: dict[str, Json] = {}

    def after_claim_write(self, process: Process) -> None:
        """Handle a written claim whose response has not arrived yet: kill the process or not."""
        if self._strikes("crash", 0.6):
            self._reached("crash between claims and bind")
            wait = self._rng.choice((0.0, self._rng.uniform(0, 0.01)))
            self._world.loop.call_later(wait, process.kill, "killed between claims and bind")

    # -- conflicting writes

    def claim_taken(self, asked: Request) -> None:
        """Write the claim a moment before the process does."""
        name = asked.path.removesuffix("/status").rpartition("/")[2]
        claim = self._devices.reading.claim(name)
        if claim is None:
            return
        kind = self._rng.choice(("label", "allocate", "allocate", "reserve"))
        if kind == "label" or "deletionTimestamp" in claim["metadata"]:
            self._label(name)
        elif allocation_of(claim) is None:
            self._allocate(claim, reserve=kind == "reserve")
        else:
            self._reserve(claim)

    def _label(self, name: str) -> None:
        labels = {"example.com/change": str(self._rng.randrange(1000))}
        self._call("PATCH", f"{CLAIMS_PATH}/{name}", {"metadata": {"labels": labels}})

    def _allocate(self, claim: Json, *, reserve: bool) -> None:
        """Allocate the claim as another scheduler does, for one of its own pods or without a reservation."""
        cluster = self._devices.reading.cluster()
        names = [name_of(each) for each in cluster.nodes]
        node = self._rng.choice(names) if names else ""
        found = next(ways(cluster, node, [claim]), None) if node else None
        if found is None:
            return
        allocation = copy.deepcopy(found[0])
        for result in results_of(allocation):
            if "shareID" in result:
                result["shareID"] = self._world.store.uid()
        path = f"{CLAIMS_PATH}/{name_of(claim)}"
        finalizers = sorted({*claim["metadata"].get("finalizers", ()), DELETE_PROTECTION})
        self._call("PATCH", path, {"metadata": {"finalizers": finalizers}})
        status: Json = {"allocation": allocation}
        if reserve:
            status["reservedFor"] = [self._rival(claim, node)]
        self._call("PATCH", f"{path}/status", {"status": status})
        self._reached("claim allocated by another")

    def _reserve(self, claim: Json) -> None:
        status = claim["status"]
        terms = (status["allocation"].get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
        fields = [field for term in terms for field in term.get("matchFields") or ()]
        node = fields[0]["values"][0] if fields else ""
        reserved = [*(status.get("reservedFor") or ()), self._rival(claim, node)]
        path = f"{CLAIMS_PATH}/{name_of(claim)}/status"
        self._call("PATCH", path, {"status": {"reservedFor": reserved}})

    def _rival(self, claim: Json, node: str) -> Json:
        """Create another scheduler's pod that uses the claim, and return its entry for `reservedFor`."""
        self._rivals += 1
        name = f"rival-{self._rivals}"
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
        entries = [{"name": "e", "resourceClaimName": name_of(claim)}]
        annotations = {"agent-scheduler.io/run-seconds": str(self._rng.choice((0.5, 3.0, 8.0)))}
        spec = {"schedulerName": "other", "containers": [container], "resourceClaims": entries}
        metadata = {"name": name, "annotations": annotations}
        answer = self._call("POST", PODS_PATH, {"metadata": metadata, "spec": spec})
        # It is bound once its claim is written, which happens after this.
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self._call_later(0.001, "POST", f"{PODS_PATH}/{name}/binding", binding)
        self._call_later(20.0, "DELETE", f"{PODS_PATH}/{name}", {"gracePeriodSeconds": 0})
        return {"resource": "pods", "name": name, "uid": uid_of(orjson.loads(answer.body))}

    # -- changes of the cluster

    def claim_changed(self) -> None:
        claims = self._devices.reading.claims()
        if not claims:
            return
        claim = self._rng.choice(claims)
        name = name_of(claim)
        kind = self._rng.choice(("label", "delete", "deallocate", "deallocate", "unreserve"))
        if kind == "delete":
            self._call("DELETE", f"{CLAIMS_PATH}/{name}")
            if not claim["metadata"].get("ownerReferences"):
                anew = {"metadata": {"name": name}, "spec": claim["spec"]}
                self._call_later(self._rng.choice((0.0, 0.5, 4.0)), "POST", CLAIMS_PATH, anew)
        elif kind == "label" or allocation_of(claim) is None or self._runs(claim):
            self._label(name)
        else:
            nothing = {"reservedFor": None, **({"allocation": None} if kind == "deallocate" else {})}
            self._call("PATCH", f"{CLAIMS_PATH}/{name}/status", {"status": nothing})

    def _runs(self, claim: Json) -> bool:
        """Return whether a pod with a node uses the claim: a device is never taken from such a pod."""
        users = reserved_for(claim)
        return any(uid_of(pod) in users and node_of(pod) for pod in self._objects(PODS))

    def pool_changed(self) -> None:
        """Publish a pool again: unchanged, or with fewer devices for a while."""
        names = self._devices.pool_names()
        if self._rng.random() < 0.3 or not names:
            self._driver_again()
            return
        name = self._rng.choice(names)
        whole = pools()[name]
        less = copy.deepcopy(whole)
        if self._rng.random() < 0.5:
            index, device = self._unused(name, less)
            if device is not None:
                # A removed device no longer counts in its counters, and another one may be about to be allocated.
                if "consumesCounters" in device or self._rng.random() < 0.5:
                    device["taints"] = [_TAINT]
                else:
                    less[index]["devices"].remove(device)
        gaps = [self._rng.choice((0.0, 0.01, self._rng.uniform(0, 3.0))) for _ in range(2 * len(whole) + 2)]
        self._later(sum(gaps) + 0.1, lambda: None)

        async def publish() -> None:
            await self._devices.republish(name, less, gaps[: len(whole) + 1])
            if less != whole:
                await self._devices.republish(name, whole, gaps[len(whole) + 1 :])

        self._world.keep(publish(), f"{name} is published")

    def _unused(self, pool: str, specs: list[Json]) -> tuple[int, Json | None]:
        """Return a device that no claim has, with the index of its slice."""
        used = set(map(device_of, self._devices.reading.cluster().had()))
        there = [(index, each) for index, spec in enumerate(specs) for each in spec.get("devices") or ()]
        found = [each for each in there if (load.FABRIC, pool, each[1]["name"]) not in used]
        return self._rng.choice(found) if found else (0, None)

    def _driver_again(self) -> None:
        """Change or delete a slice of the simulated driver, which then publishes the pool again."""
        there = self._devices.reading.cluster().slices
        slices = [name_of(each) for each in there if each["spec"]["driver"] == DRIVER]
        if not slices:
            return
        path = f"{GROUP}/resourceslices/{self._rng.choice(slices)}"
        if self._rng.random() < 0.5:
            self._call("DELETE", path)
        else:
            self._call("PATCH", path, {"spec": {"devices": []}})

    def class_changed(self) -> None:
        classes = list(self._devices.reading.cluster().classes)
        for each in classes:
            self._classes.setdefault(name_of(each), each["spec"])
        name = self._rng.choice(sorted(self._classes))
        spec = self._classes[name]
        wait = self._rng.choice((0.0, 0.02, 1.0, 5.0))
        if self._rng.random() < 0.5:
            self._call("DELETE", f"{CLASSES_PATH}/{name}")
            self._call_later(wait, "POST", CLASSES_PATH, {"metadata": {"name": name}, "spec": spec})
        else:
            nothing = [{"cel": {"expression": "device.driver == 'nothing'"}}]
            self._call("PATCH", f"{CLASSES_PATH}/{name}", {"spec": {"selectors": nothing}})
            whole = {"spec": {"selectors": spec["selectors"]}}
            self._call_later(wait, "PATCH", f"{CLASSES_PATH}/{name}", whole)
