"""The engine between a scheduler's watches and its binder: small clusters, and builders of their objects."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.records import DeviceClassInfo, SliceInfo
from agent_scheduler.engine.dra.records import ResourceClaimInfo as DeviceClaimInfo
from agent_scheduler.engine.events.events import ClusterEvent
from agent_scheduler.engine.events.hints import HintMap
from agent_scheduler.engine.framework.args import DefaultPreemptionArgs
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.plugins.default_preemption import DefaultPreemption
from agent_scheduler.engine.preemption.evaluator import Evaluator, PostFilterResult
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.preemption.pdbs import PDB, PDBs, read_pdb
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.queueing.nominator import Nominator
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.queueing.record import NullRecorder
from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.rules.topology import Domains
from agent_scheduler.engine.state.columns import Columns, Rows
from agent_scheduler.engine.state.namespaces import Namespaces
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_info
from agent_scheduler.engine.state.owners import Owners
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.engine.state.rowlog import RowLog
from agent_scheduler.engine.state.targetworkload import TargetWorkload
from agent_scheduler.engine.volumes import records
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.objects import wire
from agent_scheduler.objects.selecting import PodDisruptionBudget
from tests.support.handles import handle_of
from tests.support.queues import scheduling_queue

from . import objects

GPU = objects.GPU

#: The default profile, and that of kube-scheduler.
PACK = build_profile(ProfileSpec(scheduler_name="agent-scheduler"))
SPREAD = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base="default-scheduler"))

_uids = itertools.count()


def node(
    name: str, *, declared: Sequence[str] | None = None, images: Sequence[objects.Object] | None = None, **more: Any
) -> NodeInfo:
    """Return a node; `declared` are its features, `images` its status' images, which are read only if given."""
    status = {"declaredFeatures": declared, "images": images}
    body = objects.node(name, **{"uid": f"uid-{name}", "status": status, **more})
    return node_info(msgspec.convert(body, wire.Node), images=images is not None)


