"""Hostile nodes, volumes, devices and leases."""

from __future__ import annotations

from .cases import case, merged, spec
from .drawing import AMOUNTS, INT32, INT64, MOST, Draw, Object

_CLASSES, _CAPACITIES = "storageclasses.storage.k8s.io", "csistoragecapacities.storage.k8s.io"
_CSI_NODES, _ATTACHMENTS = "csinodes.storage.k8s.io", "volumeattachments.storage.k8s.io"
_CLAIMS, _DEVICES, _SLICES = (
    f"{name}.resource.k8s.io" for name in ("resourceclaims", "deviceclasses", "resourceslices")
)
_PVC, _PV = "persistentvolumeclaims", "persistentvolumes"


def _expression(number: int) -> Object:
    return {"key": f"example.com/{number}", "operator": "In", "values": ["a"]}


def _terms(draw: Draw, most: int) -> Object:
    return {"nodeSelectorTerms": draw.many(most, lambda number: {"matchExpressions": [_expression(number)]})}


# ---- nodes


@case("nodes", "count")
def taints(draw: Draw) -> Object:
    some = draw.many(5_000, lambda number: {"key": f"example.com/{number}", "effect": "NoSchedule", "value": "x"})
    return spec("nodes", draw, taints=some, unschedulable=True)


@case("nodes", "quantity", "count")
def capacity(draw: Draw) -> Object:
    amounts = {name: draw.some(*AMOUNTS) for name in ("cpu", "memory", "ephemeral-storage")}
    others = {f"example.com/r{number}": str(draw.some(0, MOST)) for number in range(draw.count(draw.some(3, 3_000)))}
    found = {**amounts, **others, "pods": draw.some("0", str(MOST))}
    # Nothing is placed there.
    return {"spec": {"unschedulable": True}, "status": {"allocatable": found, "capacity": found}}


@case("nodes", "count", "unicode", "time")
def images(draw: Draw) -> Object:
    some = draw.many(5_000, lambda number: {"names": [f"i{number}", draw.text() + "i"], "sizeBytes": INT64})
    about = {"status": "True", "reason": "A", "message": draw.text()}
    conditions = [{"type": "Ready", **about, "lastHeartbeatTime": draw.time(), "lastTransitionTime": draw.time()}] * 50
    return merged(spec("nodes", draw, unschedulable=True), {"status": {"images": some, "conditions": conditions}})


@case("nodes", "missing")
def nothing_allocatable(draw: Draw) -> Object:
    return {"status": draw.some({}, {"allocatable": {}}, {"capacity": {"cpu": "1"}})}


# ---- volumes


@case(_PVC, "count", "garbage")
def claim_selector(draw: Draw) -> Object:
    selector = {"matchExpressions": draw.many(5_000, _expression)}
    name = draw.some("nobody", "", "x" * 253)
    return spec(_PVC, draw, selector=selector, storageClassName=name, accessModes=["ReadWriteOnce"] * draw.count(20))


@case(_PVC, "quantity")
def claim_size(draw: Draw) -> Object:
    amount = draw.some("9" * 900, "8Ei", "1e-27", "1n")
    return spec(_PVC, draw, resources={"requests": {"storage": amount}}, volumeName=draw.some("nobody", "x" * 253))


@case(_PV, "count")
def volume_terms(draw: Draw) -> Object:
    reference = {"namespace": "nowhere", "name": "nobody", "uid": draw.some("", "u")}
    required = {"required": _terms(draw, 6_000)}
    return spec(_PV, draw, nodeAffinity=required, claimRef=reference, storageClassName="made")


@case(_PV, "quantity")
def volume_size(draw: Draw) -> Object:
    return spec(_PV, draw, capacity={"storage": draw.some("9" * 900, "8Ei", "1n")}, storageClassName="")


