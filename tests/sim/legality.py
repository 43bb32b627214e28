"""Whether a pod might go to the node that it was bound to, judged plainly from the API's own history.

S25 a pod is bound only to a node that it may go to: when its room was reserved there, no filter of its profile refused
    that node, by what the process had seen by then and by the room that it had itself given away; and its volumes can
    be used there. A bind goes where room was reserved.
S26 what a process goes by when it reserves room is not older than what its watches brought: neither the pod, nor the
    node, nor who is on it.

What a process had seen is taken from it as versions alone, whose content is the API's. The rules are the plain ones of
`tests.decisions.plain`, which recordings of kube-scheduler judge; what they say of a pod and a node is never taken
from the engine.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import orjson

from embedded_kubernetes.store import Event

from .claims import Seen
from .device_reading import without_extended
from .rules import refusal
from .volumes import BOUND, breaks_volume_rules, unreachable

if TYPE_CHECKING:
    from agent_scheduler.fastpath.scheduler import FastPath
    from embedded_kubernetes.store import Record

    from .processes import Process
    from .world import World

Json = dict[str, Any]

PODS, NODES, CLAIMS = ("", "pods"), ("", "nodes"), ("", "persistentvolumeclaims")
_KINDS = {"/api/v1/pods": PODS, "/api/v1/nodes": NODES}
#: Seconds from the arrival of an event until what it says counts for every decision.
_TAKEN_IN = 5.0
_FINAL = ("Succeeded", "Failed")


class Deliveries:
    """What one process's watches have brought it: of each kind, when and up to which version."""

    def __init__(self) -> None:
        self._brought: dict[tuple[str, str], deque[tuple[float, int]]] = {}

    def note(self, path: str, last_line: bytes, now: float) -> None:
        """All lines up to this one of the watch of `path` have been taken in by the process."""
        kind = _KINDS.get(path)
        if kind is None:
            return
        version = version_of(last_line)
        self._brought.setdefault(kind, deque()).append((now, version))

    def by(self, kind: tuple[str, str], time: float) -> int:
        """The version of `kind` that had come by `time`; 0 for none. `time` never goes back."""
        brought = self._brought.get(kind)
        version = 0
        while brought and brought[0][0] <= time:
            _, known = brought[0]
            version = max(version, known)
            if len(brought) == 1 or brought[1][0] > time:
                brought[0] = brought[0][0], version
                break
            brought.popleft()
            brought[0] = brought[0][0], max(version, brought[0][1])
        return version

    def forget(self) -> None:
        self._brought.clear()


