"""A model of the ledger: a few plain dicts whose sums are computed at each query.

Nodes and pods are the JSON that an API server sends. The contents of a node's row, and whether a pod fits, are computed
from them by the rules of tests.decisions.plain, which share no code with the columns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from apimachinery.quantity import resource_value
from tests.decisions.plain import World, gpu_share
from tests.decisions.plain.filters import FILTERS
from tests.decisions.plain.requests import pod_request

from .objects import GPU as GPU_MILLI
from .terms import preferring, requiring, term

Json = dict[str, Any]
GPU = "example.com/gpu"
NIC = "example.com/nic"

_TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
_SOFT_TAINT = {"key": "busy", "value": "", "effect": "PreferNoSchedule"}

#: Variants of nodes: allocatable, labels, taints, whether it is cordoned.
NODE_SHAPES: list[tuple[Json, Json, list[Json], bool]] = [
    ({"cpu": "4", "memory": "8Gi", "pods": "5"}, {"zone": "a"}, [], False),
    ({"cpu": "4", "memory": "8Gi", "pods": "5"}, {"zone": "b", "disk": "ssd"}, [], False),
    ({"cpu": "1", "memory": "1Gi", "pods": "2"}, {"zone": "a"}, [], False),
    ({"cpu": "4", "memory": "8Gi", "pods": "5", GPU: "2"}, {"zone": "b"}, [], False),
    ({"cpu": "4", "memory": "8Gi", "pods": "5", GPU: "1", NIC: "1"}, {}, [], False),
    ({"cpu": "4", "memory": "8Gi", "pods": "5"}, {"zone": "a"}, [_TAINT], False),
    ({"cpu": "4", "memory": "8Gi", "pods": "5"}, {"zone": "a"}, [_SOFT_TAINT], False),
    ({"cpu": "2", "memory": "4Gi", "pods": "3"}, {"disk": "ssd"}, [_TAINT, _SOFT_TAINT], False),
    ({"cpu": "4", "memory": "8Gi", "pods": "5"}, {"zone": "a"}, [], True),
    ({"memory": "8Gi", "pods": "5"}, {"zone": "b"}, [], False),
    ({"cpu": "4", "memory": "8Gi", "pods": "5", GPU_MILLI: "2000"}, {"zone": "a"}, [], False),
    ({"cpu": "4", "memory": "8Gi", "pods": "5", GPU_MILLI: "1000"}, {"zone": "b"}, [], False),
]

_PREFERS_SSD = {"nodeAffinity": preferring((10, term("disk", "ssd")))}
_NOT_ZONE_A = {"nodeAffinity": requiring(term("zone", "a", operator="NotIn"))}
_TOLERATES = [{"key": "dedicated", "operator": "Exists"}]

#: Variants of pods: requests, host port, and the rest of the spec.
POD_SHAPES: list[tuple[Json, int, Json]] = [
    ({"cpu": "1", "memory": "1Gi"}, 0, {}),
    ({"cpu": "500m"}, 0, {}),
    ({}, 0, {}),
    ({"cpu": "2", "memory": "3Gi"}, 0, {"tolerations": _TOLERATES}),
    ({"cpu": "100m"}, 80, {}),
    ({"cpu": "100m"}, 81, {"tolerations": _TOLERATES}),
    ({"cpu": "1", GPU: "1"}, 0, {}),
    ({GPU: "1", NIC: "1"}, 80, {}),
    ({"cpu": "1"}, 0, {"nodeSelector": {"zone": "a"}}),
    ({"memory": "2Gi"}, 0, {"affinity": _PREFERS_SSD}),
    ({"cpu": "250m"}, 0, {"affinity": _NOT_ZONE_A}),
    ({"cpu": "100m", GPU_MILLI: "600"}, 0, {}),
    ({"cpu": "100m", GPU_MILLI: "300"}, 0, {"tolerations": _TOLERATES}),
    ({GPU_MILLI: "1000"}, 0, {}),
    ({GPU_MILLI: "2000"}, 80, {}),
]


def node_json(name: str, shape: int, generation: int = 0) -> Json:
    allocatable, labels, taints, unschedulable = NODE_SHAPES[shape]
    return {
        "metadata": {"name": name, "uid": f"{name}-{generation}", "labels": labels},
        "spec": {"taints": taints, "unschedulable": unschedulable},
        "status": {"allocatable": allocatable},
    }


def _pod_json(requests: Json, port: int, more: Json) -> Json:
    container: Json = {"name": "c", "resources": {"requests": requests}}
    if port:
        container["ports"] = [{"containerPort": 1, "hostPort": port}]
    return {"metadata": {}, "spec": {"containers": [container], **more}}


#: A pod of each shape, without a name.
PODS = [_pod_json(*shape) for shape in POD_SHAPES]


def _scored(requests: Json) -> dict[str, int]:
    filled = {"cpu": "100m", "memory": "200Mi", **requests}
    return {name: resource_value(name, quantity) for name, quantity in filled.items()} | {"pods": 1}


#: The effect of a pod of each shape on its node's row: requests, amounts for scores, ports.
TAKES = [
    ({name: pod_request(body, name) for name in requests} | {"pods": 1}, _scored(requests), {port} - {0})
    for body, (requests, port, _) in zip(PODS, POD_SHAPES, strict=True)
]


_value = cache(resource_value)


class Row(NamedTuple):
    """The expected content of columns for one node; zero amounts are omitted."""

    uid: str
    allocatable: dict[str, int]
    requested: dict[str, int]
    scored: dict[str, int]
    ports: set[int]
    labels: dict[str, str]
    taints: list[tuple[str, str]]
    unschedulable: bool
    gpus: list[int]


class Placed(NamedTuple):
    node: str
    shape: int
    assumed: bool
    #: The present or future value of its annotation.
    devices: str = ""

    @property
    def body(self) -> Json:
        pod = PODS[self.shape]
        annotations = {"agent-scheduler.io/gpu-index": self.devices} if self.devices else {}
        return {"spec": {**pod["spec"], "nodeName": self.node}, "metadata": {"annotations": annotations}}


@dataclass
class Picture:
    """All nodes by name, and all placed pods by UID."""

    nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Placed] = field(default_factory=dict)

    def copy(self) -> Picture:
        return Picture(dict(self.nodes), dict(self.pods))

    def reasons(self, node: str, shape: int) -> tuple[str, list[str]]:
        """Return the rule that refuses the node for a pod of that shape, and its reasons; "" and none if it fits."""
        here = self.nodes[node]
        world = World((here,), tuple(self.on(node)))
        for name, rule in FILTERS.items():
            refusal = rule(PODS[shape], here, world)
            if refusal is not None:
                return name, list(refusal.reasons)
        return "", []

    def on(self, node: str) -> list[Json]:
        return [placed.body for placed in self.pods.values() if placed.node == node]

    def devices(self, node: str, shape: int) -> str:
        """Return the devices that a pod of that shape gets: for a share, the fullest that has room."""
        amount = TAKES[shape][0].get(GPU_MILLI, 0)
        free = gpu_share.left(self.nodes[node], self.on(node))
        room = [index for index, left in enumerate(free) if left >= min(amount, 1000)]
        if amount < 1000:
            room = sorted(room, key=free.__getitem__)[: int(amount > 0)]
        wanted = -(-amount // 1000)
        return ",".join(map(str, room[:wanted])) if len(room) >= wanted else ""

    def feasible(self, shape: int) -> set[str]:
        return {name for name in self.nodes if not self.reasons(name, shape)[0]}

    def row(self, name: str) -> Row:
        node = self.nodes[name]
        requested: Counter[str] = Counter()
        scored: Counter[str] = Counter()
        ports: set[int] = set()
        for placed in self.pods.values():
            if placed.node == name:
                amounts, counted, taken = TAKES[placed.shape]
                requested.update(amounts)
                scored.update(counted)
                ports |= taken
        allocatable = node["status"]["allocatable"]
        return Row(
            node["metadata"]["uid"],
            {resource: _value(resource, text) for resource, text in allocatable.items()},
            {resource: amount for resource, amount in requested.items() if amount},
            {resource: amount for resource, amount in scored.items() if amount},
            ports,
            node["metadata"]["labels"],
            [(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]],
            node["spec"]["unschedulable"],
            gpu_share.left(node, self.on(name)),
        )

    def rows(self) -> dict[str, Row]:
        return {name: self.row(name) for name in self.nodes}
