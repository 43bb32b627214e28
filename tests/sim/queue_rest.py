"""Checks waiting pods in queues at rest, with any actions and plugins: L21, L22 and L24 of docs/reliability.md.

Nothing of what a process has promised is taken from it, except to compare its account with that of the next process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cached_property
from typing import Any, NamedTuple

from agent_scheduler.engine.queues.entries import Standing as Stands

from . import gang_reading as read
from .api import NODES, PODS_PATH, Json, condition_of, name_of, objects, reason_of, uid_of
from .gang_load import GATE
from .gang_rest import Standing
from .gate_cluster import asks, gates, is_ours
from .gpus import are_lost
from .job_reading import stands_by
from .kinds import Process, World
from .rules import Rules

#: Seconds for all consecutive steps: sessions are a second apart, and a rejected pod may be woken only by the flush; a
#: pod that waits for the response to a claim's write waits a minute.
PLACED_WITHIN = 120.0
#: Part of the message of a pod beyond its queue's share, while others within theirs wait for the nodes.
_KEPT = "kept for pods within the share"
#: Seconds in which nothing may be written.
UNWRITTEN = 60.0
#: Seconds until an ended process, or another one in its place, leads again, and for what it does then.
_LEADS_WITHIN, _SETTLES = 240.0, 60.0


class Waiting(Standing):
    """The waiting pods at a moment, and what they wait for."""

    # -- what a pod waits for

    def lacks(self, pod: Json) -> str:
        """Return what an ungated pod waits for that no node provides; empty for nothing."""
        name, queue = read.gang_of(pod), self.queue_of(pod)
        if name and name not in self.groups:
            return f"its group {name} is not there"
        if self.queues and queue and not read.is_open(self.queues.get(queue)):
            return f"its queue {queue} is not open, or not there"
        if not name:
            return ""
        members = self.members[name]
        least = read.minimum(self.groups[name], members)
        ready = [each for each in members if read.is_ready(each)]
        there = [*ready, *(each for each in members if read.waits(each))]
        if problem := least.lacks(there):
            return f"its gang has {problem}"
        if problem := least.lacks([*ready, *read.pending(members), *filter(stands_by, members)]):
            return f"its gang has {problem} without gates"
        return ""

    # -- room of queues

    @cached_property
    def _kept(self) -> set[str]:
        """Groups that keep their promise until they are placed: they lack only nodes."""
        return {
            name
            for name in self.promised
            if (pending := read.pending(self.members.get(name, []))) and not any(map(self.lacks, pending))
        }

    def leaves_room(self, waiting: list[Json], needed: int, name: str) -> bool:
        """Return whether the queue has room in addition to placed pods and to promises of groups that lack only nodes.

        `name`: of the pods' group, if they have one.
        """
        queues = {self.queue_of(pod) for pod in waiting}
        if not self.queues or queues == {""}:
            return True
        if len(queues) > 1:
            return self.has_room(waiting, needed)
        (queue,) = queues
        if not read.is_open(self.queues.get(queue)):
            return False
        wanted = Counter({each: needed * amount for each, amount in read.largest(waiting).items()})
        if name and not read.is_native(name):
            wanted |= self.more(self.groups[name], [pod for pod in self.members[name] if read.is_ready(pod)])
        return not self._lacks_beside(queue, waiting, wanted, name)

    def _lacks_beside(
        self, queue: str, mine: list[Json], wanted: Counter[str], name: str, *, is_complete: bool = True
    ) -> str:
        """Return what the queue or a parent lacks for `wanted`, without the usage of `mine` and of the group `name`.

        A group that lacks members does not end another's promise, and comes after all that wait for nodes.
        """
        without, first = [pod for pod in mine if read.waits(pod)], list[Json]()
        if not is_complete:
            own = set(map(uid_of, mine))
            first = [
                pod
                for pod in filter(is_ours, read.pending(self.pods))
                if uid_of(pod) not in own and not self.lacks(pod)
            ]
        holds = self._above(queue, without=[*without, *first])
        for pod in first:
            for above in holds.keys() & read.chain(self.queue_of(pod), self.queues):
                holds[above].update(read.requests(pod))
        self.add_promises(holds, (self._kept if is_complete else self.promised.keys()) - {name})
        return read.is_above(holds, self.queues, wanted)

    # -- pods that should have been placed

    def resting(self) -> list[str]:
        """Return waiting gangs, and pods in no gang, that fit on the existing nodes and into their queues."""
        if any(map(stands_by, self.pods)):
            # Capacity is reserved for them on nodes that are not in the API.
            return []
        found = []
        for name, group in self.groups.items():
            members = self.members.get(name, [])
            waiting, ready = list(filter(_may_go, members)), list(filter(read.is_ready, members))
            least = read.minimum(group, members)
            if self._is_kept_out(name, group, members):
                found.append(f"{name} is not let in, with {len(waiting)} pods that wait")
                continue
            if not waiting or least.lacks([*waiting, *ready]) or self.is_stopped(waiting, group):
                continue
            needed = read.needed(least, len(ready), waiting)
            if self._rests(waiting, needed, name):
                found.append(f"{name} fits with {needed} more of {len(waiting)} that wait")
        for pod in filter(_may_go, self.pods):
            if not read.gang_of(pod) and not self.is_stopped([pod]) and self._rests([pod], 1, ""):
                found.append(f"{name_of(pod)} fits")  # noqa: PERF401
        return found

    def _is_kept_out(self, name: str, group: Json, members: list[Json]) -> bool:
        """Return whether a group stays Pending although its queue has room for its admission.

        It may lack pods that are created only after admission. A group that was created for a pod is skipped if the pod
        is gone.
        """
        if self.is_let_in(name, group) or self.fault or (not members and name.startswith("podgroup-")):
            return False
        least, queue = read.minimum(group, members), read.queue_of_group(group)
        waiting, ready = list(filter(_may_go, members)), list(filter(read.is_ready, members))
        # Its minimum includes members with other gates.
        more = list(filter(read.waits, members))
        largest, needed = read.largest(more), least.members - len(ready)
        # The reservations of its waiting members do not count in its queue here.
        asked = self.more(group, ready)
        asked |= Counter({each: needed * largest[each] for each in largest} if more else {})
        if not asked or not read.is_open(self.queues.get(queue)):
            return False
        return not self._lacks_beside(queue, members, asked, name, is_complete=not least.lacks([*waiting, *ready]))

    def _rests(self, waiting: list[Json], needed: int, name: str) -> bool:
        queue = self.queue_of(waiting[0])
        said = [condition_of(pod).get("message", "") for pod in self.pods if self.queue_of(pod) == queue]
        said += [
            each.get("message", "") for each in (self.groups.get(name, {}).get("status") or {}).get("conditions") or ()
        ]
        says_kept = any(_KEPT in each for each in said) or self._is_crowded(queue, waiting)
        is_kept = self.divides == "proportion" and says_kept
        return (
            not (is_kept and self._is_needed(waiting, needed))
            and self._fits(waiting, needed)
            and self._gpus_are_enough(waiting, needed)
            and self.leaves_room(waiting, needed, name)
            and self._is_offered(queue, waiting, needed)
        )

    def _is_crowded(self, queue: str, waiting: list[Json]) -> bool:
        """Return whether some of the pods report `QueueFull`, and the queue lacks room for all pods that wait together.

        A pod whose queue lacks room in addition to all before it reports that first, and not the nodes' reasons.
        """
        if not any(reason_of(pod) == "QueueFull" for pod in waiting):
            return False
        holds = self.holds(beside=filter(_may_go, self.pods))
        self.add_promises(holds, self.promised)
        chain = read.chain(queue, self.queues)
        return any(read.above_limits(holds[each], self.queues[each]) for each in chain)

    def _is_needed(self, waiting: list[Json], needed: int) -> bool:
        """Return whether other waiting pods may need what these would take, on each node that they fit on.

        That is: of a resource that they request, less would remain than the others request in total. Computed only for
        single pods that request only capacity.
        """
        if needed > 1 or not all(map(_asks_for_room, waiting)):
            return True
        wanted, name = read.largest(waiting), read.gang_of(waiting[0])
        others = [self._next(group, pods) for group, pods in self.members.items() if group not in ("", name)]
        others += [[pod] for pod in self.members.get("", ()) if _may_go(pod) and pod not in waiting]
        for node in self.nodes:
            left = self.left_on(node, wanted) if self._takes(node, *waiting) else Counter()
            if not left or any(left[each] < amount for each, amount in wanted.items()):
                continue
            if not any(_would_lack(pods, left, wanted) for pods in others):
                return False
        return True

    def _next(self, name: str, members: list[Json]) -> list[Json]:
        """Return the largest waiting members, as many as the group needs together; none if it lacks members."""
        waiting, ready = list(filter(_may_go, members)), list(filter(read.is_ready, members))
        if name not in self.groups:
            return waiting[:1]
        least = read.minimum(self.groups[name], members)
        if least.lacks([*waiting, *ready]):
            return []
        number = read.needed(least, len(ready), waiting)
        return sorted(waiting, key=lambda pod: sum(read.requests(pod).values()), reverse=True)[: max(number, 1)]

    def misled(self) -> list[str]:
        """Return pods that report missing nodes, and wait for something else."""
        return [
            f"{name_of(pod)} says Unschedulable, and {problem}"
            for pod in filter(is_ours, self.pods)
            if read.pending([pod]) and _wants_a_node(pod) and (problem := self.lacks(pod))
        ]


def _may_go(pod: Json) -> bool:
    """Return whether the pod waits without gates other than its queue's."""
    return is_ours(pod) and read.waits(pod) and (not gates(pod) or (asks(pod) and gates(pod) == [GATE]))


