"""Small random clusters with devices and claims, and the search that tries everything.

Two nodes, at most five devices that either can have, at most two claims of three requests together. Selectors never
ask for what is not there, so that no answer is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.decisions.devices.validity import Cluster, Obj, problems, too_much

DRIVER = "d.example.com"
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
    (
        {"nodeName": "n0"},
        {"allNodes": True},
        {
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                ]
            }
        },
    )
)


@st.composite
def _device(draw: st.DrawFn, name: str, own_place: bool, counters: bool) -> Obj:
    device: dict[str, Any] = {"name": name, "attributes": {}}
    if draw(st.booleans()):
        device["attributes"]["kind"] = {"string": draw(st.sampled_from("ab"))}
    if draw(st.booleans()):
        device["attributes"]["numa"] = {"int": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        device["capacity"] = {"m": {"value": str(draw(st.integers(1, 3)))}}
        device["allowMultipleAllocations"] = draw(st.booleans())
    if draw(st.integers(0, 4)) == 0:
        device["taints"] = [{"key": "t", "effect": "NoSchedule"}]
    if counters and draw(st.booleans()):
        device["consumesCounters"] = [
            {"counterSet": "set", "counters": {"k": {"value": str(draw(st.integers(1, 2)))}}}
        ]
    if own_place:
        device.update(draw(_places))
    return device


@st.composite
def _pool(draw: st.DrawFn, number: int) -> list[Obj]:
    counters, own_places = draw(st.booleans()), draw(st.integers(0, 3)) == 0
    place: dict[str, Any] = {"perDeviceNodeSelection": True} if own_places else draw(_places)
    count = draw(st.integers(1, 2)) + counters
    pool = {"name": f"pool{number}", "generation": 1, "resourceSliceCount": count}
    if draw(st.integers(0, 6)) == 0:
        pool["resourceSliceCount"] = count + 1
    slices: list[dict[str, Any]] = [
        {
            "driver": DRIVER,
            "pool": pool,
            **place,
            "devices": [
                draw(_device(f"dev{index}-{each}", own_places, counters))
                for each in range(draw(st.integers(0, 2)))
            ],
        }
        for index in range(count)
    ]
    if counters:
        slices[0]["devices"] = []
        slices[0]["sharedCounters"] = [
            {"name": "set", "counters": {"k": {"value": str(draw(st.integers(1, 3)))}}}
        ]
    return [
        {"metadata": {"name": f"slice{number}-{index}"}, "spec": each} for index, each in enumerate(slices)
    ]


@st.composite
def _option(draw: st.DrawFn, exact: bool) -> dict[str, Any]:
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
        option["capacity"] = {"requests": {"m": str(draw(st.integers(1, 3)))}}
    if exact and draw(st.integers(0, 4)) == 0:
        option["adminAccess"] = True
    return option


@st.composite
def _claim(draw: st.DrawFn, name: str, requests: int) -> Obj:
    found: list[Obj] = []
    names: list[str] = []
    for index in range(requests):
        names.append(f"r{index}")
        if draw(st.integers(0, 2)):
            found.append({"name": f"r{index}", "exactly": draw(_option(True))})
        else:
            options = [{"name": f"o{each}", **draw(_option(False))} for each in range(2)]
            names += [f"r{index}/{each['name']}" for each in options]
            found.append({"name": f"r{index}", "firstAvailable": options})
    devices: dict[str, Any] = {"requests": found}
    if draw(st.booleans()):
        kind = draw(st.sampled_from(("matchAttribute", "distinctAttribute")))
        constraint: dict[str, Any] = {kind: f"{DRIVER}/{draw(st.sampled_from(('numa', 'kind')))}"}
        if draw(st.booleans()):
            constraint["requests"] = [draw(st.sampled_from(names))]
        devices["constraints"] = [constraint]
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    slices = [each for number in range(draw(st.integers(1, 2))) for each in draw(_pool(number))]
    classes = (
        {"metadata": {"name": "any"}, "spec": {}},
        {"metadata": {"name": "a"}, "spec": {"selectors": [selector(SELECTORS[0])]}},
    )
    free = Cluster(NODES, classes, slices)
    devices = {key: each for node in NODES for key, each in free.devices(node).items()}
    used = [key for key in sorted(devices) if draw(st.integers(0, 4)) == 0]
    allocated = [_allocated(number, key, devices[key]) for number, key in enumerate(used)]
    # What others have is never more than there is.
    while any(too_much(free, NODES[0], [each["status"]["allocation"] for each in allocated])):
        allocated.pop()
    claims = tuple(
        draw(_claim(f"c{number}", draw(st.integers(1, 2)))) for number in range(draw(st.integers(1, 2)))
    )
    return Drawn(Cluster(NODES, classes, slices, tuple(allocated)), claims)


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
        result["consumedCapacity"] = {
            capacity: asked.get(capacity, each["value"])
            for capacity, each in (device.get("capacity") or {}).items()
        }
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
        for number in (
            range(1, len(here) + 1) if option.get("allocationMode") == "All" else (option["count"],)
        )
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
    only = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    node = cluster.node(node_name)
    ways = [
        [
            {
                "devices": {"results": [each for part in parts for each in part]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
            }
            for parts in product(
                *(_ways(cluster, node, request) for request in claim["spec"]["devices"]["requests"])
            )
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
