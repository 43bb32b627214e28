"""All of the engine that is between a scheduler's watches and its binder, fed with objects as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import ClassViews, decide
from agent_scheduler.engine.decide.ranking import REFUSED
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.dra.allocator import CannotAllocate
from agent_scheduler.engine.framework.args import FragmentationArgs, PluginArgs
from agent_scheduler.engine.framework.plugin import PodUnrankable
from agent_scheduler.engine.framework.points import Enabled, PluginSet
from agent_scheduler.engine.plugins.dynamic_resources import DynamicResources
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.state.gpus import RESOURCE as GPU
from agent_scheduler.engine.state.labelselector import label_selector
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.owners import Owners
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.engine.state.siblings import OwnerKind
from agent_scheduler.engine.state.targetworkload import TargetWorkload
from agent_scheduler.objects import wire
from apimachinery.codec import decode
from tests.support.engine import World

Obj = dict[str, Any]

#: Kind -> name, or UID of a pod -> object.
Objects = Mapping[str, Mapping[str, Any]]

PROFILES = ("agent", "default-scheduler")
#: A profile whose scores read GPUs, and labels of nodes that are alike in their room.
PACKING = "packing"
#: The same with a target workload that is learnt.
LEARNING = "learning"
_ZONE = "topology.kubernetes.io/zone"
_WORKLOAD: list[Obj] = [
    {"requests": {"cpu": 1, GPU: 1000}, "nodeSelector": {_ZONE: "a"}, "weight": 3},
    {"requests": {"cpu": "500m", GPU: 300}},
    {"requests": {GPU: 2000}, "nodeSelector": {"rack": "a"}},
    {"requests": {"cpu": "700m", "memory": "1Gi"}, "nodeSelector": {_ZONE: "b"}, "weight": 2},
    {"requests": {"cpu": 3}},
]
KINDS = ("namespaces", "services", "classes", "slices", "claims", "storageclasses", "volumes", "volumeclaims")


def _packing(name: str, args: dict[str, PluginArgs]) -> ProfileSpec:
    scores = (Enabled("Fragmentation", 100), *map(Enabled, ("GPUPacking", "BestFit", "DotProduct")))
    return ProfileSpec(scheduler_name=name, plugins={"score": PluginSet(scores, ("*",))}, args=args)


class Question(NamedTuple):
    """How a pod is decided on. `in_full`: all that is kept is to be told, and not only what is chosen."""

    candidates: int
    offset: int
    nominated: str
    taken: tuple[str, ...]
    in_full: bool


class Answer(NamedTuple):
    #: (node, row) of the candidates, or why there are none.
    chosen: tuple[tuple[str, int], ...]
    message: str
    plugins: frozenset[str]
    #: The devices that the pod's claims would get on the chosen nodes.
    devices: tuple[tuple[str, ...], ...]
    #: [row] final score above that of the worst feasible node; None where it is refused.
    ranked: tuple[int | None, ...]
    #: What the filters say of all nodes.
    reasons: Mapping[str, int]
    curable: tuple[int, ...]


class Live(World):
    """An engine that is told of objects one by one, and keeps what it keeps."""

    def __init__(self, objects: Objects, rows: Sequence[str | None], workload: TargetWorkload | None = None) -> None:
        """`rows`: the names of the nodes by their rows; None where there is no node. `workload`: what was learnt."""
        super().__init__()
        self.workload = workload or TargetWorkload()
        self.owners = Owners(PROFILES[1:])
        self._read = PodReader(PodClasses(images_for=PROFILES[1:]))
        for kind in KINDS:
            for called, body in objects[kind].items():
                self.set(kind, called, body)
        for row, name in enumerate(rows):
            self.set("nodes", "", {"metadata": {"name": f"{row}"}} if name is None else objects["nodes"][name])
        for row, name in enumerate(rows):
            if name is None:
                self.delete("nodes", f"{row}")
        for uid, body in objects["pods"].items():
            self.set("pods", uid, body)
        given = {"Fragmentation": decode({"targetWorkload": _WORKLOAD}, FragmentationArgs)}
        specs = [ProfileSpec(scheduler_name=name, base=name) for name in PROFILES]
        self.views_of = {
            spec.scheduler_name: ClassViews(build_profile(spec), self.snapshot)
            for spec in (*specs, _packing(PACKING, given), _packing(LEARNING, {}))
        }

    @property
    def names_of_rows(self) -> list[str | None]:
        return [None if each is None else each.name for each in self.columns.nodes[: self.columns.size]]

    def read(self, body: Obj) -> PodInfo:
        return self._read(msgspec.json.encode(body))

    def set(self, kind: str, name: str, body: Any) -> None:
        """`body`: the JSON of a node, pod, namespace or service, and else what is read of one."""
        match kind:
            case "nodes":
                self.ledger.set_node(node_info(msgspec.convert(body, wire.Node), images=True))
            case "pods":
                self.ledger.set_pod(self.read(body), body["spec"]["nodeName"])
            case "namespaces":
                self.namespaces.set(name, body["metadata"]["labels"])
            case "services":
                selector = wire.LabelSelector(match_labels=body["spec"]["selector"])
                self.owners.set(OwnerKind.SERVICE, "default", name, label_selector(selector, "spec.selector"))
            case _:
                self.add(body)

    def delete(self, kind: str, name: str) -> None:
        match kind:
            case "nodes":
                self.ledger.remove_node(name)
            case "pods":
                self.ledger.remove_pod(name)
            case "namespaces":
                self.namespaces.delete(name)
            case "services":
                self.owners.delete(OwnerKind.SERVICE, "default", name)
            case "slices":
                self.devices.pools.delete_slice(name)
            case "claims":
                self.devices.delete_claim(("default", name))
            case "volumes":
                self.catalogue.delete_volume(name)
            case "volumeclaims":
                self.catalogue.delete_claim("default", name)
            case _:
                raise LookupError(kind)

    def view_of(self, pod: PodInfo) -> ClassView:
        self.snapshot.refresh()
        return self.views_of[pod.scheduler_name].of(self.handle.class_of(pod))

    def answer(self, pod: PodInfo, asked: Question) -> Answer:
        view = self.view_of(pod)
        columns, rows = self.snapshot.columns, self.ledger.rows
        taken = [rows[name] for name in asked.taken]
        message, plugins = "", frozenset[str]()
        chosen: tuple[tuple[str, int], ...] = ()
        try:
            decision = decide(
                view,
                columns,
                candidates=asked.candidates,
                offset=asked.offset,
                nominated=rows.get(asked.nominated),
                taken=taken,
            )
        except PodUnrankable as why:
            message = str(why)
        else:
            if isinstance(decision, Refusal):
                message, plugins = decision
            else:
                chosen = tuple((each.node_name, each.row) for each in decision.candidates)
        ranked: tuple[int | None, ...] = ()
        reasons: Mapping[str, int] = {}
        curable: tuple[int, ...] = ()
        if asked.in_full:
            totals = view.ranked(columns)
            worst = int(totals[totals != REFUSED].min(initial=2**62))
            ranked = tuple(None if each == REFUSED else each - worst for each in totals.tolist())
            refused = view.refused(columns)
            reasons, curable = refused.counts, tuple(refused.curable.tolist())
        devices = tuple(self._devices(view, row) for _, row in chosen)
        return Answer(chosen, message, plugins, devices, ranked, reasons, curable)

    def _devices(self, view: ClassView, row: int) -> tuple[str, ...]:
        """The devices that claims of the view's class would get on a row."""
        found: list[str] = []
        for entry in view.filters:
            if isinstance(entry.plugin, DynamicResources):
                answer = entry.state.answer_of_one(self.snapshot.columns, row)
                assert not isinstance(answer, CannotAllocate), "a node that was chosen passes every filter"
                found += [str(each.id) for allocation in answer for each in allocation.results]
        return tuple(found)
