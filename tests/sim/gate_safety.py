"""Judges gates at every moment, also if several processes share nodes and queues: S32 to S34 of docs/reliability.md.

It uses the API's own objects. What a process had observed is taken from it as versions, and its nodes as names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.process.leading import GATES_LEASE
from embedded_kubernetes.store import Event

from . import gang_reading as read
from .api import EVENTS, LEASES, PODS, Json, condition_of, content, name_of, node_of, uid_of
from .evictions import Seen
from .gang_load import GATE
from .gang_load import NAME as BATCH
from .gang_safety import SeenGangs
from .gangs import GangCluster
from .gate_cluster import GateCluster, asks, gates, is_reserved
from .judge import Judge, hear_after, hear_before, is_first
from .kinds import GangSafety, Process, World
from .rules import is_ready, readable
from .shard_load import LEASE_NAMESPACE
from .shard_map import ShardMap, view
from .states import SHARD_FULL

#: The number of members of a gang with claims, and the number that it needs.
_CLAIMS = re.compile(r"(\d+) Pipelined.*?(\d+) minAvailable")


class GateSafety(Judge):
    """The judge of gates: subscribes to the store. Owner of the pods that each process has admitted."""

    def __init__(self, world: World, gangs: GangSafety, cluster: GateCluster) -> None:
        super().__init__(world)
        self._gangs = gangs
        self._cluster = cluster
        #: Identity -> name -> queue, of the queues by which the process counts.
        self._queues: dict[str, dict[str, Any]] = {}
        #: Identity -> UIDs of pods whose gate the process has decided to remove since it last began to remove gates.
        self._let_past: dict[str, set[str]] = {}
        #: Identity -> groups whose objects the process has observed so far.
        self._observed: dict[str, set[str]] = {}
        #: Identity -> gangs whose queue lacked room for their minimum when the current session began.
        self._refused: dict[str, set[str]] = {}
        #: UIDs of gated pods about which a process reported that had not noticed a restore of the store.
        self._misled: set[str] = set()
        self._shared = SharedGates(world, world.shards, gangs.cluster, cluster) if world.shards else None
        world.store.tables[PODS].subscribers.append(self._pod)
        world.store.tables[EVENTS].subscribers.append(self._event)

    # -- commits

    def _pod(self, event: Event) -> None:
        if event.type == "DELETED" or self.world.backups.restoring:
            return
        pod = content(event.record)
        there = gates(pod)
        said = condition_of(pod)
        if GATE in there and (said.get("status"), said.get("reason")) == ("False", "Unschedulable"):
            self._judge_gated(pod, there)
        before = None if event.previous is None else content(event.previous)
        if before is not None and self._shared is not None:
            self._shared.changed(pod, before)
        if before is None or GATE not in gates(before) or GATE in there:
            return
        actor, _ = self.world.safety.author()
        if actor is not None and not asks(before):
            self._wrong("S32", actor, f"takes the gate of {name_of(pod)}, which did not ask")

    def _judge_gated(self, pod: Json, there: list[str]) -> None:
        actor, _ = self.world.safety.author()
        uid = uid_of(pod)
        if self._is_unaware(actor):
            # It uses a state in which the pod had no gate.
            self._misled.add(uid)
        elif uid not in self._misled:
            self._violated("S33", f"{name_of(pod)} is behind {there} and says Unschedulable")

    def _event(self, event: Event) -> None:
        if event.type != "ADDED" or self.world.backups.restoring:
            return
        told = content(event.record)
        if told.get("reason") != "TriggeredScaleUp":
            return
        self._reached("scale-up triggered")
        about = told["involvedObject"]
        self.world.trace("autoscaler", f"{about['name']}: {told['message']}")
        record = self.world.store.tables[PODS].get(about["namespace"], about["name"])
        if record is not None and record.uid not in self._misled and GATE in gates(content(record)):
            self._violated("S33", f"a node comes for {about['name']}, which has its gate")

    # -- actions of a process

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Record which pods the process admits, and what it reports. Idempotent."""
        gated: Any = fast_path.ledger.usage.gated
        batch: Any = process.runtime.batch if process.runtime is not None else None
        if not is_first(fast_path, "gates"):
            return
        events: Any = gated.events
        admitted = events.admitted

        def let_past(pods: Any) -> None:
            if pods and self._shared is not None:
                self._shared.admits(process)
            self._judge_admission(process, fast_path, pods)
            admitted(pods)
            if pods:
                self._cluster.let_past(process)

        def held(pods: Any, why: str) -> None:
            self._reached("held pod reported")
            for pod in pods:
                if pod.uid not in gated.held:
                    self._wrong("S32", process, f"says that {pod.key} is held, which is not: {why}")

        def assumed(pod: Any, _row: int) -> None:
            found = self._seen(process, fast_path)
            if (there := found.pod(pod.uid)) is not None and not self._is_unaware(process):
                self._gangs.judge_queues(process, found, there)

        known = self._queues.setdefault(process.identity, {})
        cluster: Any = fast_path.cluster
        events.admitted = let_past
        hear_before(events, "held", held)
        # It no longer removes the gates that are still there: these pods wait for their queue again.
        hear_before(gated, "stop", self._let_past.setdefault(process.identity, set()).clear)
        hear_before(cluster, "set_queue", lambda queue: known.update({queue.name: queue}))
        hear_before(cluster, "delete_queue", lambda queue: known.pop(queue.name, None))
        self._hear(process, fast_path, fast_path._messages.messenger)
        if batch is not None:
            self._hear(process, fast_path, batch._messages.messenger)
        else:
            # There are no sessions to observe, so its assignments are judged here.
            hear_after(fast_path.ledger, "assume", assumed)
        if self._shared is not None:
            self._shared.watch(process, fast_path)

    def sending(self, process: Process, body: bytes) -> None:
        """Check a change of a pod that a process sends."""
        if self._shared is not None:
            self._shared.sending(process, body)

    def _hear(self, process: Process, fast_path: FastPath, messenger: Any) -> None:
        def told(pod: Any, reason: str, message: str, **more: Any) -> None:
            # A pod that waits for capacity of pods that are leaving reports so, whatever they still use of its queue.
            if reason == "Unschedulable" and "resource is released" not in message:
                self._judge_words(process, fast_path, pod.uid, message)
            if self._shared is not None:
                self._shared.says(process, pod, reason, message)

        hear_before(messenger, "refused", told)

    def _seen(self, process: Process, fast_path: FastPath) -> SeenGangs:
        return SeenGangs(self._gangs, process, fast_path, queues=self._queues.get(process.identity, {}))

    # -- admission

    def _judge_admission(self, process: Process, fast_path: FastPath, pods: Iterable[Any]) -> None:
        seen = self._seen(process, fast_path)
        mine = self._let_past.setdefault(process.identity, set())
        mine.update(pod.uid for pod in pods)
        if self._is_unaware(process):
            return
        for pod in filter(None, (seen.pod(each.uid) for each in pods)):
            self._look("S32")
            if read.is_native(read.gang_of(pod)):
                self._reached("gang of Kubernetes' own let past")
            name = name_of(pod)
            asks_queues = fast_path.ledger.usage.room.asks_queues
            if not asks_queues and asks(pod) and GATE in gates(pod):
                continue
            if not asks(pod) or gates(pod) != [GATE]:
                self._wrong("S32", process, f"lets {name} past, which has {gates(pod)} and asks: {asks(pod)}")
            if problem := self._refuses(seen, pod):
                self._wrong("S32", process, f"lets {name} past, and {problem}")
            if lacks := self._lacks(seen, pod):
                self._wrong("S32", process, f"lets {name} past, whose gang has {lacks}")

    def _is_past(self, seen: SeenGangs, pod: Json) -> bool:
        """Return whether capacity is reserved for the pod: its gate was or will be removed, and it has no node."""
        uid, ledger = uid_of(pod), seen.fast_path.ledger
        gated = ledger.usage.gated
        if uid in ledger.placements or not read.waits(pod) or not asks(pod):
            return False
        if uid in gated.given_back or not ledger.usage.room.asks_queues:
            return False
        if not (seen.can_place(pod) or self._is_kept_until_its_group_comes(seen, pod)):
            return False
        let_past = self._let_past.get(seen.process.identity, ())
        return not gates(pod) or (gates(pod) == [GATE] and uid in let_past)

    def _is_kept_until_its_group_comes(self, seen: SeenGangs, pod: Json) -> bool:
        """Return whether the pod counts in its queue and names a group that the process has never observed."""
        name, observed = read.gang_of(pod), self._observed.get(seen.process.identity, ())
        counts = seen.fast_path.ledger.usage.book.entry(uid_of(pod)) is not None
        return bool(name) and name not in observed and counts

    def _refuses(self, seen: SeenGangs, pod: Json, *, words: bool = False) -> str:
        """Return why the pod's queue has no room for it in addition to all others; empty if it has.

        `words`: check a report, for which a pod with a reservation counts only in addition to the placed pods, and a
        pod of the batch scheduler only in addition to those that are not leaving, as in `_refuses_gang`.
        """
        queues, name = seen.queues(), seen.queue_of(pod)
        if not queues or not name:
            return ""
        if not read.is_open(queues.get(name)):
            return f"its queue {name} is not open"
        chain = read.chain(name, queues)
        holds = seen.holds(chain, queues)
        if words and read.is_batch(pod):
            self._take_leaving(seen, chain, holds)
        # If more is reserved than exists, the first in the order have it.
        if not (words and self._is_past(seen, pod)):
            past = [each for each in seen.pods() if uid_of(each) != uid_of(pod) and self._is_past(seen, each)]
            for above, held in read.held_by(chain, queues, past, seen.queue_of).items():
                holds[above].update(held)
        return read.is_above(holds, queues, read.requests(pod))

    def _lacks(self, seen: SeenGangs, pod: Json) -> str:
        """Return what the pod's gang lacks of its minimum, counting all admitted members."""
        name = read.gang_of(pod)
        if not name:
            return ""
        group = seen.group(name)
        if group is None:
            return "no group"
        # A pod that was never held needs no admission.
        return read.minimum(group).lacks(
            each
            for each in seen.gang(name)
            if read.is_ready(each) or self._is_past(seen, each) or (read.waits(each) and not gates(each))
        )

    # -- reports

    def _judge_words(self, process: Process, fast_path: FastPath, uid: str, message: str) -> None:
        if self._is_unaware(process):
            return
        seen = self._seen(process, fast_path)
        pod = seen.pod(uid)
        if pod is None or not read.waits(pod):
            return
        self._look("S33")
        if problem := self._refuses(seen, pod, words=True):
            self._wrong("S33", process, f"says Unschedulable of {name_of(pod)}, and {problem}: {message}")
            return
        gang = read.gang_of(pod)
        # The same must have held when its session began.
        if not gang or (read.is_batch(pod) and gang not in self._refused.get(process.identity, ())):
            return
        claims = _CLAIMS.search(message)
        if claims is not None and int(claims[1]) >= int(claims[2]):
            # Its minimum waits for capacity of pods that are leaving, so the pod counts as a member above the minimum.
            return
        if problem := self._refuses_gang(seen, gang):
            what = f"says Unschedulable of {name_of(pod)}, and of its gang {problem}: {message}"
            self._wrong("S33", process, what)

    def session_begins(self, process: Process, fast_path: FastPath) -> None:
        if self._shared is not None:
            self._shared.session_begins(process)
        seen = self._seen(process, fast_path)
        self._refused[process.identity] = {name for name in seen.groups() if self._refuses_gang(seen, name)}

    def _refuses_gang(self, seen: SeenGangs, name: str) -> str:
        """Return why the gang's queue lacks room for what the gang lacks of its minimum; empty if it has room.

        Capacity of terminating pods will be available, and a session gives members claims on it.
        """
        group, queues, members = seen.group(name), seen.queues(), seen.gang(name)
        named = set(map(seen.queue_of, members))
        # If the members name several queues, each queue's share is not defined.
        if group is None or len(named) != 1 or not named <= queues.keys():
            return ""
        lacking = read.minimum(group).members - sum(map(read.is_ready, members))
        if lacking <= 1:
            return ""
        chain = read.chain(*named, queues)
        holds = seen.holds(chain, queues)
        self._take_leaving(seen, chain, holds)
        return read.is_above(holds, queues, read.least_of(read.pending(members), lacking))

    def _take_leaving(self, seen: SeenGangs, chain: list[str], holds: dict[str, Counter[str]]) -> None:
        """Subtract what terminating pods and victims hold."""
        is_victim = partial(self._gangs.is_victim, seen.process)
        leaving = [pod for pod in seen.pods() if read.is_leaving(pod) or is_victim(uid_of(pod))]
        for above, held in read.held_by(chain, seen.queues(), leaving, seen.queue_of).items():
            holds[above].subtract(held)

    # -- the process's state

    def look_inside(self, process: Process, fast_path: FastPath) -> None:
        """Check that each admitted or never held pod without a node is reserved.

        It counts if it can be placed, or if the watch has not delivered the group that it names, and no other pod does.
        """
        usage, placements = fast_path.ledger.usage, fast_path.ledger.placements
        if not usage.room.asks_queues:
            return
        self._look("S34")
        seen = self._seen(process, fast_path)
        self._observed.setdefault(process.identity, set()).update(seen.observed())
        for uid, info in usage.gated.reserved.items():
            pod = seen.pod(uid)
            if uid not in placements and (pod is None or not read.waits(pod)):
                self._wrong("S34", process, f"keeps room for {info.key}, which no longer waits")
        for pod in seen.pods():
            uid, name = uid_of(pod), name_of(pod)
            entry, placed = usage.book.entry(uid), uid in placements
            counts = entry is not None and entry.standing is Standing.RESERVED
            if uid in usage.gated.given_back:
                if counts:
                    self._wrong("S34", process, f"counts {name} as reserved, which has given its room back")
            elif is_reserved(pod) and not placed:
                queue = seen.queue_of(pod) if usage.room.active else ""
                can_be_placed = seen.can_place(pod)
                if counts and not (can_be_placed or self._is_kept_until_its_group_comes(seen, pod)):
                    self._wrong("S34", process, f"keeps room for {name}, which cannot be placed")
                if uid not in usage.gated.reserved or (queue and can_be_placed and not counts):
                    self._wrong("S34", process, f"keeps no room for {name}, which was let past")
            elif counts and (placed or not asks(pod)):
                self._wrong("S34", process, f"counts {name} as reserved, which is placed: {placed}")