#: Parts of a spec that request more than capacity, and that refer to other pods.
_MORE = ("volumes", "resourceClaims")
_OF_PODS = ("affinity", "topologySpreadConstraints")


def _asks_for_room(pod: Json) -> bool:
    spec = pod["spec"]
    ports = any(each.get("ports") for each in spec["containers"])
    # GPUs and other devices, which `read.requests` does not include.
    devices = any(
        "/" in name for each in spec["containers"] for name in (each.get("resources") or {}).get("requests") or ()
    )
    return not (ports or devices or any(map(spec.get, (*_MORE, *_OF_PODS))))


def _would_lack(pods: list[Json], left: Counter[str], taken: Counter[str]) -> bool:
    if any(any(map(pod["spec"].get, _OF_PODS)) for pod in pods):
        return True
    total = sum(map(read.requests, pods), Counter[str]())
    return any(left[each] - amount < total[each] for each, amount in taken.items() if total[each])


def _wants_a_node(pod: Json) -> bool:
    said = condition_of(pod)
    return said.get("status") == "False" and said.get("reason") == "Unschedulable"


async def until_nobody_rests(world: World, by: Rules) -> bool:
    """Return whether all pods that fit, on nodes and in queues, are placed in time."""
    assert world.gangs is not None, "it has queues"
    world.safety.look("L21")
    deadline = world.loop.time() + PLACED_WITHIN
    while resting := Waiting(world, world.gangs, by).resting():
        if world.loop.time() >= deadline:
            for each in resting[:3]:
                world.safety.violated("L21", f"{each}, and its queue has room, and is not placed")
            return False
        await asyncio.sleep(2.0)
    return True


