"""Builders of device classes, slices and claims in JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.demand import demand
from agent_scheduler.engine.dra.records import (
    DeviceClassInfo,
    ResourceClaimInfo,
    SliceInfo,
    read_claim,
    read_device_class,
    read_slice,
)
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclaims import ClaimDemand, PodClaim
from tests.support.engine import node
from tests.support.terms import expression

DRIVER = "d.example.com"
N0, N1 = node("n0"), node("n1")


def attributes(**values: Any) -> dict[str, Any]:
    """Return attributes of integers, booleans and strings; a string of three numbers is a version."""
    kinds = {bool: "bool", int: "int", str: "string"}
    return {name: {kinds[type(value)]: value} for name, value in values.items()}


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def slice_json(name: str, *devices: dict[str, Any], version: int = 1, **spec: Any) -> dict[str, Any]:
    """Return a slice of pool `p` on n0, unless `spec` has other values."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1, **spec.pop("pool", {})}
    where = {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "n0"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"driver": DRIVER, "pool": pool, "devices": list(devices), **where, **spec},
    }


def slice_of(name: str, *devices: dict[str, Any], **spec: Any) -> SliceInfo:
    return read(slice_json(name, *devices, **spec))[0]


def class_of(name: str = "any", *expressions: str, version: int = 1, **spec: Any) -> DeviceClassInfo:
    body = {
        "metadata": {"name": name, "resourceVersion": str(version), **spec.pop("metadata", {})},
        "spec": {"selectors": [{"cel": {"expression": each}} for each in expressions], **spec},
    }
    return read_device_class(msgspec.json.encode(body))


def exactly(name: str = "r", class_name: str = "any", **more: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": class_name, **more}}


def claim_of(
    name: str,
    *requests: dict[str, Any],
    version: int = 1,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **devices: Any,
) -> ResourceClaimInfo:
    body = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            **(metadata or {}),
        },
        "spec": {"devices": {"requests": list(requests or (exactly(),)), **devices}},
        "status": status or {},
    }
    return read_claim(msgspec.json.encode(body))


def allocated_to(*names: str, pool: str = "p", node_name: str = "n0", **result: Any) -> dict[str, Any]:
    """Return a status with an allocation of these devices."""
    return {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r", "driver": DRIVER, "pool": pool, "device": name, **result} for name in names
                ]
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [expression("metadata.name", node_name)]}]},
        }
    }


def key(name: str) -> tuple[str, str]:
    return "default", name


def wanted(devices: Devices, *names: str) -> ClaimDemand:
    """Return the demand of a pod with these claims, each under its own name."""
    return demand([PodClaim(name, key(name)) for name in names], devices)


def books(*records: ResourceClaimInfo | DeviceClassInfo | SliceInfo) -> Devices:
    devices = Devices()
    devices.set_class(class_of())
    for each in records:
        if isinstance(each, ResourceClaimInfo):
            devices.set_claim(each)
        elif isinstance(each, SliceInfo):
            devices.pools.set_slice(each)
        else:
            devices.set_class(each)
    return devices


def nodes() -> tuple[NodeInfo, NodeInfo]:
    return N0, N1


def draws(size: int | str) -> dict[str, Any]:
    """Return a device's consumption of the only counter."""
    return {"consumesCounters": [{"counterSet": "set", "counters": {"k": {"value": str(size)}}}]}


def counter(size: int | str) -> dict[str, Any]:
    """Return a slice's definition of that counter."""
    return {"sharedCounters": [{"name": "set", "counters": {"k": {"value": str(size)}}}]}


#: The parts of a device: how much each consumes of the counter, and their number.
PARTS = {"full": (6, 1), "half": (3, 2), "third": (2, 3)}


def divided(
    node_name: str, number: int, parts: Mapping[str, tuple[int, int]] = PARTS, whole: int = 6
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return slices with `number` partitionable devices on a node. No two have the same attributes."""
    found = [
        device(
            f"{index}-{part}-{each}",
            attributes=attributes(part=part, uid=f"{index}"),
            consumesCounters=[{"counterSet": f"{index}", "counters": {"k": {"value": str(size)}}}],
        )
        for index in range(number)
        for part, (size, places) in parts.items()
        for each in range(places)
    ]
    sets = [{"name": f"{index}", "counters": {"k": {"value": str(whole)}}} for index in range(number)]
    where: Any = {"nodeName": node_name, "pool": {"name": node_name, "resourceSliceCount": 2}}
    counters = slice_json(f"{node_name}-counters", **where, sharedCounters=sets)
    del counters["spec"]["devices"]
    return slice_json(node_name, *found, **where), counters


def part_of(part: str, **more: Any) -> dict[str, Any]:
    """Return a request for one partition of this kind."""
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].part == '{part}'"}}
    return {"deviceClassName": "any", "selectors": [selector], **more}


def first_of(*parts: str, name: str = "r") -> dict[str, Any]:
    """Return a request for the first available of these partitions."""
    return {"name": name, "firstAvailable": [{"name": part, **part_of(part)} for part in parts]}


def read(*slices: dict[str, Any]) -> list[SliceInfo]:
    return [read_slice(msgspec.json.encode(each)) for each in slices]
