"""Checks gangs, their devices and volumes after the last fault: L16 of docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from agent_scheduler.objects.wire import Metadata
from apimachinery.quantity import resource_value
from embedded_kubernetes.device_driver import DRIVER
from tests.decisions.plain.gpu_share import asked

from . import gang_reading as read
from .allocations import is_gated
from .api import NODES, Body, Json, condition_of, content, name_of, node_of, uid_of
from .device_reading import allocation_of, device_of, extended, is_made, owner_of, usable
from .gangs import GangCluster
from .gate_cluster import asks
from .kinds import World
from .legality import attachable, claims_of, has_its_volumes
from .loads import MADE
from .rules import Rules, are_enough, cluster_of, is_ready, places_by_gpus, readable, refusal

_PHASES = ("Pending", "Inqueue", "Running", "Unknown", "Completed")


class Standing:
    """Groups, their members, queues and nodes at a moment, from the store."""

    def __init__(self, world: World, cluster: GangCluster, by: Rules) -> None:
        self._world = world
        self._by = by
        self.divides = cluster.shape.divides
        self._enqueues = "enqueue" in cluster.shape.actions
        self.groups = {**cluster.groups(), **cluster.native_groups()}
        self.queues = cluster.queues()
        self.pods = cluster.pods()
        self.nodes = [readable(content(record)) for record in world.store.tables[NODES].scan("")]
        self.members: dict[str, list[Json]] = {}
        for pod in self.pods:
            if (gang := read.gang_of(pod)) or read.is_batch(pod):
                self.members.setdefault(gang, []).append(pod)
        there = {name_of(node) for node in self.nodes}
        #: The pods with a node, also those whose node was deleted: they count in queues until they are deleted.
        self.bound = [
            pod if world.gpu_safety is None else world.gpu_safety.as_counted_at_most(pod)
            for pod in self.pods
            if node_of(pod) and not read.has_ended(pod)
        ]
        self.placed = [pod for pod in self.bound if node_of(pod) in there]
        gates = world.gates
        reserved = [] if gates is None else filter(gates.has_room_reserved, self.pods)
        self.reserved = [pod for pod in reserved if self._may_be_placed(pod)]
        #: The reason why sessions place no pod with requests, as in Volcano; empty if there is none. A store that went
        #: back to a state between the deletion and the creation of a queue may leave such a reason.
        self.fault = self._fault() if self.divides == "tree" else ""
        self._cluster = cluster_of(self.nodes, self.placed)
        self._used: dict[str, Counter[str]] = {name: Counter() for name in there}
        self._on: Counter[str] = Counter()
        for pod in self.placed:
            self._used[pod["spec"]["nodeName"]].update(read.requests(pod))
            self._on[pod["spec"]["nodeName"]] += 1

    def _fault(self) -> str:
        """Return why the queues are no valid tree, or which queue has jobs and child queues; empty if valid."""
        if read.ROOT not in self.queues:
            return f"there is no queue {read.ROOT}"
        inner: set[str] = set()
        for name in self.queues:
            above = (self.queues[name].get("spec") or {}).get("parent") or read.ROOT
            if above not in self.queues:
                return f"the parent of {name} is {above}, which does not exist"
            if name != read.ROOT:
                inner.add(above)
                if read.chain(name, self.queues)[-1] != read.ROOT:
                    return f"{name} is its own ancestor"
        holding = {read.queue_of_group(group) for group in self.groups.values()}
        holding |= {self.queue_of(pod) for pod in self.members.get("", ())}
        return "".join(f"{name} has both jobs and queues below it" for name in sorted(inner & holding)[:1])

    def queue_of(self, pod: Json) -> str:
        return read.queue_of(pod, self.groups.get)

    def _may_be_placed(self, pod: Json) -> bool:
        """Return whether the pod's group exists, and its queue accepts pods; if not, nothing is reserved for it."""
        name, queue = read.gang_of(pod), self.queue_of(pod)
        is_there = not name or name in self.groups
        return is_there and (not self.queues or not queue or read.is_open(self.queues.get(queue)))

    def is_stopped(self, pending: Iterable[Json], group: Json | None = None) -> bool:
        """Return whether an error in the queue tree keeps members from being placed.

        Members without requests do not need their queue once their group is admitted.
        """
        phase = read.phase_of_group(group) or "Pending"
        in_sessions = list(filter(read.is_batch, pending))
        is_asked = (self._enqueues and phase == "Pending") or not all(map(read.asks_for_nothing, in_sessions))
        return bool(self.fault and in_sessions) and is_asked

    # -- which pods fit

    def is_let_in(self, name: str, group: Json) -> bool:
        """Return whether the group's `minResources` are no longer checked."""
        asks = self._enqueues and not read.is_native(name) and (group.get("spec") or {}).get("minResources")
        return not asks or read.phase_of_group(group) not in ("Pending", "")

    def _open_to(self, pod: Json) -> frozenset[str] | None:
        """Return the nodes of the pod's shard, if it may use only those."""
        shards = self._world.shards
        return None if shards is None else shards.open_to(shards.of_pod(pod))

    def fits_outside(self, pod: Json) -> bool:
        """Return whether a ready node outside the pod's shard, which it may not use, fits it."""
        mine = self._open_to(pod)
        others = [node for node in self.nodes if is_ready(node) and name_of(node) not in (mine or ())]
        return mine is not None and any(self._takes(node, pod) for node in others)

    def _takes(self, node: Json, *pods: Json) -> bool:
        return all(refusal(pod, node, self._cluster, self._by) is None for pod in pods)

    def left_on(self, node: Json, resources: Iterable[str]) -> Counter[str]:
        """Return the remaining amounts of these resources on a node, and the remaining number of pods."""
        name, allocatable = name_of(node), node["status"]["allocatable"]
        left = Counter(
            {each: resource_value(each, allocatable.get(each, "0")) - self._used[name][each] for each in resources}
        )
        return Counter({**left, "pods": int(allocatable["pods"]) - self._on[name]})

    def _fits(self, pending: list[Json], needed: int, *, anywhere: bool = False) -> bool:
        """Return whether this number of pods fits in any arrangement: each is assumed to be as large as the largest.

        `anywhere`: also on ready nodes outside their shard.
        """
        if any(is_gated(self._world, pod) for pod in pending):
            # Their claims do not exist.
            return False
        largest = read.largest(pending)
        places, mine = 0, self._open_to(pending[0])
        for node in self.nodes:
            name = name_of(node)
            if mine is not None and name not in mine and not (anywhere and is_ready(node)):
                continue
            if not self._takes(node, *pending):
                continue
            free = self.left_on(node, largest)
            left = [free["pods"], *(free[resource] // amount for resource, amount in largest.items() if amount)]
            left += places_by_claims(self._world, pending, node, self.placed)
            by_gpus = places_by_gpus(pending, node, self.placed)
            if by_gpus is not None:
                left.append(by_gpus)
            places += max(0, min(left))
        return places >= needed

    @cached_property
    def promised(self) -> dict[str, Counter[str]]:
        """Return admitted group -> the promised amounts that none of its members has."""
        found: dict[str, Counter[str]] = {}
        for name, group in self.groups.items():
            is_let_in = self._enqueues and read.phase_of_group(group) == "Inqueue"
            if is_let_in and read.is_open(self.queues.get(read.queue_of_group(group))):
                found[name] = self.more(group, self.members.get(name, []))
        return found

    def more(self, group: Json, members: list[Json]) -> Counter[str]:
        """Return the part of `minResources`, or of the requests of its minimum, that no member has.

        Empty for a group without resources of which no member opts in to gates.
        """
        waiting = [pod for pod in members if read.waits(pod)]
        has = {uid_of(pod) for pod in (*self.bound, *self.reserved)}
        holding = [pod for pod in members if uid_of(pod) in has]
        asked = read.amounts((group.get("spec") or {}).get("minResources"))
        if not any(asked.values()) and not any(map(asks, members)):
            return asked
        asked |= read.most_of([*holding, *waiting], read.minimum(group, members).members)
        for pod in holding:
            asked.subtract(read.requests(pod))
        return +asked

    def add_promises(self, holds: dict[str, Counter[str]], names: Iterable[str]) -> None:
        """Add the promises of these groups to the usage of queues."""
        for name in names:
            for above in holds.keys() & read.chain(read.queue_of_group(self.groups[name]), self.queues):
                holds[above].update(self.promised[name])

    def is_held(self, pod: Json) -> bool:
        """Return whether the queue of a fast-path pod has no room for it, or for what its gang lacks."""
        if not self.has_room([pod], 1):
            return True
        if queue := self.queue_of(pod):
            holds = self._above(queue, without=[pod])
            self.add_promises(holds, self.promised)
            if read.is_above(holds, self.queues, read.requests(pod)):
                return True
        name = read.gang_of(pod)
        if not name or name not in self.groups:
            return False
        members = self.members[name]
        lacking = read.minimum(self.groups[name]).members - sum(map(read.is_ready, members))
        pending = read.pending(members)
        return lacking > 1 and not self.has_room(pending, lacking)

    def lacks_members(self, pod: Json) -> bool:
        """Return whether a fast-path pod waits because its gang is missing or has too few ungated members."""
        name = read.gang_of(pod)
        if not name or read.is_batch(pod):
            return False
        members = filter(lambda each: not read.has_ended(each), self.members[name])
        there = [each for each in members if node_of(each) or not each["spec"].get("schedulingGates")]
        return name not in self.groups or bool(read.minimum(self.groups[name]).lacks(there))

    def refuses_gang(self, name: str, *, without: Iterable[Json]) -> bool:
        """Return whether the gang's queue has not declared room for what the gang lacks of its minimum.

        It is not if the members name several queues, because each queue's share is not defined.
        """
        members = self.members[name]
        pending = read.pending(members)
        queues = {self.queue_of(pod) for pod in pending}
        lacking = read.minimum(self.groups[name]).members - sum(map(read.is_ready, members))
        if len(queues) != 1 or lacking <= 1:
            return False
        holds = self._above(*queues, without=(*pending, *without))
        return bool(read.is_above(holds, self.queues, read.least_of(pending, lacking)))

    def has_room(self, pending: list[Json], needed: int, *, beside: Iterable[Json] = ()) -> bool:
        """Return whether the queues of these pods, of one group or single, have declared room for `needed`.

        If they name several queues, for all of them.
        """
        queues = {self.queue_of(pod) for pod in pending}
        if not self.queues or queues == {""}:
            return True
        if len(queues) == 1:
            return self.declares_room(*queues, pending, needed, beside=beside)
        if not all(read.is_open(self.queues.get(each)) for each in queues if each):
            return False
        holds = self.holds(beside=(*pending, *beside))
        above = {name for queue in queues for name in read.chain(queue, self.queues)}
        return not any(read.above_limits(holds[name], self.queues[name]) for name in above)

    def _is_offered(self, queue: str, pending: list[Json], needed: int) -> bool:
        """Return whether all nodes together offer what the queue would use with the pods in addition.

        Only if the plugins divide the cluster among queues: pods on nodes that have shrunk may use more.
        """
        if self.divides not in ("capacity", "proportion") or not read.is_batch(pending[0]):
            return True
        total, held = self._total(), self.holds(without=pending)[queue]
        asked = read.largest(pending).items()
        return all(held[name] + needed * amount <= total[name] for name, amount in asked if amount)

    def declares_room(
        self, queue: str, pending: list[Json], needed: int, *, without: Iterable[Json] = (), beside: Iterable[Json] = ()
    ) -> bool:
        """Return whether the queue has declared room for `needed` of the pods.

        `without`: pods whose reservations do not count; `beside`: others that count without a reservation.
        """
        wanted = {name: needed * amount for name, amount in read.largest(pending).items()}
        holds = self._above(queue, without=(*pending, *without), beside=beside)
        return read.is_open(self.queues.get(queue)) and not read.is_above(holds, self.queues, wanted)

    def has_room_for(self, queue: str, amounts: Mapping[str, int]) -> bool:
        """Return whether the queue and its parents have declared room for these amounts."""
        return not read.is_above(self._above(queue), self.queues, amounts)

    def _above(self, queue: str, **which: Iterable[Json]) -> dict[str, Counter[str]]:
        """Return the usage of the queue and its parents, as `holds` computes it."""
        holds = self.holds(**which)
        return {name: holds[name] for name in read.chain(queue, self.queues)}

    def holds(self, *, without: Iterable[Json] = (), beside: Iterable[Json] = ()) -> dict[str, Counter[str]]:
        """Return the usage of all queues, including the reservations of admitted pods; each pod counts once."""
        pods = {uid_of(pod): pod for pod in (*self.bound, *self.reserved, *beside)}
        for pod in without:
            pods.pop(uid_of(pod), None)
        return read.held_by(self.queues, self.queues, pods.values(), self.queue_of)

    def _gpus_are_enough(self, pending: list[Json], needed: int) -> bool:
        """Return whether the nodes offer enough devices, for which queues declare no limits."""
        if self._world.gpu_safety is None:
            return True
        return are_enough([*self.bound, *sorted(pending, key=asked)[-needed:]], self.nodes)

    def _total(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for node in self.nodes:
            total.update(read.amounts(node["status"]["allocatable"]))
        return total

    # -- reports

    def untrue(self) -> list[str]:
        """Return the incorrect parts of groups' statuses."""
        found = []
        for name, group in self.groups.items():
            members = self.members.get(name, [])
            if read.queue_of_group(group) not in self.queues or not members or read.is_native(name):
                continue
            status = group.get("status") or {}
            counted = Counter(read.phase(pod) for pod in members if not read.is_leaving(pod))
            for phase in ("Running", "Succeeded", "Failed"):
                said = status.get(phase.lower(), 0)
                if said != counted[phase]:
                    found.append(f"{name} says {said} {phase.lower()}; {counted[phase]} are")
            found += self._phase(name, group, members)
        return found

    def _phase(self, name: str, group: Json, members: list[Json]) -> list[str]:
        status = group.get("status") or {}
        phase = status.get("phase") or ""
        true = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
        if phase not in _PHASES:
            return [f"{name} is in the phase {phase!r}"]
        has = [pod for pod in members if node_of(pod) or read.has_ended(pod)]
        ended = sum(read.has_ended(pod) for pod in has)
        minimum = read.minimum(group, members).members
        # A running group stays Running while roles arrive for which it did not have to wait.
        enough = read.minimum(group).members
        if len(has) < enough and phase in ("Running", "Completed"):
            return [f"{name} is {phase} with {len(has)} of {enough}"]
        if len(has) >= minimum and phase in ("Pending", "Inqueue"):
            return [f"{name} is {phase} with {len(has)} of {minimum}"]
        if phase == "Completed" and ended < len(has):
            return [f"{name} is Completed, and {len(has) - ended} of it run"]
        if phase == "Completed" and any(map(read.waits, members)):
            return [f"{name} is Completed, and some of it wait"]
        ready, waits = sum(map(read.is_ready, members)), any(map(read.waits, members))
        if ready < minimum and waits and "Unschedulable" not in true:
            return [f"{name} has {ready} of {minimum} and does not report it: {sorted(true)}"]
        if len(true & {"Scheduled", "Unschedulable"}) > 1:
            return [f"{name} says both: {sorted(true)}"]
        return []

    def misnamed(self) -> list[str]:
        """Return members with the wrong reason of `Unschedulable` and `NodeShardFull`.

        They report that nodes are missing although all nodes of the cluster, not only those of their shard, fit the
        rest of the minimum or a member above it; or they report a full shard although no other node fits.
        """
        found = []
        for name, members in self.members.items():
            pending = read.pending(members)
            says = {name_of(pod): condition_of(pod).get("reason", "") for pod in pending}
            full = [pod for pod, reason in says.items() if reason == "NodeShardFull"]
            if full and not any(map(self.fits_outside, pending)):
                found.append(f"{full} say NodeShardFull, and no node outside of their shard would do")
            want = [pod for pod in pending if says[name_of(pod)] == "Unschedulable"]
            found += [f"{each}, and say that nodes are missing" for each in self._hold(name, want, pending)]
        return found

    def _hold(self, name: str, want: list[Json], pending: list[Json]) -> list[str]:
        """Return what nodes of the cluster would fit of the pods that want a node."""
        group = self.groups.get(name)
        if not want or (name and group is None) or self.is_stopped(want, group):
            return []
        ready = [pod for pod in self.members[name] if read.is_ready(pod)]
        least = read.minimum(group, self.members[name]) if group else read.Minimum(0, {})
        if group and least.lacks([*pending, *ready]):
            return []
        if least.lacks(ready):
            # If more members than missing ones report it, each does so for itself; one that fits in its shard waits for
            # something else.
            needed = read.needed(least, len(ready), pending)
            if len(want) < len(pending) or self._fits(pending, needed):
                return []
            whole = self._fits(pending, needed, anywhere=True)
            return [f"other nodes hold {needed} of {name}"] if whole else []
        return [f"other nodes hold {name_of(pod)}" for pod in want if self.fits_outside(pod)]

    def silent(self) -> list[str]:
        """Return waiting members without a reason, of groups that sessions evaluate."""
        found = []
        for name, members in self.members.items():
            group = self.groups.get(name)
            for pod in read.pending(filter(read.is_batch, members)):
                said = condition_of(pod)
                missing = "PodGroupNotFound" if name and group is None else ""
                if not missing and self.queue_of(pod) not in self.queues:
                    missing = "QueueFull"
                if said.get("status") != "False" or (missing and said["reason"] != missing):
                    found.append(f"{name_of(pod)} waits and says {said}")
        return found


def misnamed_members(world: World, by: Rules) -> list[str]:
    """Return the findings of `Standing.misnamed`, if there are gangs of a shard in mode hard."""
    shards = world.shards
    if world.gangs is None or shards is None or shards.mode(shards.shape.batch) != "hard":
        return []
    return Standing(world, world.gangs, by).misnamed()


def held_by_queues(world: World, pods: list[Json], by: Rules) -> set[str]:
    """Return the UIDs of the fast-path pods whose queues have no room for them."""
    if world.gangs is None or not pods:
        return set()
    standing = Standing(world, world.gangs, by)
    return {uid_of(pod) for pod in pods if standing.is_held(pod)}


def incomplete(world: World, pods: list[Json], by: Rules) -> set[str]:
    """Return the UIDs of the fast-path pods that wait for other members of their gang to exist without gates."""
    if world.gangs is None or not world.gangs.shape.native or not pods:
        return set()
    standing = Standing(world, world.gangs, by)
    return {uid_of(pod) for pod in pods if standing.lacks_members(pod)}


def have_said_why(world: World, by: Rules) -> bool:
    """Return whether all waiting members that sessions evaluate report a reason."""
    return world.gangs is None or not Standing(world, world.gangs, by).silent()


def check_gangs(world: World, by: Rules) -> None:
    """Check all gangs of a world at rest."""
    assert world.gangs is not None, "it has gangs"
    standing = Standing(world, world.gangs, by)
    world.safety.look("L16")
    if any(map(read.waits, (pod for pods in standing.members.values() for pod in pods))):
        world.states.reached("gang waits at rest")
    for problem in (*standing.untrue(), *standing.silent()):
        world.safety.violated("L16", problem)
    there = {uid_of(pod) for pod in standing.pods if not read.is_leaving(pod)}
    metadata = {name: msgspec.convert(group["metadata"], Metadata) for name, group in standing.groups.items()}
    for process in world.processes:
        batch = process.runtime.batch if process.runtime is not None else None
        if batch is None or not process.is_up or not process.leads():
            continue
        unseen = batch._messages.statuses._unseen.items()
        # The others are forgotten when the next session begins.
        left = {
            "victims": batch._evictions._leaving & there,
            "statuses": [key.name for key, each in unseen if each.is_missing_in(metadata.get(key.name))],
            "in flight": batch.waiting._in_flight,
        }
        for what, those in left.items():
            if those:
                problem = f"{what} are left: {sorted(map(str, those))}"
                world.safety.violated("L16", f"{process.identity}: {problem}")
        if batch.waiting.due.is_set():
            world.safety.violated("L16", f"{process.identity}: a session is due though nothing happens")


# ---- computed from the API's objects


def places_by_claims(world: World, pods: Sequence[Body], node: Body, placed: Sequence[Body]) -> Iterator[int]:
    """Yield, for each kind of requirement other than capacity, for how many of these pods of a gang the node meets it.

    A world with an unallocated claim yields nothing for the pods that share it.
    """
    name = name_of(node)
    if any(map(claims_of, pods)):
        yield len(pods) if all(has_its_volumes(world, pod, node) for pod in pods) else 0
        most = attachable(world, name, MADE)
        if most is not None:
            yield most - sum(len(claims_of(pod)) for pod in placed if pod["spec"]["nodeName"] == name)
    if world.devices is None:
        return
    number, uids = max(map(extended, pods)), {uid_of(pod) for pod in pods}
    for claim in (claim for pod in pods for claim in world.devices.reading.claims_of(pod) or ()):
        allocation = allocation_of(claim)
        if allocation is not None:
            yield len(pods) if usable(allocation, node) else 0
        elif not owner_of(claim):
            yield 0
        else:
            requests = claim["spec"]["devices"]["requests"]
            number = max(number, sum(int(each["exactly"]["count"]) for each in requests))
    if number:
        if not all(world.devices.reading.could_have(pod, node) for pod in pods):
            yield 0
        cluster = world.devices.reading.cluster()
        free = {device for device in cluster.devices(cluster.node(name)) if device[0] == DRIVER}
        for claim in world.devices.reading.claims():
            if not is_made(claim) or owner_of(claim) not in uids:
                results = (allocation_of(claim) or {}).get("devices", {}).get("results", ())
                free -= {device_of(result) for result in results}
        yield len(free) // number
