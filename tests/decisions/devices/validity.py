"""Validates allocations by the API's documentation: a plain implementation for claims, classes and slices.

It reads JSON, and the written status of claims; it shares nothing with the allocator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from tests.decisions.devices.selecting import SelectorError, matches, quantity, split
from tests.decisions.plain.selectors import any_term_matches
from tests.decisions.plain.taint_toleration import REFUSING, tolerated

Obj = Mapping[str, Any]
DeviceId = tuple[str, str, str]


@dataclass(frozen=True)
class Cluster:
    """Nodes, classes and slices, and the claims that have an allocation already."""

    nodes: Sequence[Obj]
    classes: Sequence[Obj]
    slices: Sequence[Obj]
    allocated: Sequence[Obj] = field(default_factory=tuple)

    def node(self, name: str) -> Obj:
        return next(node for node in self.nodes if node["metadata"]["name"] == name)

    def selectors(self, class_name: str) -> list[str]:
        found = next(each for each in self.classes if each["metadata"]["name"] == class_name)
        return expressions_of(found["spec"])

    def selects(self, option: Obj, driver: str, device: Obj) -> bool:
        """Return whether the device is of the class of a request's option, and matches its selectors."""
        expressions = [*self.selectors(option["deviceClassName"]), *expressions_of(option)]
        try:
            return all(matches(expression, driver, device) for expression in expressions)
        except SelectorError:
            return False

    def had(self) -> list[Obj]:
        """Return the results of all existing allocations."""
        return [result for claim in self.allocated for result in results_of(claim["status"]["allocation"])]

    @cached_property
    def newest(self) -> dict[tuple[str, str], list[Obj]]:
        """Return the slices of each pool that has all of its newest generation."""
        pools: dict[tuple[str, str], list[Obj]] = {}
        for each in self.slices:
            pools.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each["spec"])
        found = {}
        for key, specs in pools.items():
            last = max(spec["pool"]["generation"] for spec in specs)
            there = [spec for spec in specs if spec["pool"]["generation"] == last]
            if len(there) == there[0]["pool"]["resourceSliceCount"]:
                found[key] = there
        return found

    def devices(self, node: Obj) -> dict[DeviceId, Obj]:
        """Return the node's devices of complete pools, by name; the names are unique in each."""
        found = self._devices.get(node["metadata"]["name"])
        if found is None:
            found = self._devices[node["metadata"]["name"]] = {}
            for key, specs in self.newest.items():
                here = [device for spec in specs for device in _of_slice(spec, node)]
                if len({device["name"] for device in here}) == len(here):
                    found.update({(*key, device["name"]): device for device in here})
        return found

    @cached_property
    def _devices(self) -> dict[str, dict[DeviceId, Obj]]:
        return {}


def expressions_of(place: Obj) -> list[str]:
    """Return the selectors of a class or of an option."""
    return [each["cel"]["expression"] for each in place.get("selectors") or ()]


def results_of(allocation: Obj | None) -> list[Obj]:
    return [] if allocation is None else allocation["devices"]["results"]


def device_of(result: Obj) -> DeviceId:
    return result["driver"], result["pool"], result["device"]


def options_of(request: Obj) -> dict[str, Obj]:
    """Return the options by the name under which each is allocated."""
    if request.get("exactly"):
        return {request["name"]: request["exactly"]}
    return {f"{request['name']}/{each['name']}": each for each in request["firstAvailable"]}


def usable(allocation: Obj, node: Obj) -> bool:
    """Return whether the allocation may be used on the node."""
    selector = allocation.get("nodeSelector")
    return selector is None or any_term_matches(selector["nodeSelectorTerms"], node)


def _of_slice(spec: Obj, node: Obj) -> Sequence[Obj]:
    """Return its devices for the node."""
    devices: Sequence[Obj] = spec.get("devices") or ()
    if spec.get("perDeviceNodeSelection"):
        return [device for device in devices if _is_on(device, node)]
    return devices if devices and _is_on(spec, node) else ()


