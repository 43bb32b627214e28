"""Judges the owners of devices (S17, S18, L7 and L10 of docs/reliability.md) by the API's own history.

As with evictions, the judge takes only versions from a process to know what it had observed; their content is the
API's. Effects of others are no violations: allocations of other schedulers and of dead processes, and reservations that
another client removed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import orjson

from agent_scheduler.engine.dra.allocation import Allocation
from agent_scheduler.engine.dra.reservation import ReservedClaims
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes.store import Event, Record
from tests.decisions.devices.validity import (
    Cluster,
    DeviceId,
    device_of,
    overdrawn,
    problems,
    results_of,
    too_much,
    usable,
)

from . import device_reading as read
from .api import FINAL, NODES, PODS, Json, content, name_of, node_of, objects, uid_of
from .judge import History, Judge, hear_before, is_first
from .kinds import Process, World


def _for(pod: str) -> str:
    """Return the key that represents the claim for a pod's extended resources before that claim exists."""
    return f"of {pod}"


def _chosen_for(claim: Json) -> str:
    """Return the key under which a choice for the claim is stored."""
    return _for(read.owner_of(claim)) if read.is_made(claim) else str(uid_of(claim))


def _timeless(allocation: Json) -> Json:
    """Return the allocation without its timestamp, which is set when it is written."""
    return {key: value for key, value in allocation.items() if key != "allocationTimestamp"}


