"""Judges gangs and queues at every moment: S27 to S31 of docs/reliability.md, by the API's own objects.

What a process had observed is taken from it as versions only, and what it has assigned as UIDs and nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from agent_scheduler.batch.scheduler import BatchScheduler
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes.store import Event

from . import gang_reading as read
from .api import Json, content, name_of, uid_of
from .gang_load import NATIVE, PRIORITIES, QUEUE_NAME
from .gangs import GROUPS, NATIVE_GROUPS, QUEUES, GangCluster
from .judge import History, Judge, hear_after, hear_before, is_first
from .kinds import Process, World

PENDING, INQUEUE, RUNNING, UNKNOWN, COMPLETED = "Pending", "Inqueue", "Running", "Unknown", "Completed"
#: Phase of a group -> the phases to which one session may change it.
_NEXT: Mapping[str, frozenset[str]] = {
    "": frozenset((PENDING, INQUEUE, RUNNING, UNKNOWN, COMPLETED)),
    PENDING: frozenset((PENDING, INQUEUE, RUNNING, UNKNOWN, COMPLETED)),
    INQUEUE: frozenset((INQUEUE, RUNNING, UNKNOWN, COMPLETED)),
    RUNNING: frozenset((RUNNING, PENDING, UNKNOWN, COMPLETED)),
    UNKNOWN: frozenset((UNKNOWN, PENDING, RUNNING, COMPLETED)),
    COMPLETED: frozenset((COMPLETED, PENDING, RUNNING, UNKNOWN)),
}


class SeenGangs:
    """Groups and queues as one process had observed them at a moment, in the API's own objects.

    A process without a batch scheduler knows no groups, and queues of pods only by their annotations.

    `groups` and `queues`: by name, replace what the process knows, such as the groups that the current session has
    read, whatever was observed since, or the queues that already count while an event of one is being applied.
    """

    def __init__(
        self, safety: GangSafety, process: Process, fast_path: FastPath, *, queues: Any = None, groups: Any = None
    ) -> None:
        assert process.runtime is not None, "it schedules"
        self._safety, self.process, self.fast_path = safety, process, fast_path
        batch = process.runtime.batch
        self._known = None if batch is None else batch._pictures._groups
        self._read_groups = groups
        self._queues = self._known.queues if queues is None else queues

    def groups(self) -> list[str]:
        return [] if self._known is None else list(map(_key_name, self._known.groups))

    def observed(self) -> set[str]:
        """Return the names of the groups whose objects it knows; others are only named by pods."""
        known = {} if self._known is None else self._known.groups
        return {_key_name(key) for key, group in known.items() if group.object is not None}

    def _group(self, name: str) -> Any:
        return None if self._known is None else self._known.groups.get(_key(name))

    def group(self, name: str) -> Json | None:
        if self._read_groups is not None:
            return self._object(self._read_groups.get(name))
        return self._object(getattr(self._group(name), "object", None))

    def queues(self) -> dict[str, Json]:
        return {name: found for name, each in self._queues.items() if (found := self._object(each))}

    def _object(self, found: Any) -> Json | None:
        return None if found is None else self._safety.known(found)

    def members(self, name: str) -> list[Json]:
        """Return the group's members, also on the nodes that the process has chosen for them."""
        known = self._group(name)
        return [] if known is None else [self._placed(pod) for pod in known.members.values()]

    def gang(self, name: str) -> list[Json]:
        """Return the members that are scheduled together."""
        return [each for each in self.members(name) if read.gang_of(each) == name]

    def _placed(self, pod: Any) -> Json:
        found = self._safety.world.evictions.known(pod)
        placement = self.fast_path.ledger.placements.get(pod.uid)
        if placement is None or read.has_ended(found):
            return found
        return {**found, "spec": {**found["spec"], "nodeName": placement.node_name}}

    def pod(self, uid: str) -> Json | None:
        info = self.fast_path.cluster.pods.get(uid)
        return None if info is None else self._placed(info)

    def pods(self) -> Iterator[Json]:
        """Yield all pods that the process knows."""
        return (pod for uid in list(self.fast_path.cluster.pods) if (pod := self.pod(uid)) is not None)

    def queue_of(self, pod: Json) -> str:
        if self._known is None:
            return read.annotation(pod, QUEUE_NAME)
        return read.queue_of(pod, self.group)

    def can_place(self, pod: Json) -> bool:
        """Return whether the pod can be placed: its group exists, and its queue accepts pods and is large enough."""
        name, queues, queue = read.gang_of(pod), self.queues(), self.queue_of(pod)
        if read.is_native(name):
            is_there = self.fast_path.cluster.groups.get(_key(name)) is not None
        else:
            is_there = not name or self._known is None or self.group(name) is not None
        if not is_there or not queues or not queue:
            return is_there
        empty: dict[str, Counter[str]] = {name: Counter() for name in read.chain(queue, queues) if name in queues}
        return read.is_open(queues.get(queue)) and not read.is_above(empty, queues, read.requests(pod))

    def holds(self, names: list[str], queues: Mapping[str, Json]) -> dict[str, Counter[str]]:
        """Return the usage of these queues by their pods and those of their children."""
        placed = filter(None, map(self.pod, self.fast_path.ledger.placements))
        return read.held_by(names, queues, placed, self.queue_of)


