"""The engine under test, on a cluster with devices."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from agent_scheduler.engine.decide import ClassViews
from agent_scheduler.engine.dra.allocation import Allocation
from agent_scheduler.engine.dra.allocator import Refused
from agent_scheduler.engine.dra.answers import answer
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.demand import PodRef
from agent_scheduler.engine.dra.records import read_claim, read_device_class, read_slice
from agent_scheduler.engine.dra.reservation import Reservation, reserve
from agent_scheduler.engine.framework import Profile
from agent_scheduler.engine.handle import Handle
from agent_scheduler.engine.nodeinfo import NodeInfo
from agent_scheduler.engine.snapshot import Snapshot
from tests.decisions.devices.validity import Cluster, Obj
from tests.decisions.engine import DEFAULT, Engine
from tests.decisions.plain import World

NAMESPACE = "default"


class Decided(NamedTuple):
    """Where the pod can go, or why it can go nowhere."""

    nodes: tuple[str, ...]
    message: str = ""


class DeviceEngine(Engine):
    """Ledger, devices, snapshot and views of one cluster."""

    def __init__(self, cluster: Cluster, claims: tuple[Obj, ...], profile: Profile = DEFAULT) -> None:
        super().__init__(World(tuple(dict(node) for node in cluster.nodes), (), {NAMESPACE: {}}), profile)
        self.devices = Devices(self.ledger.touch)
        for each in cluster.classes:
            self.devices.set_class(read_device_class(stored(each)))
        for each in cluster.slices:
            self.devices.set_slice(read_slice(stored(each)))
        for each in (*cluster.allocated, *claims):
            self.devices.set_claim(read_claim(stored(each, NAMESPACE)))
        self.snapshot = Snapshot(self.ledger, Handle(self.ledger, devices=self.devices))
        self.views = ClassViews(profile, self.snapshot)

    def where(self, pod: Obj) -> Decided:
        decided = self.decide(dict(pod))
        return Decided(decided.candidates, decided.message or "")

    def node(self, name: str) -> NodeInfo:
        node = self.ledger.columns.nodes[self.ledger.rows[name]]
        assert node is not None, "the node is there"
        return node

    def allocations(self, pod: Obj, node_name: str) -> tuple[Allocation, ...]:
        """What the claims of the pod get there."""
        wanted = self.snapshot.handle.class_of(self.waiting(dict(pod))).claims
        assert wanted is not None, "the pod has claims"
        found = answer(wanted, self.devices, self.node(node_name))
        assert not isinstance(found, Refused), found
        return found

    def reserve(self, pod: Obj, node_name: str) -> Reservation | Refused:
        """As the binder does it."""
        info = self.waiting(dict(pod))
        wanted = self.snapshot.handle.class_of(info).claims
        assert wanted is not None, "the pod has claims"
        ref = PodRef(info.namespace, info.name, info.uid)
        return reserve(info.claims, wanted, self.devices, self.node(node_name), ref)


def stored(body: Obj, namespace: str = "") -> bytes:
    """An object as the API server would have it: it has a UID and a version."""
    metadata: dict[str, Any] = {**body["metadata"], "resourceVersion": "1"}
    metadata.setdefault("uid", f"uid-{metadata['name']}")
    if namespace:
        metadata.setdefault("namespace", namespace)
    return msgspec.json.encode({**body, "metadata": metadata})