#: Faults that change the limits of a queue, or give its capacity to pods that were not admitted.
_IRREGULAR = ("queue_changed", "group_changed", "rolled_back", "pod_changed", "webhook_down")


class SharedGates(Judge):
    """Judges gates if several processes share the queues. Created with the world.

    Owner of what processes found about nodes outside their shards.
    """

    def __init__(self, world: World, shards: ShardMap, gangs: GangCluster, cluster: GateCluster) -> None:
        super().__init__(world)
        self._gangs = gangs
        self._cluster = cluster
        #: Identity -> UID of a pod -> whether nodes outside would fit, as last found for its report.
        self._found: dict[str, dict[str, bool]] = {}
        #: The same, as found for the current session.
        self._found_by_session: dict[str, dict[str, bool]] = {}
        #: UIDs of pods whose gate was removed by a process that was allowed to write.
        self._let_past: set[str] = set()
        #: Identity of the process that removed the last gate.
        self._remover = ""
        shards.subscribers.append(self._shard)

    # -- which process removes gates

    def admits(self, process: Process) -> None:
        """Check a process that decides to remove gates."""
        if process.runtime is None or process.runtime.batch is None:
            self._wrong("S32", process, "lets pods past, and has no batch scheduler")

    def sending(self, process: Process, body: bytes) -> None:
        """Check a removal that a process sends."""
        if b"schedulingGates" not in body or self.world.backups.leads_by_what_was(process):
            return
        self.admits(process)
        record = self.world.store.tables[LEASES].get(LEASE_NAMESPACE, GATES_LEASE)
        holder = "" if record is None else content(record)["spec"].get("holderIdentity")
        if holder != process.identity:
            self._wrong("S32", process, f"removes a gate while {holder!r} holds {GATES_LEASE}")
        fast_path = process.fast_path
        if fast_path is not None and not fast_path.ledger.usage.gated.admits:
            self._wrong("S32", process, "removes a gate when it is not its turn any more")

    # -- usage of queues

    def changed(self, pod: Json, before: Json) -> None:
        """Handle a waiting pod that has lost its gate, or has a node now."""
        actor, may = self.world.safety.author()
        if actor is None or not may or self._is_unaware(actor) or not asks(pod):
            return
        if GATE in gates(before) and GATE not in gates(pod):
            self._note_removal(actor, pod)
            self._let_past.add(uid_of(pod))
            self._judge_queues(actor, pod, binds=False)
        elif node_of(pod) and not node_of(before):
            if self._cluster.gave_back(pod):
                # Some processes place it like a pod that never had a gate, and may not have observed it yet.
                self._let_past.discard(uid_of(pod))
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
            self._reached("node moved while room is reserved")

    def _judge_queues(self, process: Process, pod: Json, *, binds: bool) -> None:
        """Check the queues' usage after a removal or bind.

        If more is reserved than exists, as when a new process reserves again for pods that had lost their reservation,
        some wait; for a bind only placed pods count.
        """
        fired, shape = self.world.plan.fired, self.world.shape.gates
        assert shape is not None, "pods have gates"
        if shape.off or any(fired[name] for name in _IRREGULAR):
            return
        queues, groups = self._gangs.queues(), self._gangs.groups()

        def queue_of(each: Json) -> str:
            return read.queue_of(each, groups.get)

        def counts(each: Json) -> bool:
            is_kept = is_reserved(each) and not binds and not self._cluster.gave_back(each)
            return not read.has_ended(each) and bool(node_of(each) or is_kept)

        counted = list(filter(counts, self._gangs.pods()))
        holds = read.held_by(read.chain(queue_of(pod), queues), queues, counted, queue_of)
        others = (each for each in counted if uid_of(each) not in self._let_past)
        irregular = {name for each in others for name in read.chain(queue_of(each), queues)}
        self._look("S32")
        wanted = {resource for resource, amount in read.requests(pod).items() if amount}
        for name, held in holds.items():
            counted = {resource: amount for resource, amount in held.items() if resource in wanted}
            if name not in irregular and (problem := read.above_limits(counted, queues[name])):
                does = "binds" if binds else "takes the gate of"
                self._wrong("S32", process, f"{does} {name_of(pod)}, and {name} has {problem}")

    # -- nodes outside the shard

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Record what the process finds about nodes outside its shard."""
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

    def _judge_answer(self, process: Process, fast_path: FastPath, pods: Sequence[Any], *, others_do: bool) -> None:
        if self._is_unaware(process) or fast_path.shard is None:
            return
        self._look("S33")
        seen, mine = Seen(self.world.evictions, process, fast_path), fast_path.shard.membership.nodes
        there = list(filter(None, (seen.pod(each.uid) for each in pods)))
        others = [each for each in map(readable, seen.nodes) if is_ready(each) and name_of(each) not in mine]
        fitting = {name_of(pod): [name_of(node) for node in others if seen.fits(pod, node)] for pod in there}
        if others_do and not any(fitting.values()):
            self._wrong("S33", process, f"says that nodes outside would do for {list(fitting)}: none would")
        if len(there) == 1 and not others_do and any(fitting.values()):
            self._wrong("S33", process, f"says that no node outside would do: {fitting}")

    def says(self, process: Process, pod: Any, reason: str, message: str) -> None:
        """Check a reason that a process reports for a pod."""
        fast_path = process.fast_path
        if fast_path is None or fast_path.outside is None or reason not in ("Unschedulable", "NodeShardFull"):
            return
        if reason == "NodeShardFull":
            self._reached(SHARD_FULL)
        of_session = pod.scheduler_name == BATCH
        answers = self._found_by_session if of_session else self._found
        found = answers.get(process.identity, {}).get(pod.uid)
        if found is None and of_session and reason == "Unschedulable":
            # Members above a missing minimum are not checked.
            return
        if found is not (reason == "NodeShardFull"):
            self._wrong("S33", process, f"says {reason} of {pod.key}, and nodes outside would do: {found}")