def _is_on(place: Obj, node: Obj) -> bool:
    if place.get("nodeName"):
        return bool(place["nodeName"] == node["metadata"]["name"])
    if place.get("allNodes"):
        return True
    terms = (place.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return any_term_matches(terms, node)


def problems(cluster: Cluster, node_name: str, claims: Sequence[Obj], allocations: Sequence[Obj]) -> list[str]:
    """Return the faults of the allocations, in the order of `claims`, on this node."""
    node = cluster.node(node_name)
    found: list[str] = []
    for claim, allocation in zip(claims, allocations, strict=True):
        found += _of_claim(cluster, node, claim, allocation)
    found += too_much(cluster, node, allocations)
    return found


# ---- one claim


def _of_claim(cluster: Cluster, node: Obj, claim: Obj, allocation: Obj) -> Iterator[str]:
    results = results_of(allocation)
    if len(results) > 32:
        yield f"{len(results)} devices for one claim"
    spec = claim["spec"]["devices"]
    given: dict[str, list[Obj]] = {}
    for result in results:
        given.setdefault(result["request"], []).append(result)
    for request in spec["requests"]:
        options = options_of(request)
        used = [name for name in options if name in given]
        if len(used) != 1:
            yield f"request {request['name']}: {len(used)} of its alternatives were given devices"
            continue
        yield from _of_option(cluster, node, used[0], options[used[0]], given.pop(used[0]))
    yield from (f"{name} has devices without a request" for name in given)
    here = cluster.devices(node)
    for constraint in spec.get("constraints") or ():
        yield from _of_constraint(constraint, results, here)
    if not usable(allocation, node):
        yield "the claim cannot be used on its node"
    bound = [device_of(each) for each in results if (here.get(device_of(each)) or {}).get("bindsToNode")]
    for other in cluster.nodes:
        if not usable(allocation, other):
            continue
        if bound and other is not node:
            yield f"the claim may be used on {other['metadata']['name']}, and {bound} bind it to its node"
        if missing := set(map(device_of, results)) - cluster.devices(other).keys():
            yield f"the claim may be used on {other['metadata']['name']}, where {sorted(missing)} are not"


def _of_option(cluster: Cluster, node: Obj, name: str, option: Obj, results: Sequence[Obj]) -> Iterator[str]:
    here = cluster.devices(node)
    for result in results:
        device = here.get(device_of(result))
        if device is None:
            yield f"{name}: {device_of(result)} is not there"
            continue
        if not cluster.selects(option, result["driver"], device):
            yield f"{name}: {device_of(result)} does not match"
        taints = [each for each in device.get("taints") or () if each["effect"] in REFUSING]
        if not all(tolerated(taint, option.get("tolerations") or ()) for taint in taints):
            yield f"{name}: {device_of(result)} has a taint that is not tolerated"
        if bool(result.get("adminAccess")) != bool(option.get("adminAccess")):
            yield f"{name}: admin access is given or kept against what was asked"
        yield from _of_capacity(name, device, option, result)
        for kind in ("bindingConditions", "bindingFailureConditions"):
            if (result.get(kind) or []) != (device.get(kind) or []):
                yield f"{name}: other {kind} than {device_of(result)} has"
        if (result.get("tolerations") or []) != (option.get("tolerations") or []):
            yield f"{name}: tolerations differ from the request"
    if option.get("allocationMode", "ExactCount") == "All":
        wanted = {
            key
            for key, device in here.items()
            if cluster.selects(option, key[0], device) and _gives(cluster, key, device, option)
        }
        if wanted != set(map(device_of, results)) or len(wanted) != len(results):
            yield f"{name}: asks for all of {sorted(wanted)}"
        if _unfinished(cluster, node):
            yield f"{name}: asks for all devices while a pool is not complete"
    elif len(results) != option.get("count", 1):
        yield f"{name}: {len(results)} devices instead of {option.get('count', 1)}"


def _gives(cluster: Cluster, key: DeviceId, device: Obj, option: Obj) -> bool:
    """Return whether the device has the requested capacities, and, if it is shared, has them left."""
    published = device.get("capacity") or {}
    asked = (option.get("capacity") or {}).get("requests") or {}
    if asked.keys() - published.keys():
        return False
    for name, capacity in published.items():
        taken = consumed_of(capacity, asked.get(name))
        if taken is None:
            return False
        if device.get("allowMultipleAllocations") and not option.get("adminAccess"):
            had = (each for each in cluster.had() if device_of(each) == key and not each.get("adminAccess"))
            taken += _consumed(had, name)
        if taken > quantity(capacity["value"]).value:
            return False
    return True


def consumed_of(capacity: Obj, asked: object | None) -> Fraction | None:
    """Return the consumption of a request for a capacity (`requestPolicy`); None if it allows no such request."""
    policy = capacity.get("requestPolicy") or {}
    if asked is None:
        return quantity(policy.get("default", capacity["value"])).value
    wanted = quantity(asked).value
    if values := policy.get("validValues"):
        return min((size for each in values if (size := quantity(each).value) >= wanted), default=None)
    bounds = policy.get("validRange")
    if bounds is None:
        return wanted
    least = quantity(bounds["min"]).value
    found = max(wanted, least)
    if step := bounds.get("step"):
        size = quantity(step).value
        found = least + -((least - found) // size) * size
    return None if "max" in bounds and found > quantity(bounds["max"]).value else found


def _unfinished(cluster: Cluster, node: Obj) -> bool:
    """Return whether the node sees a slice of a pool that is incomplete."""
    specs = [each["spec"] for each in cluster.slices]
    return any(
        bool(_of_slice(spec, node)) if spec.get("perDeviceNodeSelection") else _is_on(spec, node)
        for spec in specs
        if (spec["driver"], spec["pool"]["name"]) not in cluster.newest
    )


def _of_capacity(name: str, device: Obj, option: Obj, result: Obj) -> Iterator[str]:
    published = device.get("capacity") or {}
    for key, asked in ((option.get("capacity") or {}).get("requests") or {}).items():
        taken = consumed_of(published[key], asked) if key in published else None
        if taken is None or taken > quantity(published[key]["value"]).value:
            yield f"{name}: {device_of(result)} has no {asked} of {key}"
    if bool(device.get("allowMultipleAllocations")) != ("shareID" in result):
        yield f"{name}: {device_of(result)} is shared, or not, against what it allows"
    consumed = result.get("consumedCapacity") or {}
    for key, size in consumed.items():
        asked = ((option.get("capacity") or {}).get("requests") or {}).get(key)
        if key in published and quantity(size).value != consumed_of(published[key], asked):
            yield f"{name}: {size} of {key} for a request of {asked}"
    if device.get("allowMultipleAllocations") and consumed.keys() != published.keys():
        yield f"{name}: says nothing of some capacities of {device_of(result)}"


def _of_constraint(constraint: Obj, results: Sequence[Obj], here: Mapping[DeviceId, Obj]) -> Iterator[str]:
    names = set(constraint.get("requests") or ())
    attribute: str = constraint.get("matchAttribute") or constraint["distinctAttribute"]
    values = []
    for result in results:
        if names and not names & {result["request"], result["request"].split("/")[0]}:
            continue
        device = here.get(device_of(result)) or {}
        published = {
            "/".join(split(name, result["driver"])): value for name, value in (device.get("attributes") or {}).items()
        }
        values.append(published.get(attribute))
    if None in values:
        yield f"a device lacks {attribute}"
    distinct = [value for index, value in enumerate(values) if value not in values[:index]]
    if constraint.get("matchAttribute") and len(distinct) > 1:
        yield f"devices differ in {attribute}: {values}"
    if constraint.get("distinctAttribute") and len(distinct) < len(values):
        yield f"devices do not differ in {attribute}: {values}"


# ---- all claims together


def _consumed(results: Iterable[Obj], name: str) -> Fraction:
    """Return the sum that the results consume of a capacity."""
    amounts = ((result.get("consumedCapacity") or {}).get(name, "0") for result in results)
    return sum((quantity(amount).value for amount in amounts), Fraction(0))


def too_much(cluster: Cluster, node: Obj, allocations: Sequence[Obj]) -> Iterator[str]:
    """Yield devices that are used twice, and exceeded capacities and counters."""
    new = [result for allocation in allocations for result in results_of(allocation)]
    for allocation in allocations:
        own = [device_of(result) for result in results_of(allocation) if "shareID" not in result]
        if len(set(own)) < len(own):
            yield "a claim has a device twice"
    taking = [result for result in (*cluster.had(), *new) if not result.get("adminAccess")]
    alone = [device_of(result) for result in taking if "shareID" not in result]
    sharing = [result for result in taking if "shareID" in result]
    shared = set(map(device_of, sharing))
    for key in {device_of(result) for result in new if not result.get("adminAccess")}:
        if alone.count(key) > 1 or (key in alone and key in shared):
            yield f"{key} is had by more than one"
    here = cluster.devices(node)
    for key in shared & here.keys():
        for name, capacity in (here[key].get("capacity") or {}).items():
            used = _consumed((result for result in sharing if device_of(result) == key), name)
            if used > quantity(capacity["value"]).value:
                yield f"{key}: {used} of {name} is used"
    admin = [device_of(result) for result in new if result.get("adminAccess")]
    yield from overdrawn(cluster, set(map(device_of, taking)), set(map(device_of, new)), admin)


def overdrawn(
    cluster: Cluster, used: set[DeviceId], new: set[DeviceId], admin: Sequence[DeviceId] = ()
) -> Iterator[str]:
    """Yield the counters that the devices in use exceed, in pools of `new` devices.

    `admin` has the new devices with admin access, which need as much to be left, but take nothing from others.
    """
    for key, specs in cluster.newest.items():
        if not any(each[:2] == key for each in new):
            continue
        there = {
            (counters["name"], name): quantity(counter["value"]).value
            for spec in specs
            for counters in spec.get("sharedCounters") or ()
            for name, counter in counters["counters"].items()
        }
        for spec in specs:
            for device in spec.get("devices") or ():
                uses = ((*key, device["name"]) in used) + admin.count((*key, device["name"]))
                for consumption in device.get("consumesCounters") or ():
                    for name, counter in consumption["counters"].items():
                        there[consumption["counterSet"], name] -= uses * quantity(counter["value"]).value
        for counter_name, left in there.items():
            if left < 0:
                yield f"{key}: {counter_name} is overdrawn by {-left}"