def check_words(world: World, by: Rules) -> None:
    """Check the reports of waiting pods at rest."""
    assert world.gangs is not None, "it has queues"
    world.safety.look("L22")
    for problem in Waiting(world, world.gangs, by).misled()[:3]:
        world.safety.violated("L22", problem)


# -- a process that restarts


class _Rest(NamedTuple):
    """The state that a restart must not change.

    `account`: of each pod and each group with a promise, its queue, its amounts, and whether it is placed; reservations
    of all kinds are alike. `says`: of pods that have not ended, their node and report, and of groups their phases.
    `queues`: of both, all queues except the root that count their requests. `lacking`: groups without their minimum of
    members, with their pods, and groups that pods name and that do not exist. `unwritten`: pods whose last report the
    API server has rejected.
    """

    account: dict[str, tuple[str, dict[str, float], bool]]
    says: dict[str, tuple[str, str]]
    queues: dict[str, frozenset[str]]
    lacking: frozenset[str]
    nodes: frozenset[str]
    unwritten: frozenset[str]

    @classmethod
    def of(cls, world: World, process: Process) -> _Rest:
        assert world.gangs is not None, "it has queues"
        assert process.fast_path is not None, "it leads"
        usage: Any = process.fast_path.ledger.usage
        pods, groups, queues = world.gangs.pods(), world.gangs.groups(), world.gangs.queues()
        names = {uid_of(pod): name_of(pod) for pod in pods}
        account = {
            names.get(uid, uid.replace("default/", "group ")): (
                entry.queue,
                {resource: amount for resource, amount in entry.vector.items() if amount},
                entry.standing is Stands.BOUND,
            )
            for uid, entry in usage.book._entries.items()
        }
        members: dict[str, list[Json]] = {}
        for pod in pods:
            members.setdefault(read.group_of(pod), []).append(pod)
        lacking = {name for name, group in groups.items() if _lacks(group, members.get(name, []))}
        missing = members.keys() - groups.keys() - {""}
        without = [name_of(pod) for pod in pods if read.group_of(pod) in lacking]
        says = {name_of(pod): _says(pod) for pod in pods if not read.has_ended(pod)}
        says |= {f"group {name}": ("", read.phase_of_group(group)) for name, group in groups.items()}
        of = {name_of(pod): read.queue_of(pod, groups.get) for pod in pods}
        of |= {f"group {name}": read.queue_of_group(group) for name, group in groups.items()}
        of |= {f"group {name}": read.queue_of(members[name][0], groups.get) for name in missing}
        above = {name: frozenset(read.chain(queue, queues)) - {"root"} for name, queue in of.items()}
        nodes = frozenset(name_of(node) for node in objects(world.store, NODES))
        of_lacking = frozenset((*(f"group {name}" for name in lacking | missing), *without))
        rejected = world.rejected_statuses
        unwritten = frozenset(name for name in names.values() if f"{PODS_PATH}/{name}/status" in rejected)
        return cls(account, says, above, of_lacking, nodes, unwritten)

    def changes(self, after: _Rest) -> list[str]:
        """Return the changes between two pictures, without permitted ones.

        Pods whose reservation had timed out have it again. Which of several groups that lack members is admitted may
        change, because a process forgets which of them have had their turn, and with it which pods beside them have the
        capacity. An autoscaler may remove a node, and with it ended members. If it adds one outside of the shard, pods
        report `NodeShardFull`. A report that the API server has rejected is written when the pod is tried again.
        """
        lacking = self.lacking | after.lacking
        new_nodes = after.nodes - self.nodes
        in_turns = frozenset[str]().union(
            *(self.queues.get(each, ()) for each in lacking if self._counts_otherwise(after, each))
        )
        names = self.account.keys() | after.account.keys() | self.says.keys() | after.says.keys()
        nothing, nowhere = frozenset[str](), ("", "")
        compared = [
            name
            for name in sorted(names)
            if not (self.queues.get(name, nothing) | after.queues.get(name, nothing)) & in_turns
        ]
        found = []
        for name in compared:
            was, now = self.says.get(name, nowhere), after.says.get(name, nowhere)
            may_report = name in lacking or name in self.unwritten or (new_nodes and now[1].endswith("NodeShardFull"))
            if was[0] != now[0] or (was != now and not may_report):
                found.append(f"{name}: {' '.join(was)}, then {' '.join(now)}")
        # If pods have moved, the account differs as a consequence.
        return found or [
            f"{name} counts as {self.account.get(name)}, then as {after.account.get(name)}"
            for name in compared
            if name not in lacking and self._counts_otherwise(after, name)
        ]

    def _counts_otherwise(self, after: _Rest, name: str) -> bool:
        return self.account.get(name) != after.account.get(name)


