"""What a decision costs alone: no queue, no request, only the engine, on clusters from 1,000 to 100,000 nodes.

    python -m bench.decision [--batches 9 --only plain --json]

A decision is all that a cycle and the binder do between a popped pod and the request that binds it: the pod's class,
the snapshot and the class's view brought up to date, the choice, the candidates, the judgement and the assumption.
The parts are the shipped ones with the default profile. Every node has one pod to begin with; what a batch placed is
confirmed and removed before the next, outside of the clock, and a batch begins with a snapshot that has seen that.
Figures are CPU microseconds a pod, the median of the batches.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import msgspec

from agent_scheduler.config.load import load
from agent_scheduler.engine.decide.conflicts import judge
from agent_scheduler.engine.decide.decide import ClassViews, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.podclass import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.fastpath.settings import settings_of
from agent_scheduler.objects import wire
from bench.tables import spread, table

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = 10

#: What a pod's spec has beside its container: by its number, as pods of a variant may differ.
Spec = Callable[[int], Mapping[str, Any]]

_SELF = {"matchLabels": {"app": "bench"}}


def _spread(key: str, when: str) -> Spec:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": _SELF}
    return lambda number: {"topologySpreadConstraints": [constraint]}


def _affinity(kind: str, key: str, *, preferred: bool = False) -> Spec:
    term: dict[str, Any] = {"topologyKey": key, "labelSelector": _SELF}
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    if preferred:
        name, term = (
            "preferredDuringSchedulingIgnoredDuringExecution",
            {"weight": 10, "podAffinityTerm": term},
        )
    return lambda number: {"affinity": {kind: {name: [term]}}}


def _preferred_nodes(number: int) -> Mapping[str, Any]:
    wanted = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    terms = [{"weight": 10, "preference": wanted}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def _plain(number: int) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A cluster and the pods that come. `limit`: what a pod may cost, in microseconds; None: nobody has said."""

    name: str
    nodes: int
    pods: int = 500
    spec: Spec = _plain
    #: Whether every pod asks for another amount, and so is a class of its own.
    differ: bool = False
    #: Whether some nodes would rather be left alone, which has to be weighed against all other nodes.
    avoided: bool = False
    #: Whether a pod ends for each that comes.
    churn: bool = False
    limit: float | None = None


VARIANTS = (
    *(Variant(name=f"plain, {nodes:,} nodes", nodes=nodes) for nodes in (1000, 50_000)),
    Variant(name="plain, 5,000 nodes", nodes=5000, limit=15),
    Variant(name="plain, 100,000 nodes", nodes=100_000, limit=30),
    Variant(name="plain, pods end as others come", nodes=5000, churn=True),
    Variant(name="all classes different", nodes=5000, pods=5000, differ=True, limit=150),
    Variant(name="zones spread, required", nodes=5000, spec=_spread(ZONE, "DoNotSchedule"), limit=100),
    Variant(name="nodes spread, required", nodes=5000, spec=_spread(HOSTNAME, "DoNotSchedule"), limit=100),
    Variant(name="zones spread, preferred", nodes=5000, spec=_spread(ZONE, "ScheduleAnyway"), limit=100),
    Variant(name="nodes spread, preferred", nodes=5000, spec=_spread(HOSTNAME, "ScheduleAnyway"), limit=100),
    Variant(
        name="nodes anti-affinity, required",
        nodes=5000,
        spec=_affinity("podAntiAffinity", HOSTNAME),
        limit=100,
    ),
    Variant(
        name="zones anti-affinity, preferred",
        nodes=5000,
        spec=_affinity("podAntiAffinity", ZONE, preferred=True),
        limit=100,
    ),
    Variant(name="zones affinity, required", nodes=5000, spec=_affinity("podAffinity", ZONE), limit=100),
    Variant(name="node affinity, preferred", nodes=5000, spec=_preferred_nodes),
    Variant(name="plain, some nodes avoided", nodes=5000, avoided=True),
)


