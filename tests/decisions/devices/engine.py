"""The engine under test, on a cluster with devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.allocation import Allocation
from agent_scheduler.engine.dra.allocator import CannotAllocate, answer
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.extended import claim_for
from agent_scheduler.engine.dra.records import read_claim, read_device_class, read_slice
from agent_scheduler.engine.dra.reservation import DEALLOCATED, STILL, ReservedClaims, reserve, to_deallocate
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.preemption.evaluator import NO_CLAIMS
from agent_scheduler.engine.profiles.profiles import REGISTRY, ProfileSpec, build_profile
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclaims import PodRef
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.decisions.devices.cases import EXTENDED, DeviceCase
from tests.decisions.devices.validity import Cluster, Obj
from tests.decisions.engine import DEFAULT, Engine
from tests.decisions.plain import World
from tests.decisions.preempting import message

NAMESPACE = "default"
#: The separator between the recordings' claims that were allocated long ago and others.
NOW = 1_780_000_000.0


class Decided(NamedTuple):
    """The node of the pod, or the reason of its refusal."""

    nodes: tuple[str, ...]
    message: str = ""


def profile_of(case: DeviceCase) -> Profile:
    """Return kube-scheduler's profile with the plugins' arguments of the case."""
    args = {name: msgspec.convert(given, REGISTRY[name].args) for name, given in case.profile.items()}
    return build_profile(ProfileSpec(scheduler_name="default-scheduler", base="default-scheduler", args=args))


class DeviceEngine(Engine):
    """Ledger, devices, snapshot and views of one cluster."""

    def __init__(self, cluster: Cluster, claims: tuple[Obj, ...], profile: Profile = DEFAULT) -> None:
        super().__init__(World(tuple(dict(node) for node in cluster.nodes), (), {NAMESPACE: {}}), profile)
        self.devices = Devices(self.ledger.touch)
        self.devices.now = NOW
        for each in cluster.classes:
            self.devices.set_class(read_device_class(stored(each)))
        for each in cluster.slices:
            self.devices.pools.set_slice(read_slice(stored(each)))
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

    def _asking(self, pod: Obj) -> tuple[PodInfo, Any, PodRef]:
        """Return the pod, the requests of its claims, and its references to them."""
        info = self.waiting(dict(pod))
        ref = PodRef(info.namespace, info.name, info.uid)
        return info, self.snapshot.handle.class_of(info).claims, ref

    def allocations(self, pod: Obj, node_name: str) -> tuple[Allocation, ...]:
        """Return the allocations of the pod's claims on the node."""
        _, wanted, _ = self._asking(pod)
        if wanted is None:
            return ()
        found = answer(wanted, self.devices, self.node(node_name))
        assert not isinstance(found, CannotAllocate), found
        return found

    def claims_there(self, pod: Obj, node_name: str, claims: Sequence[Obj]) -> tuple[Obj, ...]:
        """Return the claims of `allocations`: `claims`, and the one that is created for extended resources, if any."""
        made = self.made(pod, node_name)
        return (*claims, *([] if made is None else [{"metadata": {"name": EXTENDED}, "spec": made[0]}]))

    def made(self, pod: Obj, node_name: str) -> tuple[Obj, list[dict[str, str]]] | None:
        """Return the spec of that claim, and its devices by container."""
        info = self.waiting(dict(pod))
        if info.extended is None:
            return None
        return claim_for(info.extended, self.devices, self.node(node_name))

    def message(self, pod: Obj) -> str:
        """Return the message of a pod that fits nowhere."""
        _, wanted, ref = self._asking(pod)
        gives_back = wanted is not None and to_deallocate(wanted, self.devices, ref) is not None
        said = message(self, dict(pod)) or ""
        return said.replace(NO_CLAIMS, DEALLOCATED if gives_back else STILL) if wanted is not None else said

    def reserve(self, pod: Obj, node_name: str) -> ReservedClaims | CannotAllocate:
        """Reserve like the binder."""
        info, wanted, ref = self._asking(pod)
        assert wanted is not None, "the pod has claims"
        return reserve(info.claims, wanted, self.devices, self.node(node_name), ref)


def stored(body: Obj, namespace: str = "") -> bytes:
    """Return an object as the API server would have it: it has a UID and a version."""
    metadata: dict[str, Any] = {**body["metadata"], "resourceVersion": "1"}
    metadata.setdefault("uid", f"uid-{metadata['name']}")
    if namespace:
        metadata.setdefault("namespace", namespace)
    return msgspec.json.encode({**body, "metadata": metadata})