@case(_CLASSES, "count", "garbage")
def topologies(draw: Draw) -> Object:
    def term(number: int) -> Object:
        return {"matchLabelExpressions": [{"key": f"example.com/{number}", "values": [f"a{number}"]}]}

    found = {"provisioner": "made.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    return {**found, "allowedTopologies": draw.many(5_000, term), "parameters": {"a": draw.text()}}


@case(_CSI_NODES, "count", "maximum")
def drivers(draw: Draw) -> Object:
    def driver(number: int) -> Object:
        limits = {"count": draw.some(0, INT32)}
        return {"name": f"d{number}.example.com", "nodeID": "n", "topologyKeys": ["a"], "allocatable": limits}

    return {"spec": {"drivers": draw.many(5_000, driver)}}


@case(_CAPACITIES, "quantity", "count")
def capacities(draw: Draw) -> Object:
    topology = draw.some({"matchExpressions": draw.many(3_000, _expression)}, {}, None)
    sizes = {"capacity": draw.some("9" * 900, "8Ei", "0"), "maximumVolumeSize": draw.some("1n", "1Ei")}
    return {"storageClassName": draw.some("made", "nobody"), "nodeTopology": topology, **sizes}


@case(_ATTACHMENTS, "garbage")
def attachment(draw: Draw) -> Object:
    source = {"persistentVolumeName": draw.some("nobody", "x" * 253)}
    return {"spec": {"attacher": "made.example.com", "nodeName": draw.some("nobody", draw.text()), "source": source}}


# ---- devices: the API server has a limit for each number


@case(_CLAIMS, "depth")
def deep_parameters(draw: Draw) -> Object:
    # 10 KiB of parameters for a driver.
    opaque = {"driver": "gpu.example.com", "parameters": {"a": draw.deep(limit=10_000)}}
    return spec(_CLAIMS, draw, devices={"config": [{"opaque": opaque}] * draw.some(1, 30)})


def _exact(draw: Draw, **more: object) -> Object:
    return {"deviceClassName": draw.some("gpu.example.com", "nobody"), **more}


@case(_CLAIMS, "maximum", "count")
def requests(draw: Draw) -> Object:
    expression = draw.some(
        "false" + " || false" * 800,
        "[" * 20 + "]" * 20 + ".size() == 1",
        "'" + draw.some("\u202e", "\U0001f4a5") * 100 + "' == ''",
        "device.attributes['a.example.com'].b.startsWith('" + "x" * 5_000 + "')",
        "device.driver.matches('(a+)+$')",
        "device.capacity['a.example.com'].b.compareTo(quantity('1e999')) > 0",
        "device.attributes['nobody.example.com'].a == 1 / 0",
    )
    selectors = [{"cel": {"expression": expression}}] * draw.some(1, 30 if len(expression) < 1_000 else 4)
    tolerations = [{"key": f"example.com/{number}", "operator": "Exists"} for number in range(16)]

    def request(number: int) -> Object:
        how: Object = draw.some({"count": INT64}, {"allocationMode": "All"}, {"count": draw.some(1, 32)})
        if draw.some(True, False):
            choices = [{"name": f"s{choice}", **_exact(draw, **how)} for choice in range(8)]
            return {"name": f"r{number}", "firstAvailable": choices}
        return {"name": f"r{number}", "exactly": _exact(draw, selectors=selectors, tolerations=tolerations, **how)}

    count = draw.some(1, 32)
    some = [request(number) for number in range(count)]
    names = [each["name"] for each in some]
    constraints = [{"requests": names, "matchAttribute": f"example.com/a{number}"} for number in range(32)]
    return {"spec": {"devices": {"requests": some, "constraints": constraints}}}


@case(_CLAIMS, "quantity")
def claim_capacity(draw: Draw) -> Object:
    amounts = {f"example.com/c{number}": draw.some(*AMOUNTS) for number in range(30)}
    one = {"name": "r", "exactly": _exact(draw, capacity={"requests": amounts})}
    return {"spec": {"devices": {"requests": [one]}}}


@case(_CLAIMS, "elsewhere", "count", "depth", "time")
def allocated(draw: Draw) -> Object:
    """A claim that somebody else has allocated: devices and nodes that do not exist, and a driver's report."""
    driver, pool = "gpu.example.com", draw.some("nobody", "n1")
    results = [{"request": "r", "driver": driver, "pool": pool, "device": f"d{number}"} for number in range(32)]
    report = {"driver": driver, "pool": pool, "device": "d0", "data": {"a": draw.deep(limit=10_000)}}
    consumers = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(256)]
    where = draw.some(
        _terms(draw, 3_000),
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["nobody"]}]}]},
    )
    about = {"devices": {"results": results}, "nodeSelector": where, "allocationTimestamp": draw.time()}
    return {**spec(_CLAIMS, draw), "status": {"allocation": about, "devices": [report], "reservedFor": consumers}}


@case(_DEVICES, "depth", "count")
def device_class(draw: Draw) -> Object:
    opaque = {"driver": "gpu.example.com", "parameters": {"a": draw.deep(limit=10_000)}}
    selectors = [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}] * 32
    return {
        "spec": {"selectors": selectors, "config": [{"opaque": opaque}] * 32, "extendedResourceName": "example.com/x"}
    }


@case(_SLICES, "count", "maximum", "quantity")
def slice_of_devices(draw: Draw) -> Object:
    def device(number: int) -> Object:
        kinds = ({"int": -INT64}, {"bool": True}, {"string": draw.text()[:15]}, {"version": "0.0.0-a+b"})
        attributes = {f"a{each}": draw.some(*kinds) for each in range(16)}
        sizes = {f"c{each}": {"value": draw.some(*AMOUNTS)} for each in range(16)}
        return {"name": f"d{number}", "attributes": attributes, "capacity": sizes}

    pool = {"name": draw.name, "generation": INT64, "resourceSliceCount": draw.some(1, INT64)}
    about = {"driver": "gpu.example.com", "pool": pool, "nodeName": "nobody"}
    return {"spec": {**about, "devices": draw.many(128, device)}}


@case(_SLICES, "count")
def shared_counters(draw: Draw) -> Object:
    counters = {f"c{number}": {"value": draw.some(*AMOUNTS)} for number in range(32)}
    pool = {"name": draw.name, "generation": 0, "resourceSliceCount": 2}
    about = {
        "driver": "gpu.example.com",
        "pool": pool,
        "nodeSelector": {"nodeSelectorTerms": [_terms(draw, 1)["nodeSelectorTerms"][0]]},
    }
    return {"spec": {**about, "sharedCounters": [{"name": f"s{number}", "counters": counters} for number in range(8)]}}


# ---- leases


@case("leases.coordination.k8s.io", "maximum", "time", "unicode")
def lease(draw: Draw) -> Object:
    times = {
        name: draw.some("0001-01-01T00:00:01.000000Z", "9999-12-31T23:59:59.999999Z")
        for name in ("acquireTime", "renewTime")
    }
    return {
        "spec": {"holderIdentity": draw.text() + "a", "leaseDurationSeconds": INT32, "leaseTransitions": INT32, **times}
    }
