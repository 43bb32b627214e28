"""The engine with the default profile, without queue and requests, on a cluster created here."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from agent_scheduler.config.load import load
from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.state.namespaces import Namespaces
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.owners import Owners
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.engine.state.targetworkload import TargetWorkload
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.fastpath.settings import settings_of
from agent_scheduler.objects import wire

#: Creates the objects of the cluster.
Fill = Callable[["Scene"], None]


class Scene:
    """The engine on a cluster. `fill` creates the nodes and pods that exist before the engine starts."""

    def __init__(self, fill: Fill) -> None:
        self.settings = settings_of(load(), identity="bench")
        (self.profile,) = self.settings.profiles
        self._read = PodReader(PodClasses())
        self.ledger = Ledger()
        fill(self)
        self.handle = Handle(
            self.ledger,
            namespaces=Namespaces(),
            owners=Owners(),
            catalogue=Catalogue(),
            devices=Devices(),
            target_workload=TargetWorkload(),
        )
        self.snapshot = Snapshot(self.ledger, self.handle)
        self.views = ClassViews(self.profile, self.snapshot)

    def add_node(
        self,
        name: str,
        allocatable: Mapping[str, str],
        *,
        labels: Mapping[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
    ) -> None:
        node = {
            "metadata": {"name": name, "uid": name, "labels": labels or {}},
            "spec": {"taints": taints or []},
            "status": {"allocatable": allocatable},
        }
        self.ledger.set_node(node_info(msgspec.convert(node, wire.Node)))

    def pod(
        self,
        name: str,
        requests: Mapping[str, str],
        *,
        labels: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
    ) -> PodInfo:
        """Return a pod as a watch delivers it; `spec` is added to its container."""
        container = {"name": "c", "resources": {"requests": requests}}
        pod = {
            "metadata": {"namespace": "default", "name": name, "uid": name, "labels": labels or {}},
            "spec": {"schedulerName": self.settings.name, "containers": [container], **(spec or {})},
            "status": {"startTime": "2026-01-01T00:00:00Z"},
        }
        return self._read(msgspec.json.encode(pod))


@contextmanager
def frozen() -> Iterator[None]:
    """Exclude all existing objects from garbage collection, as in a scheduler after its first sync."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