class Allocations(Judge):
    """The judge of allocations: subscribes to the store of a world with devices.

    Owner of the choices of all processes.
    """

    def __init__(self, world: World, reading: read.Reading) -> None:
        super().__init__(world)
        self._reading = reading
        self._known = History(world, (read.CLASSES, read.SLICES, read.CLAIMS)).known
        #: (Process, claim's UID) -> what the process chose to allocate to it.
        self._chosen: dict[tuple[str, str], list[Json]] = {}
        #: (Identity of a process, claim's UID) -> the allocation that the process assumes, or last assumed.
        self._assumed: dict[tuple[str, str], Allocation] = {}
        #: Device -> UIDs of the claims that have it, but for administration, and the result of each.
        self._had: dict[DeviceId, dict[str, Json]] = {}
        #: Device -> UIDs of the claims to which it is allocated (except for admin access), with the result of each.
        self.foreign: set[str] = set()
        #: UIDs of claims that were allocated by others than a living leader of ours.
        self._contested: set[str] = set()
        #: Devices that others have allocated at some time, as they observe the writes.
        self.disputed: set[DeviceId] = set()
        #: Devices that two claims had at the same time, not by the fault of a process of ours.
        self._robbed: set[tuple[str, str]] = set()
        #: (UID of a claim, UID of a pod): reservations that another client removed.
        self.bound: set[str] = set()
        #: UIDs of pods that a process of ours has bound while it was allowed to.
        self.left_by_others: set[str] = set()
        world.store.tables[read.CLAIMS].subscribers.append(self._claim)

    def went_back(self) -> None:
        """Reset the records of history after a restore, whose allocations and reservations are of others."""
        self._had.clear()
        self.left_by_others.clear()
        claims = self._reading.claims()
        reserved = {(uid_of(claim), pod) for claim in claims for pod in read.reserved_for(claim)}
        self._robbed -= reserved
        self.bound &= {uid_of(pod) for pod in objects(self.world.store, PODS) if node_of(pod)}
        for claim in claims:
            uid, allocation = uid_of(claim), read.allocation_of(claim)
            if not allocation:
                self.foreign.discard(uid)
                continue
            if not read.reserved_for(claim):
                self.left_by_others.add(uid)
            for result in results_of(allocation):
                if not result.get("adminAccess"):
                    self._had.setdefault(device_of(result), {})[uid] = result

    def refused(self, body: bytes) -> None:
        """Record a rejected patch of a claim; if it removes an allocation, it is not sent again."""
        patch = orjson.loads(body)
        if "allocation" in (status := patch.get("status") or {}) and status["allocation"] is None:
            self.left_by_others.add(uid_of(patch))

    # -- choices

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Record each choice of the process, and states that no metric has. Idempotent."""
        prebind: Any = fast_path.binder._prebind
        queue: Any = fast_path.queue
        if not is_first(prebind, "allocations"):
            return
        add, states, calls = queue.add, self.world.states, fast_path.binder._pre_bind_calls

        def starts(_result: Any, _node_name: str, reserved: Any, _calls: Any) -> None:
            for plugin, reservation in reserved.parts:
                if plugin.name == "DynamicResources":
                    self._judge(process, fast_path, reservation)

        def ended(result: Any, node_name: str, problem: str) -> None:
            if problem and not fast_path.cluster.waits(result.pod.uid):
                states.reached("pod gone while its claims are written")
            if "allocated by another client" in problem:
                states.reached("claim lost to another scheduler")
            calls.ended(result, node_name, problem)

        def added(pod: Any) -> None:
            gated = queue.where(pod.uid) is Place.GATED
            claims = queue.places.unschedulable.entries.get(pod.uid).pod.claims if gated else None
            add(pod)
            if gated and claims != pod.claims and queue.where(pod.uid) is not Place.GATED:
                states.reached("gated pod woken by its own status")

        devices: Any = fast_path.cluster.devices
        assume, assume_in_memory = devices.assume, devices.assume_in_memory

        def assumed(key: Any, allocation: Allocation | None, *more: Any) -> Any:
            if not assume(key, allocation, *more):
                return False
            if allocation is not None:
                claim = _chosen_for(self._known(devices.claim(key)))
                self._assumed[process.identity, claim] = allocation
            return True

        def assumed_in_memory(pod: str, spec: Any, allocation: Allocation) -> Any:
            if not assume_in_memory(pod, spec, allocation):
                return False
            self._assumed[process.identity, _for(pod)] = allocation
            return True

        hear_before(prebind, "start", starts)
        fast_path.binder._pre_bind_calls = calls._replace(ended=ended)
        queue.add = added
        devices.assume, devices.assume_in_memory = assumed, assumed_in_memory

    def _judge(self, process: Process, fast_path: FastPath, reservation: ReservedClaims) -> None:
        devices, ledger = fast_path.cluster.devices, fast_path.ledger
        if self._is_unaware(process):
            return
        parts = [part for part in reservation.claims if part.allocation is not None]
        self._look("S17")
        claims: list[Json] = []
        given: list[Json] = []
        if (in_memory := reservation.in_memory) is not None:
            allocation = orjson.loads(orjson.dumps(in_memory.allocation.status("", reservation.at)))
            self._choose(process, _for(reservation.pod.uid), allocation)
            claims.append({"metadata": {"name": "of its own"}, "spec": in_memory.spec})
            given.append(allocation)
        for part in parts:
            assert part.allocation is not None, "chosen so"
            known = devices.claim(part.claim)
            allocation = orjson.loads(orjson.dumps(part.allocation.status(part.uid, reservation.at)))
            self._choose(process, part.uid, allocation)
            if known is None:
                self._wrong("S17", process, f"{part.claim[1]} is allocated and not there")
                return
            claims.append(self._known(known))
            given.append(allocation)
        nodes = list(map(self.world.evictions.known, filter(None, map(ledger.node, ledger.rows))))
        own = {reservation.pod.uid, *(part.uid for part in parts)}
        classes, slices = map(self._known, devices.classes.values()), devices.pools.slices.values()
        taken = list(self._taken(process, fast_path, own))
        cluster = Cluster(nodes, list(classes), list(map(self._known, slices)), taken)
        try:
            found = problems(cluster, reservation.node_name, claims, given)
            # Others may have allocated more than exists.
            used = {device_of(each) for each in cluster.had() if not each.get("adminAccess")}
            before = [*too_much(cluster, cluster.node(reservation.node_name), [])]
            before += overdrawn(cluster, used, used)
            found = [each for each in found if each not in before]
        except StopIteration:
            found = ["a class or the node is not there"]
        for problem in found[:3]:
            names = [name_of(claim) for claim in claims]
            self._wrong("S17", process, f"allocates {names} on {reservation.node_name}: {problem}")
        self._judge_held(process, fast_path, reservation, nodes)

    def _judge_held(
        self, process: Process, fast_path: FastPath, reservation: ReservedClaims, nodes: list[Json]
    ) -> None:
        node = next((each for each in nodes if name_of(each) == reservation.node_name), None)
        for part in reservation.claims:
            known = fast_path.cluster.devices.claim(part.claim)
            if part.allocation is not None or known is None or node is None:
                continue
            claim = self._known(known)
            allocation = read.allocation_of(claim) or self._assumes(process, _chosen_for(claim))
            if allocation is None or not usable(allocation, node):
                self._wrong("S18", process, f"{part.claim[1]} cannot be used on {reservation.node_name}")

    def _taken(self, process: Process, fast_path: FastPath, own: set[str]) -> Iterator[Json]:
        """Yield the claims with devices as far as the process knows: observed, or chosen by itself and not undone."""
        devices = fast_path.cluster.devices
        for key, known in devices.claims.items():
            claim = self._known(known)
            if read.allocation_of(claim):
                yield claim
                continue
            assumed = devices.assumed.get(key)
            if assumed is None or assumed.allocation is None or known.uid in own:
                continue
            allocation = self._assumes(process, _chosen_for(claim))
            if allocation is not None:
                yield {**claim, "status": {"allocation": allocation}}
        for pod in devices._in_memory:
            allocation = self._assumes(process, _for(pod))
            if allocation is not None and pod not in own:
                yield {"metadata": {"name": pod}, "status": {"allocation": allocation}}

    def _choose(self, process: Process, claim: str, allocation: Json) -> None:
        self._chosen.setdefault((process.name, claim), []).append(allocation)

    def _assumes(self, process: Process, claim: str) -> Json | None:
        found = self._assumed.get((process.identity, claim))
        return None if found is None else orjson.loads(orjson.dumps(found.status("", "")))

    # -- commits

    def _claim(self, event: Event) -> None:
        if self.world.backups.restoring:
            return
        record = event.record
        self.world.trace("", f"claim {event.type} {record.name}")
        now: Json = {} if event.type == "DELETED" else content(record)
        was: Json = content(event.previous) if event.previous is not None else {}
        actor, lives = self.world.safety.author()
        lives = lives and not self._is_unaware(actor)
        before, after = read.allocation_of(was), read.allocation_of(now)
        had, has = read.reserved_for(was), read.reserved_for(now)
        lost, won = had - has, has - had
        if after and not has and (actor is None or not lives):
            self.left_by_others.add(record.uid)
        elif not after or after != before or has or had:
            self.left_by_others.discard(record.uid)
        if actor is None:
            self._robbed |= {(record.uid, uid) for uid in lost}
        else:
            self._robbed -= {(record.uid, uid) for uid in won}
            if before and not after:
                self._reached("claim deallocated")
            elif lost:
                self._reached("reservation taken back")
            if won and before:
                self._reached("claim shared")
        if before and after is None:
            for result in results_of(before):
                self._had.get(device_of(result), {}).pop(record.uid, None)
            self.foreign.discard(record.uid)
        if after and before is None:
            self._allocated(record, now, after, actor, lives)

    def _allocated(self, record: Record, claim: Json, allocation: Json, actor: Process | None, lives: bool) -> None:
        ours = actor is not None and lives
        if not ours:
            self._is_given_by_others(record.uid, allocation)
        elif actor is not None and all(
            _timeless(allocation) != _timeless(each) for each in self._chosen.get((actor.name, _chosen_for(claim)), ())
        ):
            self._wrong("S17", actor, f"{record.key} has an allocation that no process chose: {allocation}")
        for result in results_of(allocation):
            if result.get("adminAccess"):
                continue
            device = device_of(result)
            had = self._had.setdefault(device, {})
            others = {uid: each for uid, each in had.items() if uid != record.uid}
            had[record.uid] = result
            if not others or not self._is_too_much(device, [*others.values(), result]):
                continue
            if not ours or others.keys() & self.foreign:
                self.disputed.add(device)
            elif actor is not None:
                self._wrong("S17", actor, f"{record.key} gets {device}, which {len(others)} others have")

    def _is_too_much(self, device: DeviceId, results: list[Json]) -> bool:
        if any("shareID" not in each for each in results):
            return True
        specs = self._reading.cluster().newest.get(device[:2], ())
        devices = [each for spec in specs for each in spec.get("devices") or () if each["name"] == device[2]]
        # The amounts are whole numbers, as in `device_load`.
        return any(
            sum(int(each["consumedCapacity"][name]) for each in results) > int(size["value"])
            for each_of in devices
            for name, size in (each_of.get("capacity") or {}).items()
        )

    def check_books(self, process: Process, fast_path: FastPath) -> None:
        """Check the process's own account of devices."""
        for problem in fast_path.cluster.devices.check():
            if not self.is_contested(problem):
                self._wrong("S7", process, problem)

    def is_contested(self, problem: str) -> bool:
        """Return whether a finding of `Devices.check` concerns devices that others allocate, so that two may own it."""
        # The finding names a device or, for the counters that its devices share, a pool.
        where = problem.partition(" is had ")[0].partition(": ")[0]
        shared = problem.endswith(" in use") and any(each.startswith(f"{where}/") for each in self._contested)
        return shared or where in self._contested

    def nobody_knows_devices(self) -> None:
        """Count all current allocations as made by others, because the process may have listed an older state."""
        for claim in self._reading.claims():
            if allocation := read.allocation_of(claim):
                self._is_given_by_others(uid_of(claim), allocation)

    def _is_given_by_others(self, claim: str, allocation: Json) -> None:
        self.foreign.add(claim)
        self._contested |= {"/".join(device_of(each)) for each in results_of(allocation)}

    def is_robbed(self, pod: str) -> bool:
        """Return whether another client removed a reservation of the pod that was not restored."""
        return any(uid == pod for _, uid in self._robbed)

    def check_bind(self, record: Record, pod: Json, actor: Process) -> None:
        """Check the claims of a pod that a process has bound and was allowed to bind."""
        if not pod["spec"].get("resourceClaims") and not read.extended(pod):
            return
        self.bound.add(record.uid)
        self._look("S18")
        if self.is_robbed(record.uid):
            return
        if read.extended(pod):
            self._reached("extended resource met by devices")
        node = self.world.store.tables[NODES].records.get(pod["spec"]["nodeName"])
        for named in read.named_by(pod):
            claim = self._reading.claim(named.name) if named.name else None
            why = self._unready(claim, record, named.own)
            allocation = read.allocation_of(claim) if claim is not None else None
            if not why and node is not None and allocation and not usable(allocation, content(node)):
                why = "cannot be used there"
            if why:
                self._wrong("S18", actor, f"bound {record.key}, whose claim {named.name} {why}")

    def _unready(self, claim: Json | None, pod: Record, own: bool) -> str:
        if claim is None:
            return "is not there"
        owners = claim["metadata"].get("ownerReferences") or ()
        if own and all(each["uid"] != pod.uid for each in owners):
            return "was made for another pod"
        if read.allocation_of(claim) is None:
            return "is not allocated"
        if waits := read.unready(claim):
            return f"has devices that are not ready: {waits}"
        return "" if pod.uid in read.reserved_for(claim) else "is not reserved for it"