class GangSafety(Judge):
    """The judge of gangs: subscribes to the store.

    Owner of each process's assignments to gangs and evictions for them.
    """

    def __init__(self, world: World, cluster: GangCluster) -> None:
        super().__init__(world)
        self.cluster = cluster
        #: The group or queue of a UID and version.
        self.known = History(world, (GROUPS, QUEUES, NATIVE_GROUPS)).known
        #: (Identity, pod's UID) -> the group and the moment at which the pod received capacity. `_lacked`: what the
        #: group lacked at the end of that moment.
        self._given: dict[tuple[str, str], tuple[str, float]] = {}
        self._lacked: dict[tuple[str, str, float], str] = {}
        #: (Process, pod's UID) of pods that a session has evicted.
        self._victims: set[tuple[str, str]] = set()
        for kind in (GROUPS, QUEUES, NATIVE_GROUPS):
            if kind in world.store.tables:
                world.store.tables[kind].subscribers.append(self._note)

    def _note(self, event: Event) -> None:
        record = event.record
        status = content(record).get("status") or {}
        said = status.get("phase") or status.get("state") or ""
        self.world.trace("", f"{record.key or record.name} {event.type} {said}")

    # -- actions of a process

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Record the process's assignments and sessions. Idempotent."""
        batch: Any = process.runtime.batch if process.runtime is not None else None
        if batch is None or not is_first(batch, "gangs"):
            return
        hold, evict = batch._session, batch._evictions.evict
        sessions: list[Any] = []
        #: Name -> the group or queue as the current session has read it.
        groups: dict[str, Any] = {}
        queues: dict[str, Any] = {}

        async def held() -> None:
            self._judge_trial(process, batch)
            groups.clear()
            queues.clear()
            if self.world.gate_safety is not None:
                self.world.gate_safety.session_begins(process, fast_path)
            if self.world.gang_nemesis is not None:
                self.world.gang_nemesis.session_begins(process)
            try:
                await hold()
            except Exception as error:
                self._violated("S29", f"{process.identity}: a session fails: {error!r}")
                raise
            self._judge_trial(process, batch)

        def told(result: Any, *_about: Any, **_more: Any) -> None:
            seen = SeenGangs(self, process, fast_path, groups=groups, queues=queues)
            self._judge_session(process, seen, sessions.pop(), result)

        def evicted(task: Any, reason: str) -> bool:
            done: bool = evict(task, reason)
            if done:
                self._victims.add((process.name, task.uid))
            return done

        batch._session, batch._evictions.evict = held, evicted
        pictures = batch._pictures
        ledger = fast_path.ledger
        hear_after(ledger, "assume", lambda pod, _row: self._judge_room(process, fast_path, pod.uid))
        hear_before(batch, "_keep_claims", sessions.append)
        hear_before(batch._messages, "tell", told)
        hear_before(pictures, "_group", lambda key, found, _closed: groups.update({_key_name(key): found}))
        hear_before(pictures, "_queue", lambda found: queues.update({found.name: found}))

    def is_victim(self, process: Process, uid: str) -> bool:
        """Return whether a session of the process evicted the pod."""
        return (process.name, uid) in self._victims

    # -- capacity

    def _judge_room(self, process: Process, fast_path: FastPath, uid: str) -> None:
        if self._is_unaware(process):
            return
        seen = SeenGangs(self, process, fast_path)
        pod = seen.pod(uid)
        if pod is None:
            return
        self.judge_queues(process, seen, pod)
        name, now = read.gang_of(pod), self.world.loop.time()
        if not name:
            return
        self._given[process.identity, uid] = name, now
        group = seen.group(name)
        if group is None:
            self._lacked[process.identity, name, now] = "a group"
            return
        members = seen.gang(name)
        # A pod without requests fits everywhere, and waits for no other.
        idle = filter(read.asks_for_nothing, filter(read.waits, filter(read.is_batch, members)))
        ready = [*filter(read.has_capacity, members), *idle]
        self._lacked[process.identity, name, now] = read.minimum(group, members).lacks(ready)

    def judge_queues(self, process: Process, seen: SeenGangs, pod: Json) -> None:
        queues, name = seen.queues(), seen.queue_of(pod)
        if not queues or not name:
            return
        self._look("S28")
        if not read.is_open(queues.get(name)):
            state = (queues.get(name) or {}).get("status")
            self._wrong("S28", process, f"gives {name_of(pod)} room, whose queue {name} is not open: {state}")
        # A pod uses only the resources that it requests.
        wanted = {resource for resource, amount in read.requests(pod).items() if amount}
        for above, holds in seen.holds(read.chain(name, queues), queues).items():
            counted = {resource: amount for resource, amount in holds.items() if resource in wanted}
            if problem := read.above_limits(counted, queues[above]):
                self._wrong("S28", process, f"gives {name_of(pod)} room, and queue {above} has {problem}")

    def sending_bind(self, process: Process, body: bytes) -> None:
        """Check a bind that a process sends."""
        uid = (orjson.loads(body).get("metadata") or {}).get("uid", "")
        given = self._given.get((process.identity, uid))
        if given is None or self._is_unaware(process):
            return
        self._look("S27")
        name, at = given
        if lacks := self._lacked[process.identity, name, at]:
            self._wrong("S27", process, f"binds a member of {name}, which has {lacks}")

    # -- sessions

    def _judge_trial(self, process: Process, batch: BatchScheduler) -> None:
        """Check that nothing is hypothetical between two sessions, and that the snapshot equals the ledger."""
        self._look("S29")
        trial, snapshot, ledger = batch._trial, batch._snapshot, batch._cluster.ledger
        if not trial.is_empty:
            self._wrong("S29", process, "something stays hypothetical after a session")
            return
        if trial.holds_reservations:
            self._wrong("S29", process, "something stays reserved after a session")
        if snapshot.sequence != ledger.sequence:
            return
        mine, true, size = snapshot.columns, ledger.columns, ledger.columns.size
        if not np.array_equal(mine.requested[:, :size], true.requested[:, :size]):
            self._wrong("S29", process, "the room on nodes is not what it was before the session")
        for name in ("hypothetical_pods", "hypothetical_ports", "absent"):
            if left := getattr(mine, name):
                self._wrong("S29", process, f"{name} are left after a session: {left}")

    def _judge_session(self, process: Process, seen: SeenGangs, session: Any, result: Any) -> None:
        if self._is_unaware(process):
            return
        for each in result.groups:
            self._look("S31")
            old, new = each.group.status.phase, each.status.phase
            gives_back = (old, new) == (INQUEUE, PENDING) and not self._keeps_promise(seen, each.group)
            if new not in _NEXT.get(old, frozenset((new,))) and not gives_back:
                self._wrong("S31", process, f"takes {each.group.name} from {old} to {new}")
        if session.evicted:
            self._judge_evictions(process, seen, session)

    def _keeps_promise(self, seen: SeenGangs, group: Any) -> bool:
        """Return whether capacity of its queue is still promised to an admitted group."""
        name = group.name.partition("/")[2]
        return seen.fast_path.ledger.usage.promises.is_let_in(_key(name)) or "enqueue" not in self.cluster.shape.actions

    def _judge_evictions(self, process: Process, seen: SeenGangs, session: Any) -> None:
        self._look("S30")
        self._reached("gang evicted for another")
        tasks = [task for job in session.jobs.values() for task in job.pipelined_tasks() if task.evicting]
        gainers = list(filter(None, (seen.pod(task.uid) for task in tasks)))
        names = set()
        for task, reason in session.evicted:
            if (victim := seen.pod(task.uid)) is not None:
                names.add(read.group_of(victim))
                if problem := self._has_no_right(seen, victim, gainers, reason):
                    self._wrong("S30", process, f"evicts {name_of(victim)} ({reason}): {problem}")
        # Include pods whose eviction an earlier session has decided, and that may not be carried out yet.
        gone = {task.uid for task, _ in session.evicted}
        for job in session.jobs.values():
            gone.update(job.by_status[TaskStatus.RELEASING])
        for name in names - {""}:
            self._judge_broken(process, seen, name, gone)

    def _has_no_right(self, seen: SeenGangs, victim: Json, gainers: list[Json], reason: str) -> str:
        if not gainers:
            return "no pod has a claim on the capacity"
        queue = seen.queue_of(victim)
        if (victim["metadata"].get("annotations") or {}).get("volcano.sh/preemptable") == "false":
            return "it says that it is not to be"
        if reason == "reclaim":
            reclaimable = (seen.queues().get(queue, {}).get("spec") or {}).get("reclaimable", True)
            if not reclaimable:
                return f"its queue {queue} is not reclaimable"
            from_others = any(seen.queue_of(each) != queue for each in gainers)
            return "" if from_others else "for no pod of another queue"
        if self.cluster.shape.by_share:
            return "" if any(seen.queue_of(each) == queue for each in gainers) else "for no pod of its queue"
        mine = _priority_of_group(seen, victim)
        for each in gainers:
            same = read.group_of(each) == read.group_of(victim)
            if same and each["spec"].get("priority", 0) > victim["spec"].get("priority", 0):
                return ""
            if not same and seen.queue_of(each) == queue and _priority_of_group(seen, each) > mine:
                return ""
        return "for no pod of higher priority in its queue"

    def _judge_broken(self, process: Process, seen: SeenGangs, name: str, gone: set[str]) -> None:
        group = seen.group(name)
        if group is None:
            return
        members = seen.gang(name)
        ready, least = [each for each in members if read.is_ready(each)], read.minimum(group, members)
        if least.lacks(ready):
            # It is no longer a complete gang.
            return
        stay = [each for each in ready if uid_of(each) not in gone]
        running = [each for each in stay if not read.has_ended(each)]
        if running and (lacks := least.lacks(stay)):
            self._wrong("S30", process, f"leaves {name} with {lacks}")


def _key(group: str) -> GroupKey:
    native = read.is_native(group)
    return GroupKey("default", group.removeprefix(NATIVE) if native else group, native=native)


def _key_name(key: GroupKey) -> str:
    return f"{NATIVE}{key.name}" if key.native else key.name


def _priority_of_group(seen: SeenGangs, pod: Json) -> int:
    group = seen.group(read.group_of(pod)) if read.group_of(pod) else None
    return PRIORITIES.get(((group or {}).get("spec") or {}).get("priorityClassName", ""), 0)