class Scene:
    """The engine as a scheduler has it, on the variant's cluster."""

    def __init__(self, variant: Variant) -> None:
        settings = settings_of(load(), identity="bench")
        (profile,) = settings.profiles
        self.variant, self.policy, self.candidates = variant, settings.policy, settings.candidates
        self.scheduler_name = settings.name
        self.classes = PodClasses()
        self.ledger = Ledger()
        for number in range(variant.nodes):
            self.ledger.set_node(node_info(_node(number, variant)))
        (here,) = self._pods("here", 1, lambda number: {}, differ=False)
        for number in range(variant.nodes):
            self.ledger.set_pod(msgspec.structs.replace(here, uid=f"here-{number}"), f"node-{number}")
        self.handle = Handle(self.ledger)
        self.snapshot = Snapshot(self.ledger, self.handle)
        self.views = ClassViews(profile, self.snapshot)
        self.pods = list(self._pods("pod", variant.pods, variant.spec, differ=variant.differ))

    def _pods(self, name: str, count: int, spec: Spec, *, differ: bool) -> Iterable[PodInfo]:
        read = PodReader(self.classes)
        for number in range(count):
            requests = {"cpu": f"{100 + differ * number}m", "memory": "128Mi"}
            pod = {
                "metadata": {
                    "namespace": "default",
                    "name": f"{name}-{number}",
                    "uid": f"{name}-{number}",
                    "labels": {"app": "bench"} if name == "pod" else {},
                },
                "spec": {
                    "schedulerName": self.scheduler_name,
                    "containers": [{"name": "c", "resources": {"requests": requests}}],
                    **spec(number),
                },
            }
            yield read(msgspec.json.encode(pod))

    def decide(self, pod: PodInfo) -> str:
        """The timed part. Gives the name of the node that was taken."""
        self.snapshot.refresh()
        columns = self.snapshot.columns
        view = self.views.of(self.handle.class_of(pod))
        decision = decide(view, columns, candidates=self.candidates)
        if isinstance(decision, Refusal):
            raise RuntimeError(decision.message)
        verdict = judge(self.ledger, decision.candidates, view.filters, self.policy, seen=decision.seen)
        if verdict.candidate is None:
            raise RuntimeError("nobody else took the room, and still it is gone")
        self.ledger.assume(pod, verdict.candidate.row)
        return verdict.candidate.node_name

    def batch(self) -> float:
        """CPU microseconds a pod."""
        ledger, ends = self.ledger, self.variant.churn
        ended = 0
        gc.collect()
        began = time.process_time()
        for number, pod in enumerate(self.pods):
            self.decide(pod)
            if ends and number >= len(self.pods) // 2:
                ledger.remove_pod(self.pods[ended].uid)
                ended += 1
        took = time.process_time() - began
        for pod in self.pods[ended:]:
            ledger.confirm(pod.uid)
            ledger.remove_pod(pod.uid)
        self.snapshot.refresh()
        self.views.of(self.handle.class_of(self.pods[0]))
        return took / len(self.pods) * 1e6


def _node(number: int, variant: Variant) -> wire.Node:
    avoid = {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}
    node = {
        "metadata": {
            "name": f"node-{number}",
            "uid": f"node-{number}",
            "labels": {
                ZONE: f"zone-{number % ZONES}",
                HOSTNAME: f"node-{number}",
                "disk": "ssd" if number % 3 == 0 else "hdd",
            },
        },
        "spec": {"taints": [avoid] if variant.avoided and number % 4 == 0 else []},
        "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
    }
    return msgspec.convert(node, wire.Node)


def measure(variant: Variant, batches: int) -> list[float]:
    """A figure for each batch; the first, in which all is compiled, is left out."""
    scene = Scene(variant)
    gc.collect()
    gc.freeze()
    try:
        scene.batch()
        return [scene.batch() for _ in range(batches)]
    finally:
        gc.unfreeze()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batches", type=int, default=9, help="batches a figure is the median of")
    parser.add_argument("--only", default="", help="variants whose name has this in it")
    parser.add_argument("--nodes", type=int, help="all clusters of this size, and no more pods than nodes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    figures = {}
    for variant in VARIANTS:
        if args.only not in variant.name:
            continue
        if args.nodes:
            variant = replace(variant, nodes=args.nodes, pods=min(variant.pods, args.nodes))
        figures[variant] = measure(variant, args.batches)
    if args.json:
        print(json.dumps({variant.name: round(median(values), 3) for variant, values in figures.items()}))
        return
    rows = [
        (variant.name, spread(values), "" if variant.limit is None else f"{variant.limit:g}")
        for variant, values in figures.items()
    ]
    print(table(("decision alone", "CPU us a pod", "held to"), rows))


if __name__ == "__main__":
    main()
