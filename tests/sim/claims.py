"""One choice of victims, and the cluster as the process that made it had seen it by then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.decisions.plain import World as Cluster

from .device_reading import without_extended
from .gpu_reading import as_placed, beside, with_devices
from .rules import cluster_of, refusal

if TYPE_CHECKING:
    from agent_scheduler.engine.state.ledger import Placement
    from agent_scheduler.fastpath.scheduler import FastPath

    from .evictions import Evictions
    from .processes import Process

Json = dict[str, Any]


@dataclass(eq=False, slots=True)
class Claim:
    """One choice of victims.

    `deleted` are those whose deletion was committed, `known` those of which the process was told so for this pod,
    `failed` those of which it was told for this pod that they stay, and `left` those that have gone.
    """

    by: str
    process: str
    uid: str
    name: str
    priority: int
    node: str
    victims: dict[str, str]
    #: The store's version when it was made, and the settings by which it was.
    rv: int
    settings: object
    deleted: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    #: The version of the node by which it was made.
    node_rv: int = 0
    #: When a pod of higher priority was first given the same node; 0.0 if none was.
    displaced: float = 0.0
    over: bool = False
    node_uid: str = ""

    @property
    def is_leaving(self) -> bool:
        """Whether some victim was deleted and is still there."""
        return self.deleted != self.left


class Seen:
    """The cluster as one process had seen it at a moment, in the API's own words."""

    def __init__(self, evictions: Evictions, process: Process, fast_path: FastPath) -> None:
        ledger = fast_path.ledger
        self._evictions = evictions
        self._fast_path = fast_path
        self.rules = process.rules()
        self.nodes = [
            evictions.object(info.uid, info.resource_version)
            for name in ledger.rows
            if (info := ledger.node(name)) is not None
        ]
        #: In the scheduler's order: of pods that are alike in all that counts it is the one that decides.
        self.placed = {name: [self._on(each) for each in ledger.pods_on(name)] for name in ledger.rows}

    def _on(self, placement: Placement) -> Json:
        pod = self.pod(placement.uid)
        assert pod is not None, "the ledger has no pod that was not seen"
        there = {**pod, "spec": {**pod["spec"], "nodeName": placement.node_name}}
        if placement.gpus and not pod["spec"].get("nodeName"):
            # Whatever the annotation of a pod says that is not bound.
            return with_devices(there, placement.gpus)
        return as_placed(there, placement.gpus)

    def pod(self, uid: str) -> Json | None:
        info = self._fast_path.cluster.pods.get(uid)
        return None if info is None else self._evictions.object(uid, info.resource_version)

    def node(self, name: str) -> Json | None:
        return next((node for node in self.nodes if node["metadata"]["name"] == name), None)

    @cached_property
    def cluster(self) -> Cluster:
        """With all pods that have a node, their extended resources left to whoever judges devices."""
        placed = (without_extended(pod) for pods in self.placed.values() for pod in pods)
        return cluster_of(self.nodes, placed)

    def fits(self, pod: Json, node: Json, *, without: Iterable[str] = (), and_: Sequence[Json] = ()) -> bool:
        """Whether the pod may go there, `without` some pods and with those of `and_` on the node."""
        cluster, gone = self.cluster, set(without)
        if gone or and_:
            name = node["metadata"]["name"]
            more = [{**each, "spec": {**each["spec"], "nodeName": name}} for each in and_]
            stay = [each for each in cluster.pods if each["metadata"]["uid"] not in gone]
            there = [each for each in stay if each["spec"]["nodeName"] == name] if and_ else []
            more = beside(more, node, there)
            cluster = cluster_of(cluster.nodes, [*stay, *map(without_extended, more)])
        return refusal(without_extended(pod), node, cluster, self.rules) is None
