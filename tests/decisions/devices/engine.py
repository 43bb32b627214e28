"""The engine under test, on a cluster with devices: the DynamicResources plugin among the others, on a view."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from agent_scheduler.engine.decide import ClassViews, Refusal, decide
from agent_scheduler.engine.dra.allocation import Allocation
from agent_scheduler.engine.dra.allocator import Refused
from agent_scheduler.engine.dra.answers import answer
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.records import read_claim, read_device_class, read_slice
from agent_scheduler.engine.framework import Profile, WeightedScore
from agent_scheduler.engine.handle import Handle
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.nodeinfo import node_info
from agent_scheduler.engine.plugins.dynamic_resources import DynamicResources, DynamicResourcesScore
from agent_scheduler.engine.podclass import PodClasses
from agent_scheduler.engine.podinfo import PodInfo, PodReader
from agent_scheduler.engine.snapshot import Snapshot
from agent_scheduler.objects import wire
from tests.decisions.devices.validity import Cluster, Obj
from tests.decisions.engine import DEFAULT

NAMESPACE = "default"


class Decided(NamedTuple):
    """Where the pod can go, or why it can go nowhere."""

    nodes: tuple[str, ...]
    message: str = ""


class DeviceEngine:
    """Ledger, devices, snapshot and views of one cluster."""

    def __init__(self, cluster: Cluster, claims: tuple[Obj, ...]) -> None:
        self.ledger = Ledger()
        self.devices = Devices(self.ledger.touch)
        self.classes = PodClasses()
        for node in cluster.nodes:
            self.ledger.set_node(node_info(msgspec.convert(node, wire.Node)))
        for each in cluster.classes:
            self.devices.set_class(read_device_class(stored(each)))
        for each in cluster.slices:
            self.devices.set_slice(read_slice(stored(each)))
        for each in (*cluster.allocated, *claims):
            self.devices.set_claim(read_claim(stored(each, NAMESPACE)))
        self.snapshot = Snapshot(self.ledger, Handle(self.ledger, devices=self.devices))
        self.plugin = DynamicResources(self.devices)
        self.views = ClassViews(with_devices(self.plugin), self.snapshot)

    def read(self, pod: Obj) -> PodInfo:
        metadata = {**pod["metadata"], "namespace": NAMESPACE, "uid": f"uid-{pod['metadata']['name']}"}
        return PodReader(self.classes)(msgspec.json.encode({**pod, "metadata": metadata}))

    def decide(self, pod: Obj) -> Decided:
        self.snapshot.refresh()
        view = self.views.of(self.snapshot.handle.class_of(self.read(pod)))
        columns = self.snapshot.columns
        decision = decide(view, columns, candidates=len(columns.nodes))
        if isinstance(decision, Refusal):
            return Decided((), decision.message)
        return Decided(tuple(candidate.node_name for candidate in decision.candidates))

    def allocations(self, pod: Obj, node_name: str) -> tuple[Allocation, ...]:
        """What the claims of the pod get there."""
        wanted = self.snapshot.handle.class_of(self.read(pod)).claims
        node = self.ledger.columns.nodes[self.ledger.rows[node_name]]
        assert wanted is not None and node is not None, "the pod has claims, and the node is there"
        found = answer(wanted, self.devices, node)
        assert not isinstance(found, Refused), found
        return found


def with_devices(plugin: DynamicResources) -> Profile:
    """kube-scheduler's default profile."""
    others = tuple(each for each in DEFAULT.filters if each.name != plugin.name)
    scores = tuple(each for each in DEFAULT.scores if each.plugin.name != plugin.name)
    return Profile(
        DEFAULT.scheduler_name, (*others, plugin), (*scores, WeightedScore(DynamicResourcesScore(), 2))
    )


def stored(body: Obj, namespace: str = "") -> bytes:
    """An object as the API server would have it: it has a UID and a version."""
    metadata: dict[str, Any] = {**body["metadata"], "resourceVersion": "1"}
    metadata.setdefault("uid", f"uid-{metadata['name']}")
    if namespace:
        metadata.setdefault("namespace", namespace)
    return msgspec.json.encode({**body, "metadata": metadata})