def is_gated(world: World, pod: Json) -> bool:
    """Return whether the pod waits for a missing claim, and not for a node."""
    return world.devices is not None and world.devices.reading.is_gated(pod)


def check_claims(world: World, names: Container[str]) -> None:
    """Check all claims by the API's objects.

    `names`: the schedulerNames of pods that a scheduler handles. Reservations for other pods wait for a profile of
    theirs.
    """
    if world.devices is None or world.allocations is None:
        return
    world.safety.look("L10")

    def wrong(what: str) -> None:
        world.safety.violated("L10", f"claim {name} {what}")

    pods = {uid_of(pod): pod for pod in objects(world.store, PODS)}
    alive = {uid for uid, pod in pods.items() if pod["status"].get("phase") not in FINAL}
    waits = {uid for uid in alive if not node_of(pods[uid])}
    awaited = {named.name for uid in waits for named in read.named_by(pods[uid]) if named.name}
    ours = {uid for uid in waits if pods[uid]["spec"].get("schedulerName") in names}
    named_as = {named.name: uid for uid in alive for named in read.named_by(pods[uid]) if named.own}
    for claim in world.devices.reading.claims():
        name, reserved = name_of(claim), read.reserved_for(claim)
        if gone := reserved - alive:
            wrong(f"is reserved for {sorted(gone)}, who are gone")
        nobody = read.allocation_of(claim) is not None and not reserved and name not in awaited
        made_for = read.owner_of(claim) if read.is_made(claim) else ""
        # Another pod may name it, and a failed attempt leaves it to the next one. A claim that was created after the
        # deletion of its pod is left to the garbage collector of a real cluster, which searches for owners that never
        # existed.
        if made_for in pods and not reserved and made_for not in waits and named_as.get(name) != made_for:
            wrong("was made for a pod that has no use for it")
        if nobody and uid_of(claim) not in world.allocations.left_by_others:
            wrong("is allocated without a user")
        # A claim that is being deleted or is missing keeps its pod waiting whatever this one has, as with
        # kube-scheduler.
        stays = "deletionTimestamp" not in claim["metadata"]
        wait_for_nodes = {uid for uid in reserved & ours if not is_gated(world, pods[uid])}
        if stays and (failed := read.unready(claim, only_failed=True)) and wait_for_nodes:
            wrong(f"keeps {failed}, which cannot be used, for a pod that waits")
    for uid in sorted(alive):
        _check_placed(world, uid, pods[uid])


