"""Judges GPUs that pods share: S38, S39 and L20 of docs/reliability.md, and changes GPUs as other clients do.

The judge uses the annotations in the API. Only the devices that a process has chosen for an unbound pod are recorded
where they are chosen; everything else is read from the API's objects (`tests.decisions.plain.gpu_share`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes.store import Event, Record
from tests.decisions.plain.gpu_share import ANNOTATION, RESOURCE, WHOLE, asked, devices, given, left, said

from .api import FINAL, NODES, PODS, PODS_PATH, Json, content, limit, name_of, node_of, objects, uid_of
from .api import pod as made_pod
from .evictions import Seen
from .faults import FaultMaker
from .judge import Judge, is_first
from .kinds import Process, World
from .rules import as_placed, with_devices


class GpuSafety(Judge):
    """Owner of the pods bound by a process of ours, and of those whose annotation others have changed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        #: UIDs of pods that a process of ours has bound.
        self._ours: set[str] = set()
        #: Nodes on which a device may be assigned without knowledge of others: by a late bind of a process that has
        #: ended, or because a client has changed an annotation.
        self.contested: set[str] = set()
        #: UID of a pod whose annotation was changed -> all devices that it has ever named.
        self.named: dict[str, set[int]] = {}
        #: (Process, UID) -> which process reserved devices, the devices, and the number of devices of the node then.
        self._chosen: dict[tuple[str, str], tuple[str, tuple[int, ...], int]] = {}
        table = world.store.tables[PODS]
        self._node_field = table.field_names.index("spec.nodeName")
        self._phase_field = table.field_names.index("status.phase")
        table.subscribers.append(self._pod)

    def went_back(self) -> None:
        """Mark all nodes after a restore: an unaware process may bind again what was bound since the backup."""
        self.contested.update(record.name for record in self.world.store.tables["", "nodes"].scan(""))

    def _pod(self, event: Event) -> None:
        if self.world.backups.restoring or event.record.uid not in self.named:
            return
        self.named[event.record.uid].update(given(content(event.record)))

    def edited(self, pod: Json) -> None:
        """Record that another client is about to change the devices that the pod names."""
        self.contested.add(pod["spec"]["nodeName"])
        self.named.setdefault(uid_of(pod), set()).update(given(pod))

    def as_counted_at_most(self, pod: Json) -> Json:
        """Return the pod with all devices on which a process may count it."""
        named = self.named.get(uid_of(pod))
        return pod if named is None else with_devices(pod, sorted(named.union(given(pod))))

    # -- reservations

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Record each reservation. Idempotent."""
        ledger: Any = fast_path.ledger
        if not is_first(ledger, "gpus"):
            return
        assume = ledger.assume

        def assumed(pod: Any, row: int) -> None:
            name = ledger.columns.nodes[row].name
            unaware = self._is_unaware(process)
            seen = None if unaware or not pod.cls.gpu else Seen(self.world.evictions, process, fast_path)
            assume(pod, row)
            if seen is not None:
                self._judge(process, seen, pod.uid, name, ledger.placements[pod.uid].gpus)

        ledger.assume = assumed

    def _judge(self, process: Process, seen: Seen, uid: str, node_name: str, chosen: tuple[int, ...]) -> None:
        pod, node = seen.pod(uid), seen.node(node_name)
        if pod is None or node is None:
            # S25 reports this.
            return
        self._look("S39")
        self._chosen[process.name, uid] = process.identity, chosen, devices(node)
        free, amount = left(node, seen.placed[node_name]), asked(pod)
        self._note(seen, node_name, process, free, amount)
        enough = min(amount, WHOLE)
        reserves = f"reserves the devices {chosen} of {node_name}"
        if len(chosen) != max(1, amount // WHOLE):
            self._wrong("S39", process, f"{reserves} for {amount}")
        elif any(index >= len(free) or free[index] < enough for index in chosen):
            self._wrong("S39", process, f"{reserves}, which have {free} left, for {amount}")

    def _note(self, seen: Seen, node_name: str, process: Process, free: Sequence[int], amount: int) -> None:
        reached = self.world.states.reached
        if amount < WHOLE and any(0 < each < WHOLE for each in free):
            reached("GPU shared")
        chosen = (self._chosen.get((process.name, uid_of(pod))) for pod in seen.placed[node_name])
        if any(each is not None and each[0] != process.identity for each in chosen):
            reached("GPUs found again after a restart")

    # -- commits

    def check_bind(self, record: Record, pod: Json, actor: Process, *, late: bool) -> None:
        """Check a pod that `actor` has bound; `late`: it has ended, or has lost its lease."""
        self._ours.add(record.uid)
        node, amount = pod["spec"]["nodeName"], asked(pod)
        if late:
            self.contested.add(node)
        if amount:
            self._check_named(record, pod, actor, late=late)
        self._check_shares(node, actor)

    def _check_named(self, record: Record, pod: Json, actor: Process, *, late: bool) -> None:
        self._look("S39")
        named, amount, bound = given(pod), asked(pod), f"bound {record.key}"
        if len(named) != max(1, amount // WHOLE):
            self._wrong("S39", actor, f"{bound}, which asks for {amount}, with the devices {named}")
        identity, chosen, offered = self._chosen.get((actor.name, record.uid), ("", (), 0))
        if late or identity != actor.identity:
            # Sent by an earlier process, by what that one knew.
            return
        if named != chosen or any(index >= offered for index in named):
            self._wrong("S39", actor, f"{bound} with {named} of {offered} devices, and chose {chosen}")

    def _check_shares(self, node: str, actor: Process) -> None:
        if node in self.contested:
            return
        self._look("S38")
        total: Counter[int] = Counter()
        for record in self.world.store.tables[PODS].having(self._node_field, node) or ():
            if record.uid in self._ours and record.fields[self._phase_field] not in FINAL:
                pod = content(record)
                total.update(dict.fromkeys(given(pod), min(asked(pod), WHOLE)))
        if any(amount > WHOLE for amount in total.values()):
            text = f"{actor.identity} gave more of a device of {node} than there is: {dict(total)}"
            self._violated("S38", text)


def check_gpus(world: World, process: Process) -> None:
    """Check the devices' usage at rest."""
    fast_path, safety = process.fast_path, world.gpu_safety
    if safety is None or fast_path is None or not process.is_up or not fast_path.is_synced:
        return
    world.safety.look("L20")
    ledger = fast_path.ledger
    placed: dict[str, list[Json]] = {}
    for pod in _placed(world):
        placement = ledger.placements.get(uid_of(pod))
        counted = () if placement is None else placement.gpus
        if asked(pod) and not _agree(safety, pod, counted):
            name = name_of(pod)
            text = f"{process.identity} counts {name} on the devices {counted}; it names {given(pod)}"
            world.safety.violated("L20", text)
        placed.setdefault(pod["spec"]["nodeName"], []).append(as_placed(pod, counted))
    for record in world.store.tables[NODES].scan(""):
        node, row = content(record), ledger.rows.get(record.name)
        free = tuple(left(node, placed.get(record.name, ())))
        counted = () if row is None else ledger.columns.gpus.get(row, ())
        if counted != free:
            text = f"{process.identity} has {counted} free of the devices of {record.name}; {free} are"
            world.safety.violated("L20", text)


