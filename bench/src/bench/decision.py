"""Measures what a decision costs in the engine alone, without queue and requests, on 1,000 to 100,000 nodes.

   python -m bench.decision [--batches 9 --only plain]

A decision is everything that a cycle and the binder do between a popped pod and the request that binds it: the pod's
class, the refresh of the snapshot and of the class's view, the choice, the candidates, their re-check and the
assumption. The components are the shipped ones with the default profile. Every node has one pod at first; the pods of a
batch are confirmed and removed before the next one, outside the measured time, and a batch begins with a snapshot that
is up to date. Figures are CPU microseconds per pod, the median of the batches.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from agent_scheduler.engine.decide.decide import decide, judge
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.state.podinfo import PodInfo
from bench.scene import Scene, frozen
from bench.tables import spread, table

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = 10

#: Returns the spec of a pod without its container, by the pod's number: the pods of a variant may differ.
Spec = Callable[[int], Mapping[str, Any]]

_REQUESTS = {"cpu": "100m", "memory": "128Mi"}
_SELF = {"matchLabels": {"app": "bench"}}


def _spread(key: str, when: str) -> Spec:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": _SELF}
    return lambda number: {"topologySpreadConstraints": [constraint]}


def _affinity(kind: str, key: str, *, preferred: bool = False) -> Spec:
    term: dict[str, Any] = {"topologyKey": key, "labelSelector": _SELF}
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    if preferred:
        name, term = ("preferredDuringSchedulingIgnoredDuringExecution", {"weight": 10, "podAffinityTerm": term})
    return lambda number: {"affinity": {kind: {name: [term]}}}


def _preferred_nodes(number: int) -> Mapping[str, Any]:
    wanted = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    terms = [{"weight": 10, "preference": wanted}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def _plain(number: int) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A cluster and its pods. `limit`: the limit in microseconds per pod; None: there is none."""

    name: str
    nodes: int
    pods: int = 500
    spec: Spec = _plain
    #: Whether every pod asks for another amount, and so is a class of its own.
    differ: bool = False
    #: Whether every pod has other requests, and so is a class of its own.
    avoided: bool = False
    #: Whether some nodes have a preferred taint, so that scores of all nodes are normalized.
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
    Variant(name="nodes anti-affinity, required", nodes=5000, spec=_affinity("podAntiAffinity", HOSTNAME), limit=100),
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


class DecisionCluster(Scene):
    """The cluster of the variant, with one pod on every node."""

    def __init__(self, variant: Variant) -> None:
        def fill(scene: Scene) -> None:
            here = scene.pod("here", _REQUESTS)
            for number in range(variant.nodes):
                _add_node(scene, number, variant)
                scene.ledger.set_pod(msgspec.structs.replace(here, uid=f"here-{number}"), f"node-{number}")

        super().__init__(fill)
        self.variant = variant
        self.pods = [
            self.pod(
                f"pod-{number}",
                {**_REQUESTS, "cpu": f"{100 + variant.differ * number}m"},
                labels={"app": "bench"},
                spec=variant.spec(number),
            )
            for number in range(variant.pods)
        ]

    def decide(self, pod: PodInfo) -> str:
        """Decide and assume: the measured part. Return the name of the node."""
        self.snapshot.refresh()
        columns = self.snapshot.columns
        view = self.views.of(self.handle.class_of(pod))
        decision = decide(view, columns, candidates=self.settings.candidates)
        if isinstance(decision, Refusal):
            raise RuntimeError(decision.message)
        verdict = judge(self.ledger, decision.candidates, view.filters, self.settings.policy, seen=decision.seen)
        if verdict.candidate is None:
            raise RuntimeError("no other pod took the capacity, and it is gone nevertheless")
        self.ledger.assume(pod, verdict.candidate.row)
        return verdict.candidate.node_name

    def batch(self) -> float:
        """Run a batch; return the CPU microseconds per pod."""
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


def _add_node(scene: Scene, number: int, variant: Variant) -> None:
    avoid = {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}
    scene.add_node(
        f"node-{number}",
        {"cpu": "32", "memory": "128Gi", "pods": "110"},
        labels={
            ZONE: f"zone-{number % ZONES}",
            HOSTNAME: f"node-{number}",
            "disk": "ssd" if number % 3 == 0 else "hdd",
        },
        taints=[avoid] if variant.avoided and number % 4 == 0 else [],
    )


def measure(variant: Variant, batches: int) -> list[float]:
    """Return a figure for each batch without the first one, in which everything is compiled."""
    cluster = DecisionCluster(variant)
    with frozen():
        cluster.batch()
        return [cluster.batch() for _ in range(batches)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batches", type=int, default=9, help="batches a figure is the median of")
    parser.add_argument("--only", default="", help="variants whose name has this in it")
    parser.add_argument("--nodes", type=int, help="all clusters of this size, and no more pods than nodes")
    args = parser.parse_args(argv)
    figures = {}
    for variant in VARIANTS:
        if args.only not in variant.name:
            continue
        if args.nodes:
            variant = replace(variant, nodes=args.nodes, pods=min(variant.pods, args.nodes))
        figures[variant] = measure(variant, args.batches)
    rows = [
        (variant.name, spread(values), "" if variant.limit is None else f"{variant.limit:g}")
        for variant, values in figures.items()
    ]
    print(table(("decision alone", "CPU us per pod", "limit"), rows))


if __name__ == "__main__":
    main()
