"""A simulated DRA driver, which publishes devices of nodes as ResourceSlices.

Each node with devices has its own pool, named after the node, in as many slices as the devices need. Half of the
devices are of model `large` with 80Gi, half of model `small` with 40Gi; they are spread over two NUMA nodes and their
PCIe roots. A DeviceClass with the driver's name selects all of them, and maps the extended resource
`agent-scheduler.io/gpu`.

A pool is published again under the next generation when its node is replaced or one of its slices is changed or
deleted. As real drivers do, it creates the new slices before it deletes the old ones. Devices need no preparation
except attachment. The simulated kubelets check that devices are not used twice.

Devices that have to be attached have the binding condition `agent-scheduler.io/Attached` and the failure condition
`agent-scheduler.io/AttachFailed` (KEP-5007). An attachment takes a given time from the allocation; then the driver
writes one of the two to the claim's status. It keeps no other state, so a restarted driver continues from the claims.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

from .controllers import Controller, WorkQueue
from .deletion import delete_record
from .handlers import Api
from .pod_claims import CLAIMS
from .resource import Object
from .store import Event, Record
from .subresources import NODES

ATTACHED: Final = "agent-scheduler.io/Attached"
ATTACH_FAILED: Final = "agent-scheduler.io/AttachFailed"

_CONDITION = f'"{ATTACHED}"'.encode()


@dataclass(slots=True)
class Attaching:
    """The behavior of attachments."""

    #: Duration in seconds; None if they never complete.
    seconds: float | None
    #: Nodes where attachments fail. May be changed at any time.
    failing: set[str] = field(default_factory=set)


class DeviceAttacher(Controller):
    """Attaches the devices of one driver on one server.

    Invariant: each allocated device that has to be attached has a status, or its claim is in `_noted` or `_due`.
    """

    def __init__(self, api: Api, driver: str, attaching: Attaching) -> None:
        self._api = api
        self._driver = driver
        self._attaching = attaching
        self._claims = api.registry.stored(CLAIMS)
        #: Claims to process, and attachments in progress: (end by the store's clock, claim, its UID).
        self._noted = WorkQueue[str]()
        self._due: list[tuple[float, str, str]] = []
        for record in self._claims.table.scan(""):
            self._note(record.key, record.data)
        self._claims.table.subscribers.append(self._changed)

    def _changed(self, event: Event) -> None:
        if event.type != "DELETED":
            self._note(event.record.key, event.record.data)

    def _note(self, key: str, data: bytes) -> None:
        if _CONDITION in data:
            self._noted.add(key)
            self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        now = self._api.store.clock()
        self._noted.work(most, self._see)
        while self._due and self._due[0][0] <= now:
            _, key, uid = heappop(self._due)
            self._report(key, uid)
        if self._noted:
            return now
        return self._due[0][0] if self._due else None

    def _see(self, key: str) -> None:
        record = self._claims.table.records.get(key)
        seconds = self._attaching.seconds
        if record is None or seconds is None or not self._unreported(self._claims.stored.decode(record.data)):
            return
        if not any((key, record.uid) == each[1:] for each in self._due):
            heappush(self._due, (self._api.store.clock() + seconds, key, record.uid))

    def _unreported(self, claim: Object) -> list[Any]:
        """Return the allocated devices that have to be attached and have no status."""
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        said = {(each["driver"], each["pool"], each["device"]) for each in status.get("devices") or ()}
        return [
            each
            for each in results
            if each["driver"] == self._driver
            and ATTACHED in (each.get("bindingConditions") or ())
            and (each["driver"], each["pool"], each["device"]) not in said
        ]

    def _report(self, key: str, uid: str) -> None:
        record = self._claims.table.records.get(key)
        if record is None or record.uid != uid:
            return
        claim = self._claims.stored.decode(record.data)
        fresh = [self._said_of(each) for each in self._unreported(claim)]
        if not fresh:
            return
        claim["status"]["devices"] = [*(claim["status"].get("devices") or ()), *fresh]
        self._api.store.replace(CLAIMS, record, claim)

    def _said_of(self, result: Any) -> Object:
        fails = result["pool"] in self._attaching.failing
        condition = {
            "type": ATTACH_FAILED if fails else ATTACHED,
            "status": "True",
            "reason": "Simulated",
            "message": "the device could not be attached" if fails else "",
            "lastTransitionTime": self._api.registry.now(),
        }
        named = {name: result[name] for name in ("driver", "pool", "device", "shareID") if name in result}
        return {**named, "conditions": [condition]}


SLICES = ("resource.k8s.io", "resourceslices")
CLASSES = ("resource.k8s.io", "deviceclasses")
DRIVER = "gpu.agent-scheduler.io"
EXTENDED_RESOURCE = "agent-scheduler.io/gpu"
#: The limit of devices in one slice.
_MOST = 128


@dataclass(frozen=True, slots=True)
class DevicesShape:
    """The number of devices per node, and the nodes that have them; None for all."""

    per_node: int
    nodes: frozenset[str] | None = None
    #: How allocated devices are attached; None if they need not be.
    attaching: Attaching | None = None

    def count(self, node: str) -> int:
        return self.per_node if self.nodes is None or node in self.nodes else 0


def devices(count: int, *, attached: bool = False) -> list[dict[str, Any]]:
    """Return the devices of one node. With `attached`, they have to be attached after allocation."""
    made = []
    conditions = {"bindsToNode": True, "bindingConditions": [ATTACHED], "bindingFailureConditions": [ATTACH_FAILED]}
    for index in range(count):
        numa = 2 * index // count
        model, memory = ("large", "80Gi") if index % 2 == 0 else ("small", "40Gi")
        made.append(
            {
                "name": f"gpu-{index}",
                "attributes": {
                    "index": {"int": index},
                    "model": {"string": model},
                    "numa": {"int": numa},
                    "driverVersion": {"version": "1.0.0"},
                    "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{numa:02x}"},
                },
                "capacity": {"memory": {"value": memory}},
                **(conditions if attached else {}),
            }
        )
    return made


class DeviceDriver(Controller):
    """Publishes the devices of one server's nodes.

    Invariant: when `_noted` is empty, the slices of each existing node are complete, of one generation and match the
    shape; a deleted node has none.
    """

    def __init__(self, api: Api, shape: DevicesShape) -> None:
        self._api = api
        self._shape = shape
        self._nodes = api.registry.stored(NODES).table
        self._slices = api.registry.stored(SLICES)
        self._driver = self._slices.table.field_names.index("spec.driver")
        self._node = self._slices.table.field_names.index("spec.nodeName")
        #: The latest generation of each node's pool, including deleted pools.
        self._generations: dict[str, int] = {}
        #: Nodes to process, in order of arrival.
        self._noted = WorkQueue[str]()
        self._noted.extend(record.name for record in self._nodes.scan(""))
        self._noted.extend(r.fields[self._node] for r in self._slices.table.scan("") if self._is_ours(r))
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        spec = {"selectors": [selector], "extendedResourceName": EXTENDED_RESOURCE}
        api.create(CLASSES, {"metadata": {"name": DRIVER}, "spec": spec})
        self._nodes.subscribers.append(self._node_changed)
        self._slices.table.subscribers.append(self._slice_changed)

    def _is_ours(self, slice_: Record) -> bool:
        return slice_.fields[self._driver] == DRIVER and bool(slice_.fields[self._node])

    def _node_changed(self, event: Event) -> None:
        # Devices do not depend on a node's labels and status, which change often.
        if event.type != "MODIFIED":
            self._noted.add(event.record.name)
            self.wake()

    def _slice_changed(self, event: Event) -> None:
        if self._is_ours(event.record):
            self._noted.add(event.record.fields[self._node])
            self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        self._noted.work(most, self._see)
        return -inf if self._noted else None

    def _see(self, name: str) -> None:
        node = self._nodes.records.get(name)
        count = self._shape.count(name) if node is not None else 0
        found = [each for each in self._slices.table.having(self._node, name) or () if self._is_ours(each)]
        specs = [(each, self._slices.stored.decode(each.data)["spec"]) for each in found]
        latest = max((spec["pool"]["generation"] for _, spec in specs), default=0)
        self._generations[name] = latest = max(latest, self._generations.get(name, 0))
        wanted = self._slices_of(name, count, latest)
        if node is not None and all(node.uid in each.owners for each in found):
            there = sorted((spec for _, spec in specs), key=_first_device)
            if there == sorted(wanted, key=_first_device):
                return
        if node is not None and wanted:
            self._generations[name] = latest + 1
            for spec in self._slices_of(name, count, latest + 1):
                self._publish(node, spec)
        for record in found:
            delete_record(self._api.registry, self._slices, record, {})

    def _publish(self, node: Record, spec: Object) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
        metadata = {"generateName": f"{node.name}-{DRIVER}-", "ownerReferences": [owner]}
        self._api.create(SLICES, {"metadata": metadata, "spec": spec})

    def _slices_of(self, node: str, count: int, generation: int) -> list[Object]:
        """Return the specs of a node's slices."""
        offered = devices(count, attached=self._shape.attaching is not None)
        parts = [offered[start : start + _MOST] for start in range(0, count, _MOST)]
        pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
        return [{"driver": DRIVER, "nodeName": node, "pool": pool, "devices": part} for part in parts]


def _first_device(spec: Object) -> str:
    """Return the name of a slice's first device; empty for a slice without devices, which a user may have written."""
    devices = spec.get("devices") or ()
    return str(devices[0]["name"]) if devices else ""
