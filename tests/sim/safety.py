"""Judges safety at each commit by the API's own history: S1 to S3, S6 to S9 and S13 of docs/reliability.md.

The scheduler's own structures are checked, too (S6 to S8), but no judgment about the cluster uses them. To add an
invariant: add a method that calls `violated`, and call it where its fact is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.fastpath.scheduler import FastPath
from apimachinery.quantity import resource_value
from embedded_kubernetes.store import Event, Record
from tests.decisions.plain.node_ports import HostPort, conflict, host_ports
from tests.decisions.plain.requests import amounts as plain_requests

from .api import FINAL, LEASES, NODES, PODS, content
from .device_reading import without_extended
from .kinds import Process, SimTransport, World

CLAIMS, VOLUMES = ("", "persistentvolumeclaims"), ("", "persistentvolumes")
#: The scheduler's own structures are recomputed once in this number of commits.
_INSIDE_EVERY = 7


class Violation(AssertionError):
    """An invariant does not hold."""


class Safety:
    """The judge of safety: owner of each node's usage, computed only from records. Subscribes to the store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.checked: Counter[str] = Counter()
        self.violations: list[str] = []
        #: Identity -> the change up to which its snapshot was taken, and a digest of that.
        self._snapshots: dict[str, tuple[int, int]] = {}
        #: The process whose request is being carried out, and its connections.
        self._actor: Process | None = None
        self._way: SimTransport | None = None
        #: When the request was sent.
        self.sent_at = 0.0
        self._commits = 0
        #: Node -> UID -> the pod's usage there.
        self._on: dict[str, dict[str, dict[str, int]]] = {}
        self._ports: dict[str, dict[str, list[HostPort]]] = {}
        #: Nodes that are shared with other schedulers, or whose allocatable was larger at some time.
        self.not_ours: set[str] = set()
        #: UID -> number of binds that were committed for it.
        self.binds: Counter[str] = Counter()
        store = world.store
        store.tables[PODS].subscribers.append(self._pod)
        store.tables[NODES].subscribers.append(self._node)
        store.tables[VOLUMES].subscribers.append(self._volume)
        self._node_field = store.tables[PODS].field_names.index("spec.nodeName")
        self._phase_field = store.tables[PODS].field_names.index("status.phase")

    def look(self, name: str) -> None:
        """Count that an invariant was checked."""
        self.checked[name] += 1

    def violated(self, name: str, text: str) -> None:
        """Record a violation; a world ends at its first."""
        line = f"{name}: {text} (at {self._world.loop.time():.6f})"
        self._world.trace("", f"VIOLATED {line}")
        self.violations.append(line)

    @contextmanager
    def acting(self, process: Process, way: SimTransport, sent_at: float) -> Iterator[None]:
        """Attribute the commits within this context to `process`, which sent the request by `way` at `sent_at`."""
        self._actor, self._way, self.sent_at = process, way, sent_at
        try:
            yield
        finally:
            self._actor = self._way = None

    def author(self) -> tuple[Process | None, bool]:
        """Return the process whose request is being committed, and whether that process may still write."""
        actor, way = self._actor, self._way
        return actor, actor is not None and way is not None and not way.closed and actor.leads()

    def went_back(self) -> None:
        """Recompute the usage after a restore of the store."""
        self._on.clear()
        self._ports.clear()
        for record in self._world.store.tables[PODS].scan(""):
            if record.fields[self._node_field] and record.fields[self._phase_field] not in FINAL:
                self._arrive(record, bound=False)

    # -- requests

    def sending(self, process: Process, method: str, verb: str, path: str) -> None:
        """Check a request that a process sends."""
        if not process.elects or method == "GET" or verb == "lease":
            return
        if self._world.backups.leads_by_what_was(process):
            return
        self.look("S9")
        for namespace, name in process.leases:
            record = self._world.store.tables[LEASES].get(namespace, name)
            holder = content(record)["spec"].get("holderIdentity") if record is not None else None
            if holder != process.identity:
                self.violated("S9", f"{process.identity} sends {method} {path} while {holder!r} holds {name}")

    # -- commits

    def _pod(self, event: Event) -> None:
        record, before = event.record, event.previous
        node = record.fields[self._node_field]
        was = before.fields[self._node_field] if before is not None else ""
        self._world.trace("", f"pod {event.type} {record.name} {node} {record.fields[self._phase_field]}")
        if self._world.backups.restoring:
            return
        self.look("S2")
        if was and was != node:
            self.violated("S2", f"{record.key} was moved from {was} to {node}")
        if event.type == "DELETED" or record.fields[self._phase_field] in FINAL:
            self._leave(record)
        elif node:
            self._arrive(record, bound=not was)
        self._world.evictions.pod_changed(event, self._actor)
        self._commits += 1
        if self._commits % _INSIDE_EVERY == 0:
            self.look_inside()

    def _leave(self, record: Record) -> None:
        node = record.fields[self._node_field]
        self._on.get(node, {}).pop(record.uid, None)
        self._ports.get(node, {}).pop(record.uid, None)

    def _arrive(self, record: Record, *, bound: bool) -> None:
        node, uid = record.fields[self._node_field], record.uid
        if not bound and uid in self._on.get(node, {}):
            return
        pod = content(record)
        # Devices of a claim for extended resources are not the node's; the judge of allocations checks them.
        told = pod["status"].get("extendedResourceClaimStatus")
        self._on.setdefault(node, {})[uid] = plain_requests(without_extended(pod) if told else pod)
        if ports := host_ports(pod):
            self._ports.setdefault(node, {})[uid] = ports
        if not bound:
            return
        self.binds[uid] += 1
        actor, way = self._actor, self._way
        if actor is None or way is None or self._world.backups.is_unaware(actor):
            self.not_ours.add(node)
            return
        self._check_bind(record, pod, actor, way)
        late = self._is_out_of_hand(node, actor, way)
        if late:
            self.not_ours.add(node)
        self._check_room(node, actor)
        if self._world.gpu_safety is not None:
            self._world.gpu_safety.check_bind(record, pod, actor, late=late)

    def _is_out_of_hand(self, node: str, actor: Process, way: SimTransport) -> bool:
        """Return whether another process may assign capacity there at the same time without knowing of this bind."""
        shards = self._world.shards
        late = way.closed or not actor.leads()
        if shards is None:
            # It was sent before the process lost its lease or died. It cannot be withdrawn, and a successor cannot know
            # of it before it is observed.
            return late
        if shards.mode(actor.scheduler) != "hard":
            return True
        # Another shard's scheduler waits until nothing can arrive any longer; a successor in the same shard does not.
        return late and shards.works(actor.scheduler)

    def _check_bind(self, record: Record, pod: dict[str, Any], actor: Process, way: SimTransport) -> None:
        self.look("S3")
        spec = pod["spec"]
        for wrong, what in (
            (record.deleting, "is being deleted"),
            (bool(spec.get("schedulingGates")), "has gates"),
            (spec.get("schedulerName") not in actor.names, "is another scheduler's"),
        ):
            if wrong:
                self.violated("S3", f"{actor.identity} bound {record.key}, which {what}")
        self._world.legality.check_bind(record, pod, actor)
        for volume in spec.get("volumes") or ():
            if (source := volume.get("persistentVolumeClaim")) is not None:
                self._check_claim(record, source["claimName"], actor)
        if self._world.allocations is not None and actor.leads() and not way.closed:
            self._world.allocations.check_bind(record, pod, actor)

    def _check_claim(self, pod: Record, name: str, actor: Process) -> None:
        self.look("S13")
        claim = self._world.store.tables[CLAIMS].get(pod.namespace, name)
        annotations = content(claim)["metadata"].get("annotations", {}) if claim is not None else {}
        if "pv.kubernetes.io/bind-completed" not in annotations:
            self.violated("S13", f"{actor.identity} bound {pod.key}, whose claim {name} is not")

    def _volume(self, event: Event) -> None:
        self._world.trace("", f"volume {event.type} {event.record.name}")
        if event.previous is None or self._world.backups.restoring:
            return
        now, was = (content(each)["spec"].get("claimRef", {}) for each in (event.record, event.previous))
        self.look("S13")
        if was.get("uid") and now.get("uid") and was["uid"] != now["uid"]:
            self.violated("S13", f"{event.record.name} was for {was['name']} and is now for {now['name']}")

    def _check_room(self, node: str, actor: Process) -> None:
        record = self._world.store.tables[NODES].records.get(node)
        if record is None or node in self.not_ours:
            return
        self.look("S1")
        allocatable = content(record)["status"]["allocatable"]
        for resource, taken in self.used(node).items():
            room = resource_value(resource, allocatable.get(resource, "0"))
            if taken > room:
                self.violated("S1", f"{actor.identity} put {node} over: {resource} {taken} of {room}")
        ports = [port for taken in self._ports.get(node, {}).values() for port in taken]
        if any(conflict(one, other) for one, other in combinations(ports, 2)):
            self.violated("S1", f"{actor.identity} gave a host port of {node} to two pods: {sorted(ports)}")

    def nobody_owns_nodes(self) -> None:
        """Mark all existing nodes: from now on no process can know all that is on them."""
        self.not_ours.update(record.name for record in self._world.store.tables[NODES].scan(""))

    def used(self, node: str) -> Counter[str]:
        """Return the total usage of the pods on a node."""
        total: Counter[str] = Counter()
        for requests in self._on.get(node, {}).values():
            total.update(requests)
        return total

    def _node(self, event: Event) -> None:
        self._world.trace("", f"node {event.type} {event.record.name}")
        # A deleted node is no longer checked: pods from before may still count somewhere.
        if event.type == "DELETED":
            self.not_ours.add(event.record.name)
        elif event.previous is not None:
            now, was = (content(each)["status"] for each in (event.record, event.previous))
            if now.get("allocatable") != was.get("allocatable"):
                self.not_ours.add(event.record.name)

    # -- inside the scheduler

    def look_inside(self) -> None:
        """Recompute the scheduler's own state, only between its steps, when commits happen."""
        for process in self._world.processes:
            fast_path = process.fast_path
            if fast_path is None or not process.is_up or self._world.backups.is_unaware(process):
                continue
            self.look("S7")
            for problem in contradictions(fast_path.ledger):
                self.violated("S7", f"{process.identity}: {problem}")
            catalogue = fast_path.cluster.catalogue
            for uid in catalogue.taken.holders | catalogue.selected.holders:
                # A deleted pod is noticed within a second.
                if fast_path.cluster.waits(uid) and uid not in fast_path.ledger.placements:
                    self.violated("S13", f"{process.identity}: {uid} has volumes reserved and no room")
            for problem in catalogue.check():
                self.violated("S7", f"{process.identity}: {problem}")
            if self._world.allocations is not None:
                self._world.allocations.check_books(process, fast_path)
            if self._world.gate_safety is not None:
                self._world.gate_safety.look_inside(process, fast_path)
            self.look("S6")
            try:
                fast_path.queue.check_invariants()
            except AssertionError as error:
                self.violated("S6", f"{process.identity}: {error}")
            for uid in fast_path.ledger.placements:
                seen = fast_path.cluster.pods.get(uid)
                where = fast_path.queue.where(uid)
                if where not in (None, Place.IN_FLIGHT) and seen is not None:
                    self.violated("S6", f"{process.identity}: {seen.key} is placed and {where}")
            self._look_at_snapshot(process, fast_path)

    def _look_at_snapshot(self, process: Process, fast_path: FastPath) -> None:
        snapshot = fast_path.snapshot
        columns = snapshot.columns
        digest = hash((*columns.taken, *columns.version, *columns.offers))
        at, known = self._snapshots.get(process.identity, (-1, 0))
        if at == snapshot.sequence:
            self.look("S8")
            if digest != known:
                self.violated("S8", f"{process.identity}: the snapshot of change {at} is not what it was")
        self._snapshots[process.identity] = snapshot.sequence, digest