def _lacks(group: Json, members: list[Json]) -> bool:
    """Return whether the group lacks its minimum of members without other gates."""
    there = [
        pod
        for pod in members
        if not read.is_leaving(pod) and read.phase(pod) != "Failed" and (_may_go(pod) or not gates(pod))
    ]
    return bool(read.minimum(group, there).lacks(there))


async def check_restarts(world: World) -> None:
    """Check each leading scheduler at rest: after its restart queues count the same, and no pod moves.

    Not checked if an autoscaler has removed an unused node meanwhile: pods that fitted it then request another one; and
    if the annotation of a pod's GPUs was removed: a new process counts them as free.
    """
    if (world.shape.gates is not None and world.shape.gates.timeout) or are_lost(world):
        return
    for process in [each for each in world.processes if each.scheduler and each.is_up and each.leads()]:
        world.safety.look("L24")
        before = _Rest.of(world, process)
        if world.seed % 2:
            process.kill("killed at rest")
        else:
            process.terminate()
        follows = await _follower(world, process)
        if follows is None:
            return
        await asyncio.sleep(_SETTLES)
        after = _Rest.of(world, follows)
        changes = before.changes(after) if before.nodes <= after.nodes else ()
        if changes:
            world.safety.violated("L24", f"as {process.name} begins anew, {'; '.join(changes[:3])}")


async def _follower(world: World, ended: Process) -> Process | None:
    """Return the process that leads after `ended`; None if there is none in time."""
    deadline = world.loop.time() + _LEADS_WITHIN
    was = ended.identity
    while world.loop.time() < deadline:
        await asyncio.sleep(1.0)
        for each in world.processes:
            path = each.fast_path
            leads = each.scheduler == ended.scheduler and each.is_up and each.leads()
            if leads and each.identity != was and path is not None and path.is_synced:
                return each
    world.safety.violated("L24", f"nobody leads {_LEADS_WITHIN:g} s after {was} was ended")
    return None


def _says(pod: Json) -> tuple[str, str]:
    where = pod["spec"].get("nodeName") or (pod.get("status") or {}).get("nominatedNodeName") or "no node"
    return where, f"{read.phase(pod)} {gates(pod)} {condition_of(pod).get('reason', '')}"
