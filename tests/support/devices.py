"""Classes, slices and claims for tests, as JSON has them, in as few words as a test needs."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.demand import demand
from agent_scheduler.engine.dra.records import (
    ClaimInfo,
    DeviceClassInfo,
    SliceInfo,
    read_claim,
    read_device_class,
    read_slice,
)
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclaims import Demand, PodClaim
from tests.support.engine import node
from tests.support.terms import expression

DRIVER = "d.example.com"
N0, N1 = node("n0"), node("n1")


def attributes(**values: Any) -> dict[str, Any]:
    """Whole numbers, truths and texts; a text of three numbers is a version."""
    kinds = {bool: "bool", int: "int", str: "string"}
    return {name: {kinds[type(value)]: value} for name, value in values.items()}


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def slice_json(name: str, *devices: dict[str, Any], version: int = 1, **spec: Any) -> dict[str, Any]:
    """Of pool `p` on n0, unless `spec` says otherwise."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1, **spec.pop("pool", {})}
    where = {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "n0"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"driver": DRIVER, "pool": pool, "devices": list(devices), **where, **spec},
    }


def slice_of(name: str, *devices: dict[str, Any], **spec: Any) -> SliceInfo:
    return read_slice(msgspec.json.encode(slice_json(name, *devices, **spec)))


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
) -> ClaimInfo:
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
    """A status with an allocation of these devices."""
    return {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r", "driver": DRIVER, "pool": pool, "device": name, **result}
                    for name in names
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [expression("metadata.name", node_name)]}]
            },
        }
    }


def key(name: str) -> tuple[str, str]:
    return "default", name


def wanted(devices: Devices, *names: str) -> Demand:
    """What a pod with these claims needs, each under its own name."""
    return demand([PodClaim(name, key(name)) for name in names], devices)


def books(*records: ClaimInfo | DeviceClassInfo | SliceInfo) -> Devices:
    devices = Devices()
    devices.set_class(class_of())
    for each in records:
        if isinstance(each, ClaimInfo):
            devices.set_claim(each)
        elif isinstance(each, SliceInfo):
            devices.pools.set_slice(each)
        else:
            devices.set_class(each)
    return devices


def nodes() -> tuple[NodeInfo, NodeInfo]:
    return N0, N1


def draws(size: int | str) -> dict[str, Any]:
    """Of a device: what it takes of the only counter that there is."""
    return {"consumesCounters": [{"counterSet": "set", "counters": {"k": {"value": str(size)}}}]}


def counter(size: int | str) -> dict[str, Any]:
    """Of a slice: that counter."""
    return {"sharedCounters": [{"name": "set", "counters": {"k": {"value": str(size)}}}]}


#: What a device is divided into, of a counter of 6: how much of it each partition takes.
SIZES = {"full": 6, "half": 3, "third": 2}


def divided(node_name: str, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Slices with so many devices of a node, each of which can be divided. No two of them have the same attributes."""
    parts = [
        device(
            f"{index}-{size}-{each}",
            attributes=attributes(size=SIZES[size], uid=f"{node_name}{index}"),
            consumesCounters=[{"counterSet": f"{index}", "counters": {"k": {"value": str(SIZES[size])}}}],
        )
        for index in range(number)
        for size in SIZES
        for each in range(6 // SIZES[size])
    ]
    sets = [{"name": f"{index}", "counters": {"k": {"value": "6"}}} for index in range(number)]
    where: Any = {"nodeName": node_name, "pool": {"name": node_name, "resourceSliceCount": 2}}
    counters = slice_json(f"{node_name}-counters", **where, sharedCounters=sets)
    del counters["spec"]["devices"]
    return slice_json(node_name, *parts, **where), counters


def first_of(*sizes: str, name: str = "r") -> dict[str, Any]:
    """A request for a partition, of the first of these sizes that can be had."""
    options = [
        {
            "name": size,
            "deviceClassName": "any",
            "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].size == {SIZES[size]}"}}],
        }
        for size in sizes
    ]
    return {"name": name, "firstAvailable": options}