def note_gpus(world: World) -> None:
    """Record the state that a pod waits although the devices of a node together have enough free thousandths."""
    if world.gpu_safety is None:
        return
    there = _placed(world)
    for record in world.store.tables[NODES].scan(""):
        node = content(record)
        free = left(node, [pod for pod in there if pod["spec"]["nodeName"] == record.name])
        for pod in map(orjson.loads, (each.data for each in world.store.tables[PODS].scan(""))):
            waits = not node_of(pod) and pod["status"].get("phase") not in FINAL
            if waits and max(free, default=0) < asked(pod) <= min(sum(free), WHOLE):
                world.states.reached("pod waits for a GPU of which parts are free")


def are_lost(world: World) -> bool:
    """Return whether placed pods lack the annotation of their devices, which only the running process remembers."""
    return world.gpu_safety is not None and any(asked(pod) and not given(pod) for pod in _placed(world))


def _placed(world: World) -> list[Json]:
    pods = objects(world.store, PODS)
    return [pod for pod in pods if node_of(pod) and pod["status"].get("phase") not in FINAL]


def _agree(safety: GpuSafety, pod: Json, counted: Sequence[int]) -> bool:
    """Return whether the counted devices are those of the annotation.

    A scheduler keeps a pod without an annotation on the devices on which it has counted it.
    """
    if given(pod):
        return given(pod) == counted
    return set(counted) <= safety.named.get(uid_of(pod), set())