def version_of(line: bytes) -> int:
    """Of the object in a watch event; 0 if there is none."""
    try:
        return int(orjson.loads(line)["object"]["metadata"]["resourceVersion"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0


class Legality:
    """Subscribes to the store. Owner of what each process has reserved."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: (Process, pod's UID) -> nodes on which it reserved room for the pod, as it knew them then.
        self._reserved: dict[tuple[str, str], dict[str, Json]] = {}
        #: (Process, pod's UID, node) of what a process reserved by a history that is none any more.
        self._unaware: set[tuple[str, str, str]] = set()
        #: UID of a claim -> when its volume was bound to it.
        self._bound: dict[str, float] = {}
        #: Node, or UID of a pod -> versions in which it was changed, the last of them its deletion maybe.
        self._versions: dict[str, list[int]] = {}
        for kind in (PODS, NODES):
            world.store.tables[kind].subscribers.append(self._note)
        world.store.tables[CLAIMS].subscribers.append(self._claim)
        names = world.store.tables[PODS].field_names
        self._node_field, self._phase_field = names.index("spec.nodeName"), names.index("status.phase")

    def went_back(self) -> None:
        """The store has."""
        store = self._world.store
        self._versions.clear()
        for kind in (PODS, NODES):
            for record in store.tables[kind].scan(""):
                self._versions[record.uid if record.namespace else record.name] = [record.rv]
        bound = {each.uid for each in store.tables[CLAIMS].scan("") if BOUND.encode() in each.data}
        self._bound = {uid: at for uid, at in self._bound.items() if uid in bound}

    def _note(self, event: Event) -> None:
        record = event.record
        if self._world.backups.restoring:
            return
        self._versions.setdefault(record.uid if record.namespace else record.name, []).append(record.rv)

    def _claim(self, event: Event) -> None:
        if BOUND.encode() in event.record.data:
            self._bound.setdefault(event.record.uid, self._world.loop.time())

    # -- reservations

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Hear of each reservation. Idempotent."""
        ledger: Any = fast_path.ledger
        if getattr(ledger, "judged", False):
            return
        assume = ledger.assume

        def assumed(pod: Any, row: int) -> None:
            node = ledger.columns.nodes[row].name
            self._judge(process, fast_path, pod.uid, node)
            assume(pod, row)

        ledger.assume, ledger.judged = assumed, True

    def _judge(self, process: Process, fast_path: FastPath, uid: str, node_name: str) -> None:
        if self._world.backups.is_unaware(process):
            self._unaware.add((process.name, uid, node_name))
            return
        self._world.safety.checked["S25"] += 1
        seen = Seen(self._world.evictions, process, fast_path)
        pod, node = seen.pod(uid), seen.node(node_name)
        if pod is None or node is None:
            self._wrong("S25", process, f"reserves {node_name} for {uid}, and knows only one of them")
            return
        self._reserved.setdefault((process.name, uid), {})[node_name] = node
        name = pod["metadata"]["name"]
        refused = refusal(without_extended(pod), node, seen.cluster, seen.rules)
        if refused is not None:
            self._wrong("S25", process, f"reserves {node_name} for {name}: {', '.join(refused.reasons)}")
        by = self._told_by(process)
        seen_bound = {claim.uid for claim in fast_path.cluster.catalogue.claims.values() if claim.bound}
        known = seen_bound | {claim for claim, bound in self._bound.items() if bound <= by}
        limits = fast_path.cluster.catalogue.csi_nodes
        if problem := breaks_volume_rules(self._world, pod, node, seen.placed, known, limits):
            self._wrong("S25", process, f"reserves {node_name} for {name}: {problem}")
        self._judge_age(process, fast_path, pod, node)

    def _told_by(self, process: Process) -> float:
        """What came to the process by then counts for its decisions."""
        return self._world.loop.time() - _TAKEN_IN - self._world.stopped_for(process.name)

    def _judge_age(self, process: Process, fast_path: FastPath, pod: Json, node: Json) -> None:
        self._world.safety.checked["S26"] += 1
        transport = process.transport
        assert transport is not None, "whoever decides was started"
        by = self._told_by(process)
        for obj, key, kind in (
            (pod, pod["metadata"]["uid"], PODS),
            (node, node["metadata"]["name"], NODES),
        ):
            brought, held = transport.deliveries.by(kind, by), int(obj["metadata"]["resourceVersion"])
            newest = max((rv for rv in self._versions.get(key, ()) if rv <= brought), default=0)
            if held < newest:
                what = f"goes by version {held} of {obj['metadata']['name']} and was told of {newest}"
                self._wrong("S26", process, what)
        brought, name = transport.deliveries.by(PODS, by), node["metadata"]["name"]
        placements = fast_path.ledger.placements
        for rv, uid in self._world.evictions.arrivals(name):
            if rv <= brought and uid not in placements and self._is_there(uid, name):
                self._wrong("S26", process, f"overlooks the pod {uid} on {name}, of which it was told")

    def _is_there(self, uid: str, node: str) -> bool:
        return any(
            record.uid == uid and record.fields[self._phase_field] not in _FINAL
            for record in self._world.store.tables[PODS].having(self._node_field, node) or ()
        )

    # -- commits

    def check_bind(self, record: Record, pod: Json, actor: Process) -> None:
        """A process has bound this pod."""
        node = pod["spec"]["nodeName"]
        reserved = self._reserved.get((actor.name, record.uid), {})
        if node not in reserved and (actor.name, record.uid, node) in self._unaware:
            # Sent before the process was killed, and carried out when its successor knew what there is.
            return
        if node not in reserved:
            self._wrong("S25", actor, f"bound {record.key} to {node}, and had reserved {sorted(reserved)}")
        elif name := unreachable(self._world, pod, reserved[node]):
            self._wrong("S25", actor, f"bound {record.key} to {node}, from where {name} cannot be reached")

    def _wrong(self, name: str, process: Process, what: str) -> None:
        self._world.safety.violated(name, f"{process.identity} {what}")