def pod_json(name: str = "", *, requests: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return a pod as the API server sends it, with its own UID; `more` is that of `objects.pod`."""
    number = next(_uids)
    about = {"namespace": "default", "uid": f"pod-{number}", **more}
    return objects.pod(name or f"p{number}", requests=requests or {}, **about)


def queue_of(name: str, parent: str = "", **more: Any) -> QueueInfo:
    """Return a queue; an integer as its capability, guarantee or deserved share means thousandths of a CPU."""
    vectors = ("capability", "guarantee", "deserved")
    read = {field: {"cpu": more[field]} for field in vectors if isinstance(more.get(field), int)}
    return QueueInfo(name=name, parent=parent, **more | read)


def budget(name: str, selector: Any, allowed: int = 0, **status: Any) -> PDB:
    """Return a disruption budget with `allowed` disruptions."""
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }
    return read_pdb(msgspec.convert(body, PodDisruptionBudget))


def covering(app: str, allowed: int, **status: Any) -> PDB:
    """Return a budget called `app` for all pods with that value of the label `app`."""
    return budget(app, {"matchLabels": {"app": app}}, allowed, **status)


def read_pod(body: dict[str, Any], classes: PodClasses) -> PodInfo:
    return PodReader(classes)(msgspec.json.encode(body))


def first(_nodes: int) -> int:
    return 0


class World:
    """The state of a cluster that one scheduler's decisions read, which tests fill instead of watches.

    The components above the ledger are assembled at their first use.
    """

    def __init__(self, *nodes: NodeInfo, profile: Profile = PACK) -> None:
        self.ledger = Ledger()
        self.classes = PodClasses()
        self.profile = profile
        self.namespaces = Namespaces()
        self.owners = Owners(["agent-scheduler"])
        self.catalogue = Catalogue()
        self.devices = Devices(self.ledger.touch)
        self.workload = TargetWorkload()
        self.nominator: Nominator = Nominator(is_pending=lambda _uid: True)
        self.pdbs = PDBs()
        for each in nodes:
            self.ledger.set_node(each)

    # ---- what is made of it

    @cached_property
    def handle(self) -> Handle:
        return handle_of(
            self.ledger,
            namespaces=self.namespaces,
            owners=self.owners,
            catalogue=self.catalogue,
            devices=self.devices,
            target_workload=self.workload,
        )

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.ledger, self.handle)

    @cached_property
    def views(self) -> ClassViews:
        return ClassViews(self.profile, self.snapshot)

    @cached_property
    def nominations(self) -> Nominations:
        return Nominations(self.nominator, self.ledger, self.snapshot, lambda _: self.profile)

    @cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.ledger, self.snapshot.columns, self.pdbs, self.nominations)

    # ---- what is in it

    def pod(self, name: str = "", *, requests: dict[str, str] | None = None, **more: Any) -> PodInfo:
        return read_pod(pod_json(name, requests=requests, **more), self.classes)

    def place(self, node_name: str, *, requests: dict[str, str] | None = None, **more: Any) -> PodInfo:
        pod = self.pod(requests=requests, nodeName=node_name, **more)
        self.ledger.set_pod(pod, node_name)
        return pod

    def run(self, name: str, on: str, *, cpu: str = "1", **more: Any) -> PodInfo:
        """Add a pod that has started, whose name is its UID. `more` has `started`, and fields of `objects.pod`."""
        started = {"startTime": more.pop("started", "2026-01-01T00:00:00Z")}
        about = {"uid": name, "priority": 0, "status": started, **more}
        pod = self.pod(name, requests={"cpu": cpu}, nodeName=on, **about)
        self.ledger.set_pod(pod, on)
        return pod

    def add(self, *found: Any) -> World:
        """Add objects of storage and of devices, as a watch delivers them."""
        for each in found:
            put(self.devices if isinstance(each, _OF_DEVICES) else self.catalogue, each)
        return self

    @property
    def columns(self) -> Columns:
        return self.ledger.columns

    @property
    def rows(self) -> Rows:
        return np.array(list(self.ledger.rows.values()), dtype=np.intp)

    def node(self, name: str) -> NodeInfo:
        found = self.ledger.node(name)
        assert found is not None
        return found

    def names(self, mask: Any) -> list[str]:
        """Return the nodes for which the mask over `rows` is true."""
        return [name for name, yes in zip(self.ledger.rows, mask, strict=True) if yes]

    # ---- what is decided

    def view(self, pod: PodInfo) -> ClassView:
        """Return the current view of the pod's class."""
        self.snapshot.refresh()
        return self.views.of(self.handle.class_of(pod))

    def decide(self, pod: PodInfo, *, candidates: int = 0, **more: Any) -> CandidateNodes | Refusal:
        """Decide as a worker does, with room reserved for nominated pods; `candidates` 0 means all nodes."""
        view, columns = self.view(pod), self.snapshot.columns
        against = self.nominations.against(pod)
        taken = self.nominations.taken(pod, view, columns, against)
        count = candidates or max(1, columns.size)
        found = decide(view, columns, candidates=count, **({"taken": taken} if taken else {}), **more)
        if isinstance(found, CandidateNodes) or not taken:
            return found
        return view.refusal(columns, self.nominations.refused(pod, view, columns, against))

    def chosen(self, pod: PodInfo, **more: Any) -> list[str]:
        """Return the candidate nodes of the pod, best first. Raises AssertionError if there is none."""
        found = self.decide(pod, **more)
        assert isinstance(found, CandidateNodes), found
        return [each.node_name for each in found.candidates]

    def feasible(self, pod: PodInfo) -> set[str]:
        found = self.decide(pod)
        return {each.node_name for each in found.candidates} if isinstance(found, CandidateNodes) else set()

    def refusal(self, pod: PodInfo) -> Refusal:
        found = self.decide(pod)
        assert isinstance(found, Refusal), found
        return found

    def message(self, pod: PodInfo) -> str:
        return self.refusal(pod).message

    def preempt(
        self,
        pod: PodInfo,
        *,
        offset: Callable[[int], int] = first,
        nominated: str = "",
        leaving: Collection[str] = frozenset(),
        **args: Any,
    ) -> PostFilterResult:
        """Run preemption for the pod; `args` are those of DefaultPreemption."""
        view, columns = self.view(pod), self.snapshot.columns
        against = self.nominations.against(pod)
        return self.evaluator.preempt(
            pod,
            view,
            self.nominations.refused(pod, view, columns, against),
            wanted=DefaultPreemption(DefaultPreemptionArgs(**args)).wanted,
            offset=offset,
            nominated=nominated,
            against=against,
            leaving=leaving,
        )

    # ---- what one plugin says

    def state(self, pod: PodInfo, plugin: Any) -> Any:
        return plugin.prepare(self.handle.class_of(pod), self.handle)

    def fits(self, pod: PodInfo, plugin: Any) -> list[bool]:
        """Return a filter's result for each node, the same for single rows as for all."""
        state, rows = self.state(pod, plugin), self.rows
        found: list[bool] = plugin.feasible(state, self.columns, rows).tolist()
        assert [plugin.feasible_row(state, self.columns, row) for row in rows.tolist()] == found
        return found

    def scores(self, pod: PodInfo, plugin: Any) -> list[int] | None:
        """Return a plugin's score of each node, the same for single rows as for all; None if it scores no node."""
        state, rows = self.state(pod, plugin), self.rows
        if state is None:
            return None
        found: list[int] = plugin.score(state, self.columns, rows).tolist()
        assert [plugin.score_row(state, self.columns, row) for row in rows.tolist()] == found
        return found


_OF_DEVICES = (DeviceClaimInfo, DeviceClassInfo, SliceInfo)


def put(where: Any, each: Any) -> bool:
    """Add a record to the storage or the devices that it belongs to. Returns whether anything changed."""
    if isinstance(each, SliceInfo):
        return bool(where.pools.set_slice(each))
    setters = {
        records.ClaimInfo: "set_claim",
        records.VolumeInfo: "set_volume",
        records.ClassInfo: "set_class",
        records.CSINodeInfo: "set_csi_node",
        records.DriverInfo: "set_driver",
        records.CapacityInfo: "set_capacity",
        records.AttachmentInfo: "set_attachment",
        DeviceClaimInfo: "set_claim",
        DeviceClassInfo: "set_class",
    }
    return bool(getattr(where, setters[type(each)])(each))


class _Raised(NullRecorder):
    """Records the errors of plugins' hints, for which the queue wakes pods."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str, Exception]] = []

    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None:
        self.errors.append((plugin, where, error))


def wakes(plugin: Any, pod: PodInfo, event: ClusterEvent, old: object | None, new: object | None) -> bool:
    """Return whether the event wakes a pod that `plugin` refused: with pre-hints as without, and without errors."""
    woken, raised = [], _Raised()
    for pre_hints in (True, False):
        queue: SchedulingQueue = scheduling_queue(
            {pod.scheduler_name: HintMap({plugin.name: plugin.events_to_register()})},
            pre_queueing_hints=pre_hints,
            recorder=raised,
        )
        queue.add(pod)
        entry = queue.pop()
        assert entry is not None
        queue.add_unschedulable(entry, unschedulable_plugins=(plugin.name,))
        woken.append(queue.move_all(event, old, new) == 1)
    assert woken[0] is woken[1] and not raised.errors
    return woken[0]


def sums_are_right(columns: Columns) -> bool:
    """Return whether the cached sums, which follow the log of counted rows, equal the counts."""
    domains = Domains.along("kubernetes.io/hostname", columns)
    return all(
        np.array_equal(domains.sums(column, columns.counted), Domains(domains.of).sums(column, RowLog()))
        for column in (*columns.matching.values(), *columns.terms.values())
    )


def contents(columns: Columns) -> dict[str, Any]:
    """Return everything that a decision could read of the rows in use."""
    assert sums_are_right(columns)
    size = columns.size
    return {
        "nodes": columns.nodes[:size],
        "offers": columns.offers[:size],
        "taken": columns.taken[:size],
        "usage": columns.usage[:, :, :size].tolist(),
        "requested": columns.requested[:, :size].tolist(),
        "allocatable": columns.allocatable[:, :size].tolist(),
        "of nodes": [each[:size].tolist() for each in (columns.present, columns.unschedulable, columns.taints)],
        "version": columns.version[:size],
        "spec_version": columns.spec_version[:size],
        "ports": dict(columns.ports),
        "matching": {kind: column[:size].tolist() for kind, column in columns.matching.items()},
        "terms": {term: column[:size].tolist() for term, column in columns.terms.items()},
        "absent": set(columns.absent),
        "volumes": {row: dict(there) for row, there in columns.hypothetical_pods.items()},
        "host ports": {row: dict(there) for row, there in columns.hypothetical_ports.items()},
        "gpus": (dict(columns.gpus), columns.gpu_most[:size].tolist(), columns.gpu_whole[:size].tolist()),
        "gpus by name": {row: dict(there) for row, there in columns.hypothetical_gpus.items()},
    }