#: Values that a client writes in place of devices.
_NONSENSE = ("", "x", "-1", "0,0", "99", "1000", "GPU-3f2a", "0, 1")


class GpuNemesis(FaultMaker):
    """Device plugins, other schedulers and users."""

    shares = {"gpus_changed": 1.5, "gpu_taken": 1.5, "gpu_index_edited": 1.5}  # noqa: RUF012

    def __init__(self, world: World, safety: GpuSafety) -> None:
        super().__init__(world, "gpu nemesis")
        self._safety = safety
        self._others = 0

    def gpus_changed(self) -> None:
        """Remove or add devices of a node, often only for a while."""
        nodes = self._objects(NODES)
        if not nodes:
            return
        node = self._rng.choice(nodes)
        there = devices(node)
        now = max(0, there + self._rng.choice((-1, -1, -2, -4, 1, 2)))
        placed = [each for each in self._objects(PODS, "default") if node_of(each) == name_of(node)]
        if any(each < WHOLE for each in left(node, placed)[now:]):
            self._reached("GPU lost that is in use")
        self._offer(name_of(node), now)
        if self._rng.random() < 0.6:
            self._later(self._rng.choice((0.01, 0.5, 4.0)), self._offer, name_of(node), there)

    def _offer(self, name: str, number: int) -> None:
        amounts = {RESOURCE: str(number * WHOLE)}
        status = {"allocatable": amounts, "capacity": amounts}
        self._call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})

    def gpu_taken(self) -> None:
        """Bind another scheduler's pod with GPUs to a node, whether it fits or not, with or without named devices.

        Some of these pods end.
        """
        nodes = self._objects(NODES)
        if not nodes:
            return
        node, rng = self._rng.choice(nodes), self._rng
        self._others += 1
        name = f"other-gpu-{self._others}"
        body = made_pod(name, cpu=10, lives=rng.choice((None, 1.0, 6.0)), schedulerName="other")
        amount = rng.choice((300, 500, 1000, 1000, 2000))
        limit(body, RESOURCE, amount)
        self._call("POST", PODS_PATH, body)
        indices = sorted(rng.sample(range(5), rng.choice((1, max(1, amount // WHOLE)))))
        listed = ",".join(map(str, indices))
        says = rng.choice((listed, listed, "", rng.choice(_NONSENSE)))
        metadata = {"name": name, **({"annotations": {ANNOTATION: says}} if says else {})}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": name_of(node)}}
        self._call("POST", f"{PODS_PATH}/{name}/binding", binding)

    def gpu_index_edited(self) -> None:
        """Remove or change the annotation of a pod, also of a waiting one."""
        pods = self._objects(PODS, "default")
        with_devices = [pod for pod in pods if said(pod)] or pods
        if not with_devices:
            return
        pod, rng = self._rng.choice(with_devices), self._rng
        if node_of(pod):
            self._safety.edited(pod)
            self._reached("annotation of GPUs edited")
        value = rng.choice((None, None, None, str(rng.randrange(4)), rng.choice(_NONSENSE)))
        path = f"{PODS_PATH}/{name_of(pod)}"
        self._call("PATCH", path, {"metadata": {"annotations": {ANNOTATION: value}}})
