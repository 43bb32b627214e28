"""A simulated driver for dynamic resource allocation: publishes the devices of nodes as ResourceSlices.

Each node that has devices has a pool of its own, named after it, in as many slices as its devices need. Half of them
are of the model `large` with 80Gi, half `small` with 40Gi; they are spread over two NUMA nodes and their PCIe roots. A
DeviceClass of the driver's name selects them all, and lets pods ask for them as the extended resource
`agent-scheduler.io/gpu`.

A pool is published anew, under the next generation, when its node is replaced or when anybody changed or removed one of
its slices: the new slices come before the old ones go, as real drivers do it. Devices need no preparation but that they
may have to be attached to their node; that nobody uses another's is checked by the simulated kubelets.

Devices that have to be attached name the condition `agent-scheduler.io/Attached`, and the failure condition
`agent-scheduler.io/AttachFailed` (binding conditions, KEP-5007). The attachment of a device takes a given time from its
allocation on; then the driver writes one of the two to the claim's status. Nothing is remembered: what is left to do
follows from the claims, so a driver that starts later goes on.
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
    """How attachments go."""

    #: Seconds that one takes; None for ever.
    seconds: float | None
    #: Nodes where it fails. May change.
    failing: set[str] = field(default_factory=set)


class DeviceAttacher(Controller):
    """The devices of one driver on one server.

    Invariant: each allocated device that has to be attached has a report, or its claim waits in `_due`.
    """

    def __init__(self, api: Api, driver: str, attaching: Attaching) -> None:
        self._api = api
        self._driver = driver
        self._attaching = attaching
        self._claims = api.registry.stored(CLAIMS)
        #: Claims to look at, and when attachments are done: (time of the store's clock, claim, its UID).
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
        """Devices of the allocation that have to be attached, and of which nothing was said."""
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
#: Devices that one slice can have.
_MOST = 128


@dataclass(frozen=True, slots=True)
class DevicesShape:
    """How many devices a node has, and which nodes have any: all, or those named."""

    per_node: int
    nodes: frozenset[str] | None = None
    #: How they are attached to their node once they are allocated; None where they need not be.
    attaching: Attaching | None = None

    def count(self, node: str) -> int:
        return self.per_node if self.nodes is None or node in self.nodes else 0


def devices(count: int, *, attached: bool = False) -> list[dict[str, Any]]:
    """The devices of one node. `attached`: whether they have to be, once they are allocated."""
    made = []
    conditions = {
        "bindsToNode": True,
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [ATTACH_FAILED],
    }
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
    """The devices of one server's nodes.

    Invariant: once what was noted is worked off, the slices of each node that is there are complete, of one generation
    and as the shape says, and there are none of a node that is gone.
    """

    def __init__(self, api: Api, shape: DevicesShape) -> None:
        self._api = api
        self._shape = shape
        self._nodes = api.registry.stored(NODES).table
        self._slices = api.registry.stored(SLICES)
        self._driver = self._slices.table.field_names.index("spec.driver")
        self._node = self._slices.table.field_names.index("spec.nodeName")
        #: The latest generation of each node's pool, also of pools that are gone.
        self._generations: dict[str, int] = {}
        #: Nodes to look at, in order of arrival.
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
        # A node's labels and status, which change often, are nothing to its devices.
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
        """What the slices of a node's pool say."""
        offered = devices(count, attached=self._shape.attaching is not None)
        parts = [offered[start : start + _MOST] for start in range(0, count, _MOST)]
        pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
        return [{"driver": DRIVER, "nodeName": node, "pool": pool, "devices": part} for part in parts]


def _first_device(spec: Object) -> str:
    """The name of a slice's first device; empty for a slice without any, as somebody may have made of ours."""
    devices = spec.get("devices") or ()
    return str(devices[0]["name"]) if devices else ""
