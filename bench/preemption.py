"""What the choice of victims costs: no queue, no request, only the engine, on clusters that are full.

    python -m bench.preemption [--preemptors 400 --json]

Every node is full of four pods of which a preemptor takes the place of three, as in scheduler_perf's PreemptionBasic.
The preemptors come one after the other; each finds the earlier ones nominated, as none of the victims has left yet.
Figures are CPU microseconds a preemptor, over all of them and over the last tenth, when most are nominated.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Sequence
from statistics import mean
from typing import Any

import msgspec

from agent_scheduler.config.load import load
from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.preemption.budgets import Budgets
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.preemption.select import Selection
from agent_scheduler.engine.queueing.nominator import Nominator
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.podclass import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.fastpath.settings import settings_of
from agent_scheduler.objects import wire
from bench.tables import short, table

NODES = (500, 5_000)
PODS_A_NODE = 4


class Scene:
    """The engine as a scheduler has it, on a cluster without room."""

    def __init__(self, nodes: int) -> None:
        settings = settings_of(load(), identity="bench")
        (self.profile,) = settings.profiles
        self.scheduler_name = settings.name
        self._read = PodReader(PodClasses())
        self.ledger = Ledger()
        for number in range(nodes):
            name = f"node-{number}"
            self.ledger.set_node(node_info(msgspec.convert(_node(name), wire.Node)))
            for each in range(PODS_A_NODE):
                self.ledger.set_pod(self.pod(f"low-{number}-{each}", cpu="900m", priority=0), name)
        self.handle = Handle(self.ledger)
        self.snapshot = Snapshot(self.ledger, self.handle)
        self.views = ClassViews(self.profile, self.snapshot)
        self.nominator: Nominator[PodInfo] = Nominator()
        self.nominations = Nominations(self.nominator, self.ledger, self.snapshot, lambda _: self.profile)
        self.selection = Selection(self.ledger, self.snapshot.columns, Budgets(), self.nominations)
        self.chance = random.Random(1)

    def pod(self, name: str, *, cpu: str, priority: int) -> PodInfo:
        container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}
        pod: dict[str, Any] = {
            "metadata": {"namespace": "default", "name": name, "uid": name},
            "spec": {"schedulerName": self.scheduler_name, "priority": priority, "containers": [container]},
            "status": {"startTime": "2026-01-01T00:00:00Z"},
        }
        return self._read(msgspec.json.encode(pod))

    def preempt(self, pod: PodInfo) -> str:
        """The timed part, as in a worker's cycle. Gives the node whose pods have to go."""
        self.snapshot.refresh()
        columns = self.snapshot.columns
        view = self.views.of(self.handle.class_of(pod))
        against = self.nominations.against(pod)
        refused = self.nominations.refused(pod, view, columns, against)
        plugin = self.profile.preemption
        assert plugin is not None, "the default profile preempts"
        found = self.selection.preempt(
            pod,
            view,
            refused,
            wanted=plugin.wanted,
            offset=lambda nodes: int(self.chance.random() * nodes),
            against=against,
        )
        if found.candidate is None:
            raise RuntimeError(found.message)
        return found.candidate.node_name

    def run(self, count: int) -> list[float]:
        """CPU microseconds of each of so many preemptors but the first, for which all is compiled."""
        took = []
        for number in range(count + 1):
            pod = self.pod(f"high-{number}", cpu="3", priority=1000)
            began = time.process_time()
            node_name = self.preempt(pod)
            took.append((time.process_time() - began) * 1e6)
            self.nominator.add(pod, node_name)
        return took[1:]


def _node(name: str) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {"metadata": {"name": name, "uid": name}, "status": {"allocatable": allocatable}}


def measure(nodes: int, preemptors: int) -> list[float]:
    scene = Scene(nodes)
    gc.collect()
    gc.freeze()
    try:
        return scene.run(preemptors)
    finally:
        gc.unfreeze()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preemptors", type=int, default=400, help="pods that want others' place")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)), help="sizes of clusters, by commas")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    figures = {int(nodes): measure(int(nodes), args.preemptors) for nodes in args.nodes.split(",")}
    last = max(1, args.preemptors // 10)
    if args.json:
        print(json.dumps({nodes: [mean(took), mean(took[-last:])] for nodes, took in figures.items()}))
        return
    rows = [
        (f"{nodes:,} nodes", short(mean(took)), short(mean(took[-last:]))) for nodes, took in figures.items()
    ]
    print(table(("choice of victims", "CPU us a preemptor", "of the last tenth"), rows))


if __name__ == "__main__":
    main()