def _check_placed(world: World, uid: str, pod: Json) -> None:
    assert world.devices is not None and world.allocations is not None, "there are devices"
    ours = uid in world.allocations.bound and not world.allocations.is_robbed(uid)
    if not ours or not node_of(pod) or "deletionTimestamp" in pod["metadata"]:
        return
    name = name_of(pod)
    # A patch of a status names no version: carried out late, it overwrites what was written since.
    late = any(world.plan.fired[fault] for fault in ("failed", "slow", "not_the_server"))
    if read.extended(pod) and "extendedResourceClaimStatus" not in pod["status"] and not late:
        world.safety.violated("L10", f"{name} has a node and nothing for its extended resources")
    disputed = False
    for named in read.named_by(pod):
        claim = world.devices.reading.claim(named.name) if named.name else None
        if claim is None or read.allocation_of(claim) is None or uid not in read.reserved_for(claim):
            what = f"{name} has a node, and its claim {named.name} is not reserved for it"
            world.safety.violated("L10", what)
            continue
        results = results_of(read.allocation_of(claim))
        disputed = disputed or any(device_of(each) in world.allocations.disputed for each in results)
    waits: Any = world.kubelets._claims._waits.by_key if world.kubelets._claims is not None else {}
    if uid in waits and not disputed:
        world.safety.violated("L10", f"{name} waits on its node for its claims")


def check_books(world: World, process: Process, fast_path: FastPath) -> None:
    """Check what a process that may write still assumes, and whether it knows the current claims."""
    if world.devices is None:
        return
    books: Any = fast_path.cluster.devices
    assumed = [*books.assumed._claims]
    if assumed or fast_path.ledger.assumed:
        world.safety.violated("L7", f"{process.identity} still assumes something of {assumed}")
    prebind: Any = fast_path.binder._prebind
    kept = prebind._written, prebind._taken, prebind._writes.claims.writer._locks
    if prebind.under_way or any(kept):
        left = prebind.under_way, [[*each] for each in kept]
        world.safety.violated("L7", f"{process.identity} still writes claims: {left}")
    known = {claim.uid: bool(claim.allocation) for claim in books.claims.values()}
    there = {uid_of(claim): read.allocation_of(claim) is not None for claim in world.devices.reading.claims()}
    if known != there:
        world.safety.violated("L7", f"{process.identity} knows the claims {known}; there are {there}")
