"""How full a node is of an extended resource that devices stand for: the formulas are those for any other resource."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.dra.records import read_claim
from agent_scheduler.engine.framework.args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
)
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from tests.decisions.devices.engine import NAMESPACE, DeviceEngine, stored
from tests.decisions.devices.validity import Cluster

GPU = "example.com/gpu"
KIND = "device.attributes['d.example.com'].kind == 'gpu'"


def profile(strategy: str) -> Profile:
    resources = (ResourceSpec(name=GPU, weight=3), ResourceSpec(name="cpu"))
    plain = (ResourceSpec(name=GPU), ResourceSpec(name="cpu"))
    args: dict[str, Any] = {
        "NodeResourcesFit": NodeResourcesFitArgs(
            scoring_strategy=ScoringStrategy(type=strategy, resources=resources)  # type: ignore[arg-type]
        ),
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs(resources=plain),
    }
    return build_profile(ProfileSpec(scheduler_name="default-scheduler", base="default-scheduler", args=args))


def node(name: str, **offered: str) -> dict[str, Any]:
    amounts = {"cpu": "10", "memory": "16Gi", "pods": "110", **offered}
    return {"metadata": {"name": name}, "status": {"allocatable": amounts, "capacity": amounts}}


def pool(name: str, *kinds: str) -> dict[str, Any]:
    devices = [
        {"name": f"dev-{index}", "attributes": {"kind": {"string": kind}}} for index, kind in enumerate(kinds)
    ]
    spec = {
        "driver": "d.example.com",
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    return {"metadata": {"name": f"s-{name}"}, "spec": spec}


def used(name: str, *devices: str) -> dict[str, Any]:
    results = [
        {"request": "r", "driver": "d.example.com", "pool": name, "device": device} for device in devices
    ]
    return {
        "metadata": {"name": f"used-{name}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


CLUSTER = Cluster(
    nodes=[node("devices"), node("plugin", **{GPU: "4"}), node("full")],
    classes=[
        {
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": KIND}}], "extendedResourceName": GPU},
        }
    ],
    slices=[pool("devices", "gpu", "nic", "gpu", "gpu", "gpu"), pool("full", "gpu", "gpu")],
    allocated=[used("devices", "dev-0", "dev-1"), used("full", "dev-0")],
)
POD = {
    "metadata": {"name": "p"},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "5", GPU: "1"}, "limits": {GPU: "1"}}}]
    },
}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        # Devices: (1 + 1) of 4 and 5 of 10; plugin: 1 of 4; full: (1 + 1) of 2.
        ("MostAllocated", {"devices": 50, "plugin": (3 * 25 + 50) // 4, "full": (3 * 100 + 50) // 4}),
        ("LeastAllocated", {"devices": 50, "plugin": (3 * 75 + 50) // 4, "full": 50 // 4}),
    ],
)
def test_devices_count_as_offered_and_taken_where_the_node_offers_none(
    strategy: str, expected: dict[str, int]
) -> None:
    engine = DeviceEngine(CLUSTER, (), profile(strategy))
    decided = engine.decide(POD)
    assert {name: of["NodeResourcesFit"] for name, of in decided.scores.items()} == expected


def test_balance_counts_devices_too() -> None:
    engine = DeviceEngine(CLUSTER, (), profile("LeastAllocated"))
    scores = engine.decide(POD).scores
    # Deviation of two shares is half of their difference; 75 is no change, and each point of change counts a half.
    assert {name: of["NodeResourcesBalancedAllocation"] for name, of in scores.items()} == {
        "devices": 50 + (50 + (100 - 87)) // 2,
        "plugin": 50 + (50 + (87 - 100)) // 2,
        "full": 50 + (50 + (75 - 75)) // 2,
    }


def test_scores_follow_devices_that_are_taken_and_given_back() -> None:
    engine = DeviceEngine(CLUSTER, (), profile("MostAllocated"))

    def score() -> int:
        return engine.decide(POD).scores["devices"]["NodeResourcesFit"]

    assert score() == 50
    more = used("devices", "dev-2")
    more["metadata"]["name"] = "more"
    claim = read_claim(stored(more, NAMESPACE))
    engine.devices.set_claim(claim)
    assert score() == (3 * 75 + 50) // 4
    engine.devices.delete_claim(claim.key)
    assert score() == 50
