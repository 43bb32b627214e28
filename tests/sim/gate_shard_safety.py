"""What holds of gates where several processes share nodes and queues, besides what holds of each (`gate_safety`).

S32 gates go by one process alone: one with a batch scheduler, which holds the lease for it; and where all pods of a
    queue came by their gates, what it holds and what is reserved in it is never more than it declares
S33 no pod says Unschedulable that fits a ready node outside of its shard, and NodeShardFull one alone that does

What a process had seen is taken from it as versions, and which nodes it may use as names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from agent_scheduler.process.leading import GATES_LEASE
from embedded_kubernetes.store import Event

from . import gang_reading as read
from .claims import Seen
from .gang_cluster import GangCluster
from .gang_load import NAME as BATCH
from .gate_cluster import GateCluster, asks, gates, is_reserved
from .gate_load import GATE
from .rules import is_ready, readable
from .shard_load import LEASE_NAMESPACE
from .shard_map import ShardMap, view

if TYPE_CHECKING:
    from agent_scheduler.fastpath.scheduler import FastPath

    from .processes import Process
    from .world import World

Json = dict[str, Any]

LEASES = ("coordination.k8s.io", "leases")
#: What changes how much a queue may hold, or gives its room to pods that nobody has let past.
_IRREGULAR = ("queue_changed", "group_changed", "rolled_back", "pod_changed")


class SharedGates:
    """Made with its world. Owner of what processes found of nodes outside of their shards."""

    def __init__(self, world: World, shards: ShardMap, gangs: GangCluster, cluster: GateCluster) -> None:
        self.world = world
        self._gangs = gangs
        self._cluster = cluster
        #: Identity -> UID of a pod -> whether nodes outside would do, as was last found for what is said of it.
        self._found: dict[str, dict[str, bool]] = {}
        #: The same, of what the session that goes on has asked for.
        self._found_by_session: dict[str, dict[str, bool]] = {}
        #: UIDs of those whose gate went by a process that might write then.
        self._let_past: set[str] = set()
        #: Identity of the process that removed the last one.
        self._remover = ""
        shards.subscribers.append(self._shard)

    # -- who removes gates

    def admits(self, process: Process) -> None:
        """It decides that pods lose their gate."""
        if process.runtime is None or process.runtime.batch is None:
            self._wrong("S32", process, "lets pods past, and has no batch scheduler")

    def sending(self, process: Process, body: bytes) -> None:
        """A change of a pod leaves a process."""
        if b"schedulingGates" not in body or self.world.backups.leads_by_what_was(process):
            return
        self.admits(process)
        record = self.world.store.tables[LEASES].get(LEASE_NAMESPACE, GATES_LEASE)
        holder = "" if record is None else orjson.loads(record.data)["spec"].get("holderIdentity")
        if holder != process.identity:
            self._wrong("S32", process, f"removes a gate while {holder!r} holds {GATES_LEASE}")
        fast_path = process.fast_path
        if fast_path is not None and not fast_path.ledger.usage.gated.admits:
            self._wrong("S32", process, "removes a gate when it is not its turn any more")

    # -- what queues hold

    def changed(self, pod: Json, before: Json) -> None:
        """A pod that waits has lost its gate, or has a node now."""
        actor, may = self.world.safety.author()
        if actor is None or not may or self.world.backups.is_unaware(actor) or not asks(pod):
            return
        if GATE in gates(before) and GATE not in gates(pod):
            self._note_removal(actor, pod)
            self._let_past.add(pod["metadata"]["uid"])
            self._judge_queues(actor, pod, binds=False)
        elif pod["spec"].get("nodeName") and not before["spec"].get("nodeName"):
            if self._cluster.gave_back(pod):
                # To some it has room as one that never had the gate, and they may not have seen it yet.
                self._let_past.discard(pod["metadata"]["uid"])
            self._judge_queues(actor, pod, binds=True)

    def _note_removal(self, actor: Process, pod: Json) -> None:
        states, shards = self.world.states, self.world.shards
        assert shards is not None, "they share nodes"
        if shards.of_pod(pod) != actor.scheduler:
            states.reached("gate of another process's pod removed")
        if self._remover not in ("", actor.identity):
            states.reached("gates taken over")
        self._remover = actor.identity

    def _shard(self, event: Event) -> None:
        if event.previous is None or self.world.backups.restoring:
            return
        moved = view(event.previous).desired - view(event.record).desired
        if moved and any(map(is_reserved, self._gangs.pods())):
            self.world.states.reached("node moved while room is reserved")

    def _judge_queues(self, process: Process, pod: Json, *, binds: bool) -> None:
        """Of more that is reserved than there is, as who gave room back is reserved again in a new process, some waits:
        of a bind that counts which is placed."""
        fired, shape = self.world.plan.fired, self.world.shape.gates
        assert shape is not None, "pods have gates"
        if shape.off or any(fired[name] for name in _IRREGULAR):
            return
        queues, groups = self._gangs.queues(), self._gangs.groups()
        chain = read.chain(read.queue_of(pod, groups.get), queues)
        holds: dict[str, Counter[str]] = {name: Counter() for name in chain}
        irregular: set[str] = set()
        for each in self._gangs.pods():
            placed = each["spec"].get("nodeName")
            if read.has_ended(each) or not (placed or (is_reserved(each) and not binds)):
                continue
            if not placed and self._cluster.gave_back(each):
                continue
            for name in read.chain(read.queue_of(each, groups.get), queues):
                if name in holds:
                    holds[name].update(read.requests(each))
                    if each["metadata"]["uid"] not in self._let_past:
                        irregular.add(name)
        self.world.safety.checked["S32"] += 1
        wanted = {resource for resource, amount in read.requests(pod).items() if amount}
        for name, held in holds.items():
            counted = {resource: amount for resource, amount in held.items() if resource in wanted}
            if name not in irregular and (problem := read.above_limits(counted, queues[name])):
                does = "binds" if binds else "takes the gate of"
                self._wrong("S32", process, f"{does} {pod['metadata']['name']}, and {name} has {problem}")

    # -- nodes outside

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Hear of what it finds of nodes outside of its shard."""
        outside: Any = fast_path.outside
        if outside is None:
            return
        others_do, full = outside._others_do, outside.full
        alone = self._found.setdefault(process.identity, {})
        of_session = self._found_by_session.setdefault(process.identity, {})

        def found(pods: Sequence[Any]) -> bool:
            answer: bool = others_do(pods)
            self._judge_answer(process, fast_path, pods, others_do=answer)
            return answer

        def ask(known: dict[str, bool], pods: Sequence[Any]) -> str:
            why: str = full(pods)
            self._judge_answer(process, fast_path, pods, others_do=bool(why))
            known.update((pod.uid, bool(why)) for pod in pods)
            return why

        outside._others_do, outside.full = found, partial(ask, alone)
        batch: Any = process.runtime.batch if process.runtime is not None else None
        if batch is not None:
            batch._shard_full = partial(ask, of_session)

    def session_begins(self, process: Process) -> None:
        self._found_by_session.get(process.identity, {}).clear()

    def _judge_answer(
        self, process: Process, fast_path: FastPath, pods: Sequence[Any], *, others_do: bool
    ) -> None:
        if self.world.backups.is_unaware(process) or fast_path.shard is None:
            return
        self.world.safety.checked["S33"] += 1
        seen, mine = Seen(self.world.evictions, process, fast_path), fast_path.shard.membership.nodes
        there = [pod for each in pods if (pod := seen.pod(each.uid)) is not None]
        fitting = {
            pod["metadata"]["name"]: [
                node["metadata"]["name"]
                for node in map(readable, seen.nodes)
                if is_ready(node) and node["metadata"]["name"] not in mine and seen.fits(pod, node)
            ]
            for pod in there
        }
        if others_do and not any(fitting.values()):
            self._wrong("S33", process, f"says that nodes outside would do for {list(fitting)}: none would")
        if len(there) == 1 and not others_do and any(fitting.values()):
            self._wrong("S33", process, f"says that no node outside would do: {fitting}")

    def says(self, process: Process, pod: Any, reason: str, message: str) -> None:
        """It tells the API server why a pod waits."""
        fast_path = process.fast_path
        if fast_path is None or fast_path.outside is None or reason not in ("Unschedulable", "NodeShardFull"):
            return
        if reason == "NodeShardFull":
            self.world.states.reached("shard full, and others not")
        of_session = pod.scheduler_name == BATCH
        answers = self._found_by_session if of_session else self._found
        found = answers.get(process.identity, {}).get(pod.uid)
        if found is None and of_session and reason == "Unschedulable":
            # Of a gang that lacks its minimum nobody asks for those above that.
            return
        if found is not (reason == "NodeShardFull"):
            self._wrong("S33", process, f"says {reason} of {pod.key}, and nodes outside would do: {found}")

    def _wrong(self, name: str, process: Process, what: str) -> None:
        self.world.safety.violated(name, f"{process.identity} {what}")
