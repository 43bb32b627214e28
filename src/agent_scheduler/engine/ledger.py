"""The ledger: the only owner of capacity, with the allocatable amounts of each node and the usage of each pod on it.

The path of a pod:

    assume ──> confirm (the watch, or the response to the bind, reports it as bound) ──> remove
       └─────> forget  (the bind was rejected)

`assume` reserves the capacity for a bind, between two awaits, before the request is sent. So two binds never use the
same capacity, although the API server would accept them (it checks neither capacity nor that the node exists).

Invariants, checked by `recount.contradictions`:
- columns equal the sum over `placements` for every resource, including host ports, GPUs and counts of other pods, and
  `volume_use` has the volumes of exactly these pods;
- each pod is placed at most once, by UID: a pod that was deleted and created again is a different pod;
- versions never repeat, so a candidate seen on a node that was deleted and created again is detected as outdated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import add, sub
from typing import Final

import numpy as np

from .queues.gated import Choose, each_alone
from .queues.usage import QueueUsage, UsageSettings
from .state.columns import CPU, MEMORY, NO_PORTS, Amounts, Columns, Ints
from .state.gpus import ANNOTATION as GPU_INDEX
from .state.gpus import NO_GPUS, Indices, choose, text_of, without
from .state.gpus import RESOURCE as GPU
from .state.interns import Interns
from .state.nodeinfo import Largest, NodeInfo, same_for_scheduling
from .state.podclass import PodClass
from .state.podcounts import PodsMatching, TermIndex
from .state.podinfo import Placement, PodInfo
from .state.rowlog import RowLog
from .state.volumeusage import VolumeUse

#: The number of changes that are kept for snapshots; a snapshot that is further behind copies everything.
_LOG_LIMIT = 1 << 16

#: The maximum number of classes whose changes of a row are cached.
_CHANGES_KEPT = 1024


_QUEUES_ALONE: Final = UsageSettings()


class Ledger:
    """Owns placements, nodes and their columns. Single-threaded: call it only between awaits of one event loop."""

    def __init__(self, usage: UsageSettings = _QUEUES_ALONE, choose: Choose = each_alone) -> None:
        """Create an empty ledger; `usage` and `choose` are for its account of queues."""
        self.columns = Columns(Interns())
        #: UID -> placement, including pods on nodes that are unknown so far, which have no row.
        self.placements: dict[str, Placement] = {}
        #: Node name -> row, for known nodes.
        self.rows: dict[str, int] = {}
        self._pods_on: dict[str, dict[str, Placement]] = {}
        #: Node name -> number of observed changes of its pods' start, deletion or labels. Such a change may leave the
        #: usage, and therefore the row's version, as they are.
        self.looks: dict[str, int] = {}
        self._free_rows: list[int] = []
        #: Class -> what a pod adds to a row of `Columns.taken`, for all resources with a column.
        self._changes: dict[PodClass, Amounts] = {}
        #: Priority -> number of pods in `placements` with it.
        self.priorities: dict[int, int] = {}
        #: The number of row changes so far, which is the version of the row that changed last.
        self.sequence = 0
        #: [row] the version at which the last bind on the row was accepted; see `used`.
        self._used: list[int] = []
        self._log = RowLog(_LOG_LIMIT)
        self.assumed = 0
        self.largest = Largest()
        #: UID -> the annotations to write with the bind, for pods to which GPUs were assigned here.
        self.bound_with: dict[str, dict[str, str]] = {}
        #: The terms of the pods in `placements` about other pods. Invariant: they are the terms of `columns.terms`.
        self.terms = TermIndex()
        #: Increases whenever a column of counts is added to or removed from `columns`.
        self.counts_version = 0
        #: The volumes of the pods in `placements`.
        self.volume_use = VolumeUse()
        #: The usage of queues by the pods in `placements`.
        self.usage = QueueUsage(self.placements, usage, choose)

    # ---- nodes

    def set_node(self, node: NodeInfo) -> bool:
        """Add or replace a node. Returns whether anything that decisions depend on has changed."""
        row = self.rows.get(node.name)
        columns, old = self.columns, None
        if row is not None:
            old = columns.nodes[row]
            assert old is not None
            if same_for_scheduling(node, old):
                columns.nodes[row] = node
                return False
        else:
            row = self._new_row()
            self.rows[node.name] = row
        self._add_resources(node)
        columns.nodes[row] = node
        columns.present[row] = True
        columns.unschedulable[row] = node.unschedulable
        columns.offer(row, node.allocatable)
        columns.relabel(row, node)
        if old is None:
            self._recount(row, node.name)
        elif GPU in columns.interns.resources and old.allocatable != node.allocatable:
            columns.recount_gpus(row, self.pods_on(node.name))
        self._changed(row, spec=True)
        if old is not None and (old.taints != node.taints or old.labels != node.labels):
            columns.interns.drop(len(self.rows))
        return True

    def remove_node(self, name: str) -> bool:
        """Remove a node. Its pods stay known, and count again if the node is created again."""
        row = self.rows.pop(name, None)
        if row is None:
            return False
        self.looks.pop(name, None)
        columns = self.columns
        columns.nodes[row] = None
        columns.present[row] = False
        columns.unschedulable[row] = False
        columns.offer(row, {})
        columns.take(row, None)
        columns.set_ports(row, NO_PORTS)
        columns.set_gpus(row, NO_GPUS)
        columns.count_nobody(row)
        columns.relabel(row, None)
        self._changed(row, spec=True)
        self._free_rows.append(row)
        columns.interns.drop(len(self.rows))
        return True

    def node(self, name: str) -> NodeInfo | None:
        row = self.rows.get(name)
        return None if row is None else self.columns.nodes[row]

    # ---- pods

    def assume(self, pod: PodInfo, row: int, gpus: Indices | None = None) -> None:
        """Reserve the capacity of a pod on `row` for a bind that is about to be sent.

        `gpus` are the devices to assign; None chooses them here.
        """
        node = self.columns.nodes[row]
        assert node is not None, "assume on a row without a node"
        assert pod.uid not in self.placements, "a pod is placed at most once"
        self._used[row] = self.columns.version[row]
        self.assumed += 1
        if gpus is None:
            gpus = choose(self.columns.gpus.get(row, NO_GPUS), pod.cls.gpu) if pod.cls.gpu else ()
        if gpus:
            self.bound_with[pod.uid] = {GPU_INDEX: text_of(gpus)}
        self._place(Placement(pod.uid, node.name, pod, pod.cls, True, gpus))

    def used(self, row: int, version: int) -> bool:
        """Return whether a bind was accepted on `row` since a decision read it at `version`."""
        return version <= self._used[row]

    def confirm(self, uid: str) -> None:
        """Confirm that the API server has bound an assumed pod; a pod that was removed since is ignored."""
        placement = self.placements.get(uid)
        if placement is not None and placement.assumed:
            placement.assumed = False
            self.assumed -= 1
            if self.usage.room.active:
                self.usage.placed(placement)

    def forget(self, uid: str) -> str | None:
        """Release the capacity of an assumed pod. Returns the node's name, or None if the pod was no longer assumed."""
        placement = self.placements.get(uid)
        if placement is None or not placement.assumed:
            return None
        self.remove_pod(uid)
        return placement.node_name

    def set_pod(self, pod: PodInfo, node_name: str) -> bool:
        """Place a pod that is bound to `node_name` in the API server. Returns whether the usage has changed.

        An assumed pod is confirmed; it is corrected if it was assumed on another node or has been resized since.
        """
        placement = self.placements.get(pod.uid)
        if placement is not None:
            if placement.node_name == node_name and placement.cls.takes_the_same(pod.cls):
                # Another scheduler's bind sets the devices by annotation. Removing the annotation later frees none.
                says = bool(pod.gpus) or not placement.pod.node_name
                self.confirm(pod.uid)
                counts_so = _names_the_same_queue(placement.pod, pod)
                self._see_anew(placement, pod)
                if self.usage.room.active and not counts_so:
                    self.usage.placed(placement)
                return says and self._regive(placement, pod.gpus)
            # The pod keeps counting in its queue, so that pods are notified only about the part that it no longer uses.
            self._take_out(pod.uid)
        self._place(Placement(pod.uid, node_name, pod, pod.cls, False, pod.gpus))
        return True

    def remove_pod(self, uid: str) -> Placement | None:
        """Remove a pod that was deleted, has finished or is not on its node. Returns its placement."""
        placement = self._take_out(uid)
        if placement is not None and self.usage.room.active:
            self.usage.removed(uid)
        return placement

    def _take_out(self, uid: str) -> Placement | None:
        placement = self.placements.pop(uid, None)
        if placement is None:
            return None
        if placement.assumed:
            self.assumed -= 1
        self.bound_with.pop(uid, None)
        there = self._pods_on[placement.node_name]
        del there[uid]
        if not there:
            del self._pods_on[placement.node_name]
        self._count_priority(placement.pod.priority, -1)
        row = self.rows.get(placement.node_name)
        if row is not None:
            self._count(row, placement.cls, -1)
            if placement.cls.host_ports:
                self._recount_ports(row, placement.node_name)
            if placement.gpus:
                self.columns.recount_gpus(row, self.pods_on(placement.node_name))
            self._changed(row)
        self._count_others(placement, row, -1)
        if placement.cls.volumes is not None:
            self.volume_use.remove(uid)
        return placement

    def track(self, kind: PodsMatching) -> None:
        """Count the pods of a kind while `kind` is referenced."""
        columns = self.columns
        if kind not in columns.matching:
            columns.matching[kind] = column = np.zeros(columns.capacity, dtype=np.int64)
            for placement in self.placements.values():
                row = self.rows.get(placement.node_name)
                if row is not None and kind.counts(placement.pod):
                    column[row] += 1
            self.counts_version += 1

    def amounts(self, classes: Iterable[PodClass]) -> Ints:
        """Return what a pod of each class adds to `Columns.usage`, as [class, 2, resource]."""
        changes = [self._changes.get(cls) or self._changes_of(cls) for cls in classes]
        return np.array(changes, dtype=np.int64).reshape(-1, 2, self.columns.resources)

    def pods_on(self, node_name: str) -> Collection[Placement]:
        return self._pods_on.get(node_name, {}).values()

    @property
    def lowest_priority(self) -> int:
        """The lowest priority of placed pods; above all 32-bit priorities if no pod is placed."""
        return min(self.priorities, default=2**31)

    # ---- what changed

    def touch(self, names: Iterable[str] | None, *, spec: bool = False) -> None:
        """Mark the rows of these nodes, or of all nodes if None, as changed, because related state elsewhere changed.

        Results for these rows are computed again, as after a change of their pods; with `spec` also results that depend
        on the node alone.
        """
        for name in self.rows if names is None else names:
            row = self.rows.get(name)
            if row is not None:
                self._changed(row, spec=spec)

    def assumed_on(self, names: Iterable[str]) -> frozenset[str]:
        """Return the nodes with an assumed pod, that is, with a bind in flight or about to be sent."""
        return frozenset(name for name in names if any(each.assumed for each in self.pods_on(name)))

    def rows_since(self, sequence: int) -> list[int] | None:
        """Return the rows changed from change number `sequence` on, each once; None if the log no longer has them."""
        return self._log.since(sequence)

    # ---- inside

    def _new_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        row = self.columns.size
        self.columns.reserve(row + 1)
        self.columns.size = row + 1
        self._used.append(0)
        return row

    def _add_resources(self, node: NodeInfo) -> None:
        """Add a column for each new resource of `node`, and count the placed pods that request it."""
        columns = self.columns
        known = len(columns.interns.resources)
        for resource, amount in node.allocatable.items():
            columns.interns.resource(resource)
            if amount > self.largest.amounts.get(resource, 0):
                self.largest.amounts[resource] = amount
                self.largest.version += 1
        columns.reserve(columns.size)
        if len(columns.interns.resources) > known:
            self._changes.clear()
            for name in self._pods_on:
                row = self.rows.get(name)
                if row is not None:
                    self._recount(row, name)
                    self._changed(row)

    def _place(self, placement: Placement) -> None:
        self.placements[placement.uid] = placement
        there = self._pods_on.get(placement.node_name)
        if there is None:
            there = self._pods_on[placement.node_name] = {}
        there[placement.uid] = placement
        self._count_priority(placement.pod.priority, 1)
        row = self.rows.get(placement.node_name)
        if row is not None:
            self._count(row, placement.cls, 1)
            if placement.cls.host_ports:
                taken = self.columns.ports.get(row, NO_PORTS)
                self.columns.ports[row] = taken.union(placement.cls.host_ports)
            if placement.gpus:
                free = self.columns.gpus.get(row, NO_GPUS)
                self.columns.set_gpus(row, without(free, placement.gpus, placement.cls.gpu))
            self._changed(row)
        self._count_others(placement, row, 1)
        if placement.cls.volumes is not None:
            self.volume_use.set(placement.uid, placement.node_name, placement.cls.volumes)
        if self.usage.room.active:
            self.usage.placed(placement)

    def _see_anew(self, placement: Placement, pod: PodInfo) -> None:
        """Replace the pod of a placement by one with the same usage; its counts for other pods may differ."""
        old = placement.pod
        if old is pod:
            return
        if old.priority != pod.priority:
            self._count_priority(old.priority, -1)
            self._count_priority(pod.priority, 1)
        same = old.labels == pod.labels and old.deleting == pod.deleting
        if not same or old.started != pod.started:
            self.looks[placement.node_name] = self.looks.get(placement.node_name, 0) + 1
        if (same or not self.columns.matching) and old.cls.existing == pod.cls.existing:
            placement.pod, placement.cls = pod, pod.cls
            return
        row = self.rows.get(placement.node_name)
        self._count_others(placement, row, -1)
        placement.pod, placement.cls = pod, pod.cls
        self._count_others(placement, row, 1)
        if row is not None:
            self._changed(row)

    def _regive(self, placement: Placement, gpus: Indices) -> bool:
        """Set a placed pod's devices to those in the API server. Returns whether other devices were counted before."""
        row, before, placement.gpus = self.rows.get(placement.node_name), placement.gpus, gpus
        if row is not None and before != gpus:
            self.columns.recount_gpus(row, self.pods_on(placement.node_name))
            self._changed(row)
        return before != gpus

    def _count_priority(self, priority: int, sign: int) -> None:
        number = self.priorities.get(priority, 0) + sign
        if number:
            self.priorities[priority] = number
        else:
            del self.priorities[priority]

    def _count_others(self, placement: Placement, row: int | None, sign: int) -> None:
        """Add (1) or remove (-1) a pod in the counts of other pods; `row` is None if its node is unknown."""
        columns, existing = self.columns, placement.cls.existing
        if not (existing or columns.matching):
            return
        for term in existing if sign > 0 else ():
            if self.terms.add(term):
                self.counts_version += 1
                columns.terms[term] = np.zeros(columns.capacity, dtype=np.int64)
        if row is not None:
            columns.count_others(row, placement.pod, sign)
        for term in existing if sign < 0 else ():
            if self.terms.remove(term):
                self.counts_version += 1
                del columns.terms[term]

    def _count(self, row: int, cls: PodClass, sign: int) -> None:
        self.columns.take(row, self.with_pod(self.columns.taken[row], cls, sign))

    def with_pod(self, taken: Amounts, cls: PodClass, sign: int) -> Amounts:
        """Return a row of `Columns.taken` after adding (1) or removing (-1) a pod of the class."""
        changes, known = self._changes.get(cls) or self._changes_of(cls), len(taken) // 2
        if known != (all_known := self.columns.resources):
            # The columns are older than a node that added a resource.
            changes = changes[:known] + changes[all_known : all_known + known]
        return tuple(map(add if sign > 0 else sub, taken, changes))

    def _changes_of(self, cls: PodClass) -> Amounts:
        if len(self._changes) >= _CHANGES_KEPT:
            self._changes.clear()
        known, resources = self.columns.interns.resources, self.columns.resources
        changes = [0] * (2 * resources)
        for resource, amount in cls.requests.items():
            index = known.get(resource, resources)
            # A resource that no node has had so far has no column; `_add_resources` counts it when a node has it.
            if index < resources:
                changes[index] = changes[resources + index] = amount
        changes[resources + CPU], changes[resources + MEMORY] = cls.nonzero
        found = self._changes[cls] = tuple(changes)
        return found

    def _recount(self, row: int, name: str) -> None:
        """Compute a row from its pods, because its node is new or a resource got its column now."""
        columns = self.columns
        columns.take(row, None)
        columns.count_nobody(row)
        for placement in self.pods_on(name):
            self._count(row, placement.cls, 1)
            columns.count_others(row, placement.pod, 1)
        self._recount_ports(row, name)
        if GPU in columns.interns.resources:
            columns.recount_gpus(row, self.pods_on(name))

    def _recount_ports(self, row: int, name: str) -> None:
        self.columns.set_ports(row, NO_PORTS.union(*(each.cls.host_ports for each in self.pods_on(name))))

    def _changed(self, row: int, *, spec: bool = False) -> None:
        self.sequence += 1
        self.columns.version[row] = self.sequence
        if spec:
            self.columns.spec_version[row] = self.sequence
        self._log.append(row)


def _names_the_same_queue(one: PodInfo, other: PodInfo) -> bool:
    """Return whether two versions of a pod name the same group and queue; namespace and scheduler never change."""
    if one.batch is None or other.batch is None:
        return one.batch is other.batch
    return one.batch.group == other.batch.group and one.batch.queue == other.batch.queue
