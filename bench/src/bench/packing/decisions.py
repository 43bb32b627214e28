"""Places pods one after another by the scheduler's own decisions: a ledger, and the views of a profile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.framework.args import FragmentationArgs
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.rules.fragmentation import Measure
from agent_scheduler.engine.state.columns import CPU, MEMORY
from agent_scheduler.engine.state.gpus import NO_GPUS, WHOLE, Indices, choose
from agent_scheduler.engine.state.namespaces import Namespaces
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.owners import Owners
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.engine.state.targetworkload import TargetWorkload
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.objects import wire

from ..harness.manifests import encode, given_node, pod_maker, template_of
from ..harness.specs import NodeSpec, PodSpec
from .policies import Policy

_UID: Final = "@uid@"


class Pods:
    """Creates pods from specs as the API server would send them."""

    def __init__(self) -> None:
        self._read = PodReader(PodClasses())
        self._made: dict[object, Callable[[str], bytes]] = {}

    def pod(self, spec: PodSpec, name: str) -> PodInfo:
        """Return the pod. `name` is also the UID."""
        kind = (tuple(spec.requests.items()), tuple(spec.affinity.items()))
        make = self._made.get(kind)
        if make is None:
            make = self._made[kind] = pod_maker(template_of(spec), scheduler_name="packing", selector={})
        return self._read(make(name).replace(b'"name":', b'"uid":"%s","name":' % name.encode(), 1))


class Decisions:
    """A cluster in which a policy decides where pods are placed."""

    def __init__(self, nodes: Iterable[NodeSpec], policy: Policy, pods: Sequence[PodSpec], seed: int) -> None:
        """Create the cluster. `pods`: the expected pods, for policies with a target workload."""
        self._policy = policy
        self._chance = random.Random(seed)
        self.ledger = ledger = Ledger()
        self._workload = TargetWorkload()
        devices = Devices()
        handle = Handle(
            ledger,
            namespaces=Namespaces(),
            owners=Owners(),
            catalogue=Catalogue(),
            devices=devices,
            target_workload=self._workload,
        )
        profile = policy.profile(pods).seeing(ledger, devices, NativeGroups())
        for spec in nodes:
            ledger.set_node(node_info(msgspec.json.decode(encode(given_node(spec)), type=wire.Node)))
        self._snapshot = Snapshot(ledger, handle)
        self._views = ClassViews(profile, self._snapshot)
        #: Number of decisions, and their CPU seconds.
        self.decided = 0
        self.seconds = 0.0

    def seen(self, pod: PodInfo) -> None:
        """Report an arriving pod to policies that learn. Must be called once for each."""
        self._workload.seen(pod.cls)

    def place(self, pod: PodInfo) -> bool:
        """Place the pod; return whether it got a node."""
        began = time.process_time()
        self._snapshot.refresh()
        view = self._views.of(self._snapshot.handle.class_of(pod))
        row, gpus = None, None
        if self._policy.is_random:
            rows = view.feasible_rows(self._snapshot.columns)
            if rows.size:
                row = int(self._chance.choice(rows))
                gpus = self._any_gpus(row, pod.cls.gpu)
        else:
            decision = decide(view, self._snapshot.columns, candidates=1)
            if isinstance(decision, CandidateNodes):
                row = decision.candidates[0].row
        if row is not None:
            self.ledger.assume(pod, row, gpus)
            self.ledger.confirm(pod.uid)
        self.seconds += time.process_time() - began
        self.decided += 1
        return row is not None

    def remove(self, pod: PodInfo) -> None:
        self.ledger.remove_pod(pod.uid)

    def _any_gpus(self, row: int, amount: int) -> Indices:
        free = self.ledger.columns.gpus.get(row, NO_GPUS)
        if not 0 < amount < WHOLE:
            return choose(free, amount) if amount else ()
        return (self._chance.choice([index for index, left in enumerate(free) if left >= amount]),)

    def allocated(self, resource: str) -> float:
        """Return the pods' share of the total of all nodes."""
        columns = self.ledger.columns
        index = columns.interns.resources[resource]
        return float(columns.requested[index].sum() / columns.allocatable[index].sum())

    def unusable(self, args: FragmentationArgs) -> Callable[[], float]:
        """Return a function for the expected share of all GPUs that is free and unusable for the target workload."""
        measure, columns = Measure(args.given, args.weights), self.ledger.columns
        reach = measure.reach(columns)
        whole = sum(len(free) for free in columns.gpus.values()) * WHOLE

        def now() -> float:
            offers, taken = columns.offers, columns.taken
            return (
                sum(
                    measure.gpus.unusable(
                        gpus, offers[row][CPU] - taken[row][CPU], offers[row][MEMORY] - taken[row][MEMORY], reach[row]
                    )
                    for row, gpus in columns.gpus.items()
                )
                / whole
            )

        return now
