"""Small random clusters with devices and claims, and the search that tries everything.

Two nodes, two drivers whose pools may have the same name, at most five devices that either node can have, at most two
claims of three requests together. Selectors never ask for what is not there, so that no answer is an error. A part of
them is about counters alone, with much in use, and a part about capacity: what they ask for is seldom drawn otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.decisions.devices.validity import Cluster, Obj, consumed_of, problems, too_much
from tests.support.devices import counter, draws
from tests.support.terms import expression, term

DRIVER = "d.example.com"
OTHER = "e.example.com"
#: What amounts of a capacity may be asked for.
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"requestPolicy": {"default": "1", "validValues": ["1", "3"]}},
    {"requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "2"}}},
    {"requestPolicy": {"default": "3", "validRange": {"min": "1", "step": "2"}}},
)
NODES = (
    {"metadata": {"name": "n0", "labels": {"zone": "a"}}, "status": {"allocatable": {"pods": "10"}}},
    {"metadata": {"name": "n1", "labels": {"zone": "b"}}, "status": {"allocatable": {"pods": "10"}}},
)
SELECTORS = (
    f"device.attributes['{DRIVER}'].?kind.orValue('') == 'a'",
    f"device.attributes['{DRIVER}'].?kind.orValue('') == 'b'",
    f"has(device.capacity['{DRIVER}'].m)",
    "device.allowMultipleAllocations == false",
)


class Drawn(NamedTuple):
    cluster: Cluster
    claims: tuple[Obj, ...]


def selector(expression: str) -> Obj:
    return {"cel": {"expression": expression}}


_places: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    ({"nodeName": "n0"}, {"allNodes": True}, {"nodeSelector": {"nodeSelectorTerms": [term("zone", "a")]}})
)


@st.composite
def _device(draw: st.DrawFn, name: str, own_place: bool, counters: bool, about: str) -> Obj:
    device: dict[str, Any] = {"name": name, "attributes": {}}
    if about == "counters":
        device |= draws(draw(st.integers(1, 2)))
        return device
    if about == "capacity":
        device["capacity"] = _capacity(draw)
        device["allowMultipleAllocations"] = draw(st.integers(0, 3)) > 0
        return device
    if draw(st.booleans()):
        device["attributes"]["kind"] = {"string": draw(st.sampled_from("ab"))}
    if draw(st.booleans()):
        device["attributes"]["numa"] = {"int": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        device["capacity"] = _capacity(draw)
        device["allowMultipleAllocations"] = draw(st.booleans())
    if draw(st.integers(0, 4)) == 0:
        device["taints"] = [{"key": "t", "effect": "NoSchedule"}]
    if counters and draw(st.booleans()):
        device |= draws(draw(st.integers(1, 2)))
    if draw(st.integers(0, 3)) == 0:
        device["bindingConditions"] = ["Attached"]
        device["bindingFailureConditions"] = ["Failed"]
        device["bindsToNode"] = draw(st.booleans())
    if own_place:
        device.update(draw(_places))
    return device


def _capacity(draw: st.DrawFn) -> Obj:
    policy = draw(st.sampled_from(POLICIES))
    # No default is more than there is.
    size = {"value": str(draw(st.integers(3 if policy else 1, 4))), **policy}
    return {draw(st.sampled_from(("m", "m", f"{DRIVER}/m"))): size}


@st.composite
def _pool(draw: st.DrawFn, number: int, about: str) -> list[Obj]:
    counters = about == "counters" or (not about and draw(st.booleans()))
    own_places = not about and draw(st.integers(0, 3)) == 0
    place: dict[str, Any] = {"perDeviceNodeSelection": True} if own_places else draw(_places)
    most = 3 if about == "counters" else 2
    count = draw(st.integers(1, 2)) + counters
    # A pool is told by its driver and its name.
    driver, name = (
        (OTHER, f"pool{draw(st.integers(0, 1))}") if number and draw(st.booleans()) else (DRIVER, f"pool{number}")
    )
    pool = {"name": name, "generation": 1, "resourceSliceCount": count}
    if draw(st.integers(0, 6)) == 0:
        pool["resourceSliceCount"] = count + 1
    slices: list[dict[str, Any]] = [
        {
            "driver": driver,
            "pool": pool,
            **place,
            "devices": [
                draw(_device(f"dev{index}-{each}", own_places, counters, about))
                for each in range(draw(st.integers(0, most)))
            ],
        }
        for index in range(count)
    ]
    if counters:
        slices[0]["devices"] = []
        slices[0] |= counter(draw(st.integers(1, 2 + most)))
    return [{"metadata": {"name": f"slice{number}-{index}"}, "spec": each} for index, each in enumerate(slices)]


@st.composite
def _option(draw: st.DrawFn, exact: bool, about: str) -> dict[str, Any]:
    if about:
        plain: dict[str, Any] = {"deviceClassName": "any", "count": draw(st.integers(1, 2))}
        if about == "counters" and exact and draw(st.integers(0, 3)) == 0:
            plain["adminAccess"] = True
        if about == "capacity" and draw(st.integers(0, 3)):
            plain["capacity"] = {"requests": _asked(draw)}
        return plain
    option: dict[str, Any] = {"deviceClassName": draw(st.sampled_from(("any", "a")))}
    if draw(st.booleans()):
        option["selectors"] = [selector(draw(st.sampled_from(SELECTORS)))]
    if draw(st.integers(0, 3)) == 0:
        option["allocationMode"] = "All"
    else:
        option["count"] = draw(st.integers(1, 2))
    if draw(st.booleans()):
        option["tolerations"] = [{"operator": "Exists"}]
    if draw(st.integers(0, 3)) == 0:
        option["capacity"] = {"requests": _asked(draw)}
    if exact and draw(st.integers(0, 4)) == 0:
        option["adminAccess"] = True
    return option


def _asked(draw: st.DrawFn) -> Obj:
    return {draw(st.sampled_from(("m", "m", f"{DRIVER}/m"))): str(draw(st.integers(1, 3)))}


@st.composite
def _claim(draw: st.DrawFn, name: str, requests: int, about: str) -> Obj:
    found: list[Obj] = []
    names: list[str] = []
    for index in range(requests):
        names.append(f"r{index}")
        if draw(st.integers(0, 2)):
            found.append({"name": f"r{index}", "exactly": draw(_option(True, about))})
        else:
            options = [{"name": f"o{each}", **draw(_option(False, about))} for each in range(2)]
            names += [f"r{index}/{each['name']}" for each in options]
            found.append({"name": f"r{index}", "firstAvailable": options})
    devices: dict[str, Any] = {"requests": found}
    if not about and draw(st.booleans()):
        kind = draw(st.sampled_from(("matchAttribute", "distinctAttribute")))
        constraint: dict[str, Any] = {kind: f"{DRIVER}/{draw(st.sampled_from(('numa', 'kind')))}"}
        if draw(st.booleans()):
            constraint["requests"] = [draw(st.sampled_from(names))]
        devices["constraints"] = [constraint]
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    about = draw(st.sampled_from(("", "counters", "capacity")))
    slices = [each for number in range(draw(st.integers(1, 2))) for each in draw(_pool(number, about))]
    claims = tuple(
        draw(_claim(f"c{number}", draw(st.integers(1, 2)), about)) for number in range(draw(st.integers(1, 2)))
    )
    if _asks_for_admin_access(claims):
        # What that costs of a shared device's counters depends on who of the pod's requests comes first.
        for each in (device for one in slices for device in one["spec"]["devices"]):
            if each.get("allowMultipleAllocations"):
                each.pop("consumesCounters", None)
    classes = (
        {"metadata": {"name": "any"}, "spec": {}},
        {"metadata": {"name": "a"}, "spec": {"selectors": [selector(SELECTORS[0])]}},
    )
    free = Cluster(NODES, classes, slices)
    devices = {key: each for node in NODES for key, each in free.devices(node).items()}
    used = [key for key in sorted(devices) if draw(st.integers(0, 1 if about else 4)) == 0]
    allocated = [_allocated(number, key, devices[key]) for number, key in enumerate(used)]
    # What others have is never more than there is.
    while any(too_much(free, NODES[0], [each["status"]["allocation"] for each in allocated])):
        allocated.pop()
    return Drawn(Cluster(NODES, classes, slices, tuple(allocated)), claims)


def _asks_for_admin_access(claims: Sequence[Obj]) -> bool:
    return any(
        (request.get("exactly") or {}).get("adminAccess")
        for claim in claims
        for request in claim["spec"]["devices"]["requests"]
    )


def _allocated(number: int, key: tuple[str, str, str], device: Obj) -> Obj:
    option: dict[str, Any] = {"deviceClassName": "any"}
    return {
        "metadata": {"name": f"used{number}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": option}]}},
        "status": {"allocation": {"devices": {"results": [_result("r", key, device, option)]}}},
    }


# ---- the search that tries everything


def _result(name: str, key: tuple[str, str, str], device: Obj, option: Obj) -> Obj:
    result: dict[str, Any] = dict(zip(("driver", "pool", "device"), key, strict=True), request=name)
    if option.get("adminAccess"):
        result["adminAccess"] = True
    if option.get("tolerations"):
        result["tolerations"] = option["tolerations"]
    if device.get("allowMultipleAllocations"):
        result["shareID"] = "some"
        asked = (option.get("capacity") or {}).get("requests") or {}
        taken = {
            capacity: consumed_of(each, asked.get(capacity))
            for capacity, each in (device.get("capacity") or {}).items()
        }
        result["consumedCapacity"] = {name: str(size) for name, size in taken.items() if size is not None}
    for kind in ("bindingConditions", "bindingFailureConditions"):
        if device.get(kind):
            result[kind] = device[kind]
    return result


def _ways(cluster: Cluster, node: Obj, request: Obj) -> list[list[Obj]]:
    """All that the devices could be for one request, most of it wrong."""
    here = cluster.devices(node)
    options = (
        {request["name"]: request["exactly"]}
        if "exactly" in request
        else {f"{request['name']}/{each['name']}": each for each in request["firstAvailable"]}
    )
    return [
        [_result(name, key, here[key], option) for key in keys]
        for name, option in options.items()
        for number in (range(1, len(here) + 1) if option.get("allocationMode") == "All" else (option["count"],))
        for keys in combinations(here, number)
    ]


#: Ways to serve all claims that are tried at most.
WAYS = 1_000


def is_small(drawn: Drawn) -> bool:
    """Whether everything can be tried in a moment."""
    return all(
        prod(
            len(_ways(drawn.cluster, node, request))
            for claim in drawn.claims
            for request in claim["spec"]["devices"]["requests"]
        )
        <= WAYS
        for node in NODES
    )


def everything(cluster: Cluster, node_name: str, claims: Sequence[Obj]) -> Iterator[tuple[Obj, ...]]:
    """Every valid way to allocate the claims on the node."""
    node = cluster.node(node_name)
    ways = [
        [
            {
                "devices": {"results": [each for part in parts for each in part]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [expression("metadata.name", node_name)]}]},
            }
            for parts in product(*(_ways(cluster, node, request) for request in claim["spec"]["devices"]["requests"]))
        ]
        for claim in claims
    ]
    # Claims are judged one by one first: most ways are wrong by themselves.
    good = [
        [way for way in each if not problems(cluster, node_name, [claim], [way])]
        for claim, each in zip(claims, ways, strict=True)
    ]
    for found in product(*good):
        if not problems(cluster, node_name, claims, found):
            yield found
