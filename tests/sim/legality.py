"""Judges whether a pod was allowed on the node to which it was bound, by the API's own history.

S25 a pod is bound only to a node that it may use: when its capacity was reserved there, no filter of its profile
rejected the node, by what the process had observed and by its own reservations; and its volumes can be used there. A
bind goes where capacity was reserved S26 what a process uses when it reserves capacity is not older than what its
watches delivered: neither the pod, nor the node, nor the pods on it

What a process had observed is taken from it as versions only, whose content is the API's. The rules are the plain ones
of `tests.decisions.plain`, which recordings of kube-scheduler judge; their results are never taken from the engine. The
module also decides whether a pod could have its volumes on a node, from the API's own objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import orjson

from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes.store import Event, Record, Store
from tests.decisions.plain.selectors import any_term_matches

from .api import FINAL, NODES, PODS, Json, content, name_of, node_of, uid_of
from .device_reading import without_extended
from .evictions import Seen
from .judge import Judge, hear_before, is_first
from .kinds import Process, World
from .rules import refusal

CLAIMS = ("", "persistentvolumeclaims")
_KINDS = {"/api/v1/pods": PODS, "/api/v1/nodes": NODES}
#: Seconds after the arrival of an event from which every decision must use it.
_TAKEN_IN = 5.0


class Deliveries:
    """The deliveries of one process's watches: for each kind, when and up to which version."""

    def __init__(self) -> None:
        self._brought: dict[tuple[str, str], deque[tuple[float, int]]] = {}

    def note(self, path: str, last_line: bytes, now: float) -> None:
        """Record that the process has applied all lines of the watch of `path` up to this one."""
        if (kind := _KINDS.get(path)) is not None:
            self._brought.setdefault(kind, deque()).append((now, version_of(last_line)))

    def by(self, kind: tuple[str, str], time: float) -> int:
        """Return the version of `kind` that had arrived by `time`; 0 for none. `time` never decreases."""
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


