"""Measures what the choice of victims costs in the engine alone, without queue and requests, on full clusters.

   python -m bench.preemption [--preemptors 400]

Every node is full with four pods, and a preemptor needs the capacity of three, as in scheduler_perf's PreemptionBasic.
The preemptors arrive one after another; each finds the earlier ones nominated, because none of the victims has left
yet. Figures are CPU microseconds per preemptor, over all of them and over the last tenth, when most are nominated.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from statistics import mean

from agent_scheduler.engine.preemption.evaluator import Evaluator
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.preemption.pdbs import PDBs
from agent_scheduler.engine.queueing.nominator import Nominator
from agent_scheduler.engine.state.podinfo import PodInfo
from bench.scene import Scene, frozen
from bench.tables import short, table

NODES = (500, 5_000)
PODS_A_NODE = 4


class Full(Scene):
    """A cluster without free capacity."""

    def __init__(self, nodes: int) -> None:
        def fill(scene: Scene) -> None:
            for number in range(nodes):
                name = f"node-{number}"
                scene.add_node(name, {"cpu": "4", "memory": "32Gi", "pods": "110"})
                for each in range(PODS_A_NODE):
                    low = _pod(scene, f"low-{number}-{each}", cpu="900m", priority=0)
                    scene.ledger.set_pod(low, name)

        super().__init__(fill)
        self.nominator: Nominator = Nominator(is_pending=lambda _uid: True)
        self.nominations = Nominations(self.nominator, self.ledger, self.snapshot, lambda _: self.profile)
        self.selection = Evaluator(self.ledger, self.snapshot.columns, PDBs(), self.nominations)
        self.chance = random.Random(1)

    def preempt(self, pod: PodInfo) -> str:
        """Choose the victims as in a worker's cycle: the measured part. Return the name of their node."""
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
        """Return the CPU microseconds of `count` preemptors, after a first one for which everything is compiled."""
        took = []
        for number in range(count + 1):
            pod = _pod(self, f"high-{number}", cpu="3", priority=1000)
            began = time.process_time()
            node_name = self.preempt(pod)
            took.append((time.process_time() - began) * 1e6)
            self.nominator.add(pod, node_name)
        return took[1:]


def _pod(scene: Scene, name: str, *, cpu: str, priority: int) -> PodInfo:
    return scene.pod(name, {"cpu": cpu, "memory": "500Mi"}, spec={"priority": priority})


def measure(nodes: int, preemptors: int) -> list[float]:
    scene = Full(nodes)
    with frozen():
        return scene.run(preemptors)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preemptors", type=int, default=400, help="pods that want others' place")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)), help="sizes of clusters, by commas")
    args = parser.parse_args(argv)
    figures = {int(nodes): measure(int(nodes), args.preemptors) for nodes in args.nodes.split(",")}
    last = max(1, args.preemptors // 10)
    rows = [(f"{nodes:,} nodes", short(mean(took)), short(mean(took[-last:]))) for nodes, took in figures.items()]
    print(table(("choice of victims", "CPU us per preemptor", "of the last tenth"), rows))


if __name__ == "__main__":
    main()