def version_of(line: bytes) -> int:
    """Return the version of the object in a watch event; 0 if there is none."""
    try:
        return int(orjson.loads(line)["object"]["metadata"]["resourceVersion"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0


class Legality(Judge):
    """The judge of S25 and S26: subscribes to the store. Owner of each process's reservations."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        #: (Process, pod's UID) -> nodes on which it reserved capacity for the pod, as it knew them then.
        self._reserved: dict[tuple[str, str], dict[str, Json]] = {}
        #: (Process, pod's UID, node) of reservations that a process made by an invalid history.
        self._unaware: set[tuple[str, str, str]] = set()
        #: UID of a claim -> when its volume was bound to it.
        self._bound: dict[str, float] = {}
        #: Node, or UID of a pod -> versions of its changes, the last of them possibly its deletion.
        self._versions: dict[str, list[int]] = {}
        for kind in (PODS, NODES):
            world.store.tables[kind].subscribers.append(self._note)
        world.store.tables[CLAIMS].subscribers.append(self._claim)
        names = world.store.tables[PODS].field_names
        self._node_field, self._phase_field = names.index("spec.nodeName"), names.index("status.phase")

    def went_back(self) -> None:
        """Reset the versions after a restore of the store."""
        store = self.world.store
        self._versions.clear()
        for kind in (PODS, NODES):
            for record in store.tables[kind].scan(""):
                self._versions[record.uid if record.namespace else record.name] = [record.rv]
        bound = {each.uid for each in store.tables[CLAIMS].scan("") if BOUND.encode() in each.data}
        self._bound = {uid: at for uid, at in self._bound.items() if uid in bound}

    def _note(self, event: Event) -> None:
        record = event.record
        if self.world.backups.restoring:
            return
        self._versions.setdefault(record.uid if record.namespace else record.name, []).append(record.rv)

    def _claim(self, event: Event) -> None:
        if BOUND.encode() in event.record.data:
            self._bound.setdefault(event.record.uid, self.world.loop.time())

    # -- reservations

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Record and judge each reservation. Idempotent."""
        ledger: Any = fast_path.ledger

        def assumes(pod: Any, row: int) -> None:
            self._judge(process, fast_path, pod.uid, ledger.columns.nodes[row].name)

        if is_first(ledger, "legality"):
            hear_before(ledger, "assume", assumes)

    def _judge(self, process: Process, fast_path: FastPath, uid: str, node_name: str) -> None:
        if self._is_unaware(process):
            self._unaware.add((process.name, uid, node_name))
            return
        self._look("S25")
        seen = Seen(self.world.evictions, process, fast_path)
        pod, node = seen.pod(uid), seen.node(node_name)
        if pod is None or node is None:
            self._wrong("S25", process, f"reserves {node_name} for {uid}, and knows only one of them")
            return
        self._reserved.setdefault((process.name, uid), {})[node_name] = node
        name = name_of(pod)
        refused = refusal(without_extended(pod), node, seen.cluster, seen.rules)
        if refused is not None:
            self._wrong("S25", process, f"reserves {node_name} for {name}: {', '.join(refused.reasons)}")
        by = self._told_by(process)
        seen_bound = {claim.uid for claim in fast_path.cluster.catalogue.claims.values() if claim.bound}
        known = seen_bound | {claim for claim, bound in self._bound.items() if bound <= by}
        limits = fast_path.cluster.catalogue.csi_nodes
        if problem := breaks_volume_rules(self.world, pod, node, seen.placed, known, limits):
            self._wrong("S25", process, f"reserves {node_name} for {name}: {problem}")
        self._judge_age(process, fast_path, pod, node)

    def _told_by(self, process: Process) -> float:
        """Return the time until which delivered events count for the process's decisions."""
        return self.world.loop.time() - _TAKEN_IN - self.world.stopped_for(process.name)

    def _judge_age(self, process: Process, fast_path: FastPath, pod: Json, node: Json) -> None:
        self._look("S26")
        transport = process.transport
        assert transport is not None, "a process that decides was started"
        by = self._told_by(process)
        for obj, key, kind in ((pod, uid_of(pod), PODS), (node, name_of(node), NODES)):
            brought, held = transport.deliveries.by(kind, by), int(obj["metadata"]["resourceVersion"])
            newest = max((rv for rv in self._versions.get(key, ()) if rv <= brought), default=0)
            if held < newest:
                what = f"uses version {held} of {name_of(obj)} and has received {newest}"
                self._wrong("S26", process, what)
        brought, name = transport.deliveries.by(PODS, by), name_of(node)
        placements = fast_path.ledger.placements
        pods = self.world.store.tables[PODS].having(self._node_field, name) or ()
        there = {record.uid for record in pods if record.fields[self._phase_field] not in FINAL}
        for rv, uid in self.world.evictions.arrivals.get(name, ()):
            if rv <= brought and uid not in placements and uid in there:
                self._wrong("S26", process, f"overlooks the pod {uid} on {name}, which it has received")

    # -- commits

    def check_bind(self, record: Record, pod: Json, actor: Process) -> None:
        """Check a pod that a process has bound."""
        node = pod["spec"]["nodeName"]
        reserved = self._reserved.get((actor.name, record.uid), {})
        if node not in reserved and (actor.name, record.uid, node) in self._unaware:
            # Sent before the process was killed, and carried out when its successor knew the current state.
            return
        if node not in reserved:
            self._wrong("S25", actor, f"bound {record.key} to {node}, and had reserved {sorted(reserved)}")
        elif name := unreachable(self.world, pod, reserved[node]):
            self._wrong("S25", actor, f"bound {record.key} to {node}, from where {name} cannot be reached")


BOUND = "pv.kubernetes.io/bind-completed"
_ZONE = "topology.kubernetes.io/zone"
_SELECTED = "volume.kubernetes.io/selected-node"
#: Store -> its version, and the collections that were read at that version.
_READ: WeakKeyDictionary[Store, tuple[int, dict[tuple[str, str], dict[str, Json]]]] = WeakKeyDictionary()


def has_its_volumes(world: World, pod: Json, node: Json) -> bool:
    """Return whether the pod's volumes can be used on the node.

    Correct for pods with one claim each, as scenarios create them: two claims could select one volume.
    """
    if not claims_of(pod):
        return True
    there = [each for each in _running(world) if node_of(each) == name_of(node)]
    return not _attaches_too_many(world, pod, node, there) and all(
        _has_claim(world, pod, name, node) for name in claims_of(pod)
    )


def _running(world: World) -> list[Json]:
    pods = _objects(world, "", "pods").values()
    return [pod for pod in pods if node_of(pod) and pod["status"].get("phase") not in FINAL]


def _objects(world: World, group: str, plural: str) -> dict[str, Json]:
    """Return the current objects by name.

    They must not be changed: all callers before the next write get the same ones.
    """
    store = world.store
    version, read = _READ.get(store, (-1, {}))
    if version != store.rv:
        read = {}
        _READ[store] = store.rv, read
    found = read.get((group, plural))
    if found is None:
        records = store.tables[group, plural].scan("")
        found = read[group, plural] = {record.name: content(record) for record in records}
    return found


def _has_claim(world: World, pod: Json, name: str, node: Json) -> bool:
    claim = _objects(world, "", "persistentvolumeclaims").get(name)
    if claim is None or "deletionTimestamp" in claim["metadata"]:
        return False
    spec, annotations = claim["spec"], claim["metadata"].get("annotations", {})
    others = (each for each in _running(world) if uid_of(each) != uid_of(pod))
    if "ReadWriteOncePod" in spec["accessModes"] and any(name in claims_of(each) for each in others):
        return False
    volumes = _objects(world, "", "persistentvolumes")
    if BOUND in annotations:
        volume = volumes.get(spec["volumeName"])
        return volume is not None and _reaches(volume, node) and not _is_elsewhere(volume, node)
    found = _objects(world, "storage.k8s.io", "storageclasses").get(spec["storageClassName"])
    if found is None or found["volumeBindingMode"] != "WaitForFirstConsumer" or spec.get("volumeName"):
        return False
    made = found["provisioner"] != "kubernetes.io/no-provisioner"
    if _SELECTED in annotations:
        return made and annotations[_SELECTED] == name_of(node)
    uid = uid_of(claim)
    meant = [each for each in volumes.values() if (each["spec"].get("claimRef") or {}).get("uid") == uid]
    of_class = [each for each in volumes.values() if each["status"]["phase"] == "Available"]
    of_class = [each for each in of_class if each["spec"]["storageClassName"] == spec["storageClassName"]]
    free = [each for each in of_class if not each["spec"].get("claimRef")]
    return made or any(_reaches(each, node) for each in meant or free)


def _reaches(volume: Json, node: Json) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    return affinity is None or any_term_matches(affinity["required"]["nodeSelectorTerms"], node)


def _is_elsewhere(volume: Json, node: Json) -> bool:
    """Return whether a label of the volume names another zone than the node's; a node without one fits all volumes."""
    zone, here = ((each["metadata"].get("labels") or {}).get(_ZONE) for each in (volume, node))
    return zone is not None and here is not None and zone != here


# ---- the rules of a reservation


def breaks_volume_rules(
    world: World,
    pod: Json,
    node: Json,
    placed: Mapping[str, Sequence[Json]],
    known: Collection[str],
    csi_nodes: Collection[str],
) -> str:
    """Return which rule of volumes a process breaks by placing the pod on the node beside `placed`; empty for none.

    `placed`: pods by their nodes; `known`: UIDs of claims that the process knows to be bound; `csi_nodes`: names of
    nodes whose limits it knows.
    """
    named = claims_of(pod)
    if not named:
        return ""
    claims, volumes = _objects(world, "", "persistentvolumeclaims"), _objects(world, "", "persistentvolumes")
    for name in named & claims.keys():
        claim = claims[name]
        if uid_of(claim) in known:
            volume = volumes.get(claim["spec"]["volumeName"])
            if volume is not None and (not _reaches(volume, node) or _is_elsewhere(volume, node)):
                return f"the volume of {name} cannot be reached from there"
        users = [each for pods in placed.values() for each in pods if name in claims_of(each)]
        if "ReadWriteOncePod" in claim["spec"]["accessModes"] and users:
            return f"the claim {name} is for one pod, and {name_of(users[0])} has it"
    name = name_of(node)
    return _attaches_too_many(world, pod, node, placed[name]) if name in csi_nodes else ""


def unreachable(world: World, pod: Json, node: Json) -> str:
    """Return the name of a bound claim of the pod whose volume's affinity excludes the node; empty for none."""
    claims, volumes = _objects(world, "", "persistentvolumeclaims"), _objects(world, "", "persistentvolumes")
    for name in claims_of(pod) & claims.keys():
        volume = volumes.get(claims[name]["spec"].get("volumeName", ""))
        if volume is not None and not _reaches(volume, node):
            return name
    return ""


def _attaches_too_many(world: World, pod: Json, node: Json, beside: Sequence[Json]) -> str:
    named = claims_of(pod)
    if not named:
        return ""
    claims = _objects(world, "", "persistentvolumeclaims")
    wanted = {name: driver for name in named & claims.keys() if (driver := _driver(world, claims[name]))}
    there = set().union(*map(claims_of, beside)) & claims.keys()
    for driver in set(wanted.values()):
        most = attachable(world, name_of(node), driver)
        attached = {name for name in there if _driver(world, claims[name]) == driver}
        new = {name for name, of in wanted.items() if of == driver} - attached
        if most is not None and new and len(attached | new) > most:
            return f"{len(attached | new)} volumes of {driver} are too many: {most} can be attached"
    return ""


def claims_of(pod: Json) -> set[str]:
    volumes = pod["spec"].get("volumes") or ()
    sources = filter(None, (each.get("persistentVolumeClaim") for each in volumes))
    return {each["claimName"] for each in sources}


def _driver(world: World, claim: Json) -> str:
    """Return the driver that attaches the claim's volume; empty for a local one."""
    found = _objects(world, "storage.k8s.io", "storageclasses").get(claim["spec"]["storageClassName"])
    provisioner = "" if found is None else str(found["provisioner"])
    return "" if provisioner == "kubernetes.io/no-provisioner" else provisioner


def attachable(world: World, node: str, driver: str) -> int | None:
    """Return how many volumes of the driver can be attached to the node; None for any number."""
    found = _objects(world, "storage.k8s.io", "csinodes").get(node)
    limits = {} if found is None else {each["name"]: each for each in found["spec"].get("drivers") or ()}
    count: int | None = (limits.get(driver, {}).get("allocatable") or {}).get("count")
    return count
