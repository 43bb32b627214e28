"""What must become true once the faults have ended: L1 to L15, L18 and L20 of docs/reliability.md; what is of devices,
shards, plans, takeovers or GPUs alone is in the modules of these.

Where nodes are shared a pod fits on those that its scheduler uses and on no others, and pods of schedulers that never
come back are nobody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from functools import cache
from typing import Any

from agent_scheduler.config.load import load_text, to_dict
from agent_scheduler.config.schema import Configuration
from agent_scheduler.fastpath.scheduler import FastPath
from tests.decisions.plain.preemption import priority

from .allocations import check_books, check_claims, is_gated
from .api import FINAL, NODES, PODS, Json, condition_of, name_of, node_of, objects, reason_of, uid_of
from .configuring import ALONE
from .device_reading import without_extended
from .gang_load import NAME as BATCH
from .gang_reading import gang_of, is_native, pending, phase_of_group
from .gang_rest import (
    check_gangs,
    have_said_why,
    held_by_queues,
    incomplete,
    misnamed_members,
)
from .gate_rest import check_gates, until_served
from .gpus import check_gpus, note_gpus
from .job_judges import check_jobs, may_stand_by
from .kinds import Process, World
from .legality import has_its_volumes
from .nemesis import workers
from .queue_rest import UNWRITTEN, check_restarts, check_words, until_nobody_rests
from .rules import Rules, cluster_of, is_ready, readable, refusal, rules_of
from .shard_rest import check_planned, check_still, unsettled, until_divided, until_handed_over
from .states import samples

#: A pod that waits, and the node on which it fits.
Unbound = tuple[Json, str]
#: Seconds for binding what fits: the longest backoff and the last queues, not the flush of leftovers after 300.
BOUND_WITHIN = 60.0
#: Seconds in which those are evicted who have to be: the longest rest after a failure, a backoff, and their end.
PREEMPTED_WITHIN = 60.0 * 1.5 + 30.0
_REST = 30.0
#: For how many times that pods may go on ending and making room, one after the other.
_MOVES = 40
#: How often nodes are divided anew after the faults, at most, because pods were bound where they had come to.
_ROUNDS = 5
#: Seconds until every pod that waits has been tried again: the pool's flush, and what follows it.
_FLUSHED = 345.0
#: Requests of all processes in a rest of `_REST` seconds, besides the lease's; and each pod that waits.
_QUIET, _QUIET_A_POD = 10, 4
#: More of them for each process: it has two dozen watches, which end by their time and are begun anew.
_QUIET_A_PROCESS = 4
#: More of them for each process, and each member of a gang that waits, each time that a node is given to a shard, or
#: taken from one: schedulers look at all shards, write their own, and say anew why pods wait.
_QUIET_A_NODE = 4
#: More of them for each shard that waits for a node which another one uses: it looks every two seconds whether that one
#: still lives.
_QUIET_A_SHARD = 32


@cache
def _read(text: str) -> Configuration:
    return load_text(text)


def rules(world: World, scheduler: str = ALONE) -> Rules:
    """Those of the last configuration. Schedulers differ in their names alone."""
    return rules_of(_read(world.file.source(scheduler).valid()))


def _names(world: World) -> dict[str, str]:
    """schedulerName -> the scheduler whose pods have it, if that lives."""
    schedulers = world.shape.schedulers
    live = [each for each in schedulers if world.shards is None or world.shards.lives(each)]
    return {name: scheduler for scheduler in live for name in rules(world, scheduler).names}


def waiting(world: World, names: Container[str] | None = None) -> list[Json]:
    """Pods of ours, or of those `names`, that have no node, no gate and no end."""
    names = _names(world) if names is None else names
    pods = pending(objects(world.store, PODS))
    return [pod for pod in pods if pod["spec"].get("schedulerName") in names]


def late(world: World) -> list[Unbound]:
    """Pods that wait although they fit on a node now, by the API's own objects, and that node."""
    return _late(world, rules(world), everybody=True)


def helpless(world: World) -> list[Unbound]:
    """Pods that wait although they would fit on a node if pods of lower priority left it, and that node."""
    by = rules(world)
    return _late(world, by, everybody=False) if by.preempts else []


def elsewhere(world: World) -> list[Unbound]:
    """Pods that wait in a shard of mode hard and fit on a ready node outside of it, and that node."""
    return [] if world.shards is None else _late(world, rules(world), everybody=True, outside=True)


def misnamed(world: World) -> list[str]:
    """Pods of a shard of mode hard that say that nodes are missing where they fit outside of it, or that they fit there
    where no node of the cluster would do."""
    if world.shards is None:
        return []
    fit = {uid_of(pod): node for pod, node in elsewhere(world)}
    found = misnamed_members(world, rules(world))
    waits = waiting(world)
    held = held_by_queues(world, waits, rules(world))
    for pod in waits:
        if uid_of(pod) in held:
            # Where more is reserved than there is those alone say that it is full for whom it was reserved later.
            continue
        reason, node = reason_of(pod), fit.get(uid_of(pod), "")
        if reason in ("Unschedulable", "NodeShardFull") and (reason == "NodeShardFull") != bool(node):
            found.append(f"{name_of(pod)} says {reason}; outside of its shard it fits on {node!r}")
    return found


def _late(world: World, by: Rules, *, everybody: bool, outside: bool = False) -> list[Unbound]:
    waits = waiting(world)
    if not waits:
        return []
    nodes = [readable(node) for node in objects(world.store, NODES)]
    there = set(map(name_of, nodes))
    pods = [pod for pod in objects(world.store, PODS) if node_of(pod) in there]
    placed = [without_extended(pod) for pod in pods if pod["status"].get("phase") not in FINAL]
    if world.gpu_safety is not None:
        # With all GPUs on which a process may count them.
        placed = list(map(world.gpu_safety.as_counted_at_most, placed))
    everyone = cluster_of(nodes, placed)
    found = []
    schedulers = _names(world)
    held = held_by_queues(world, waits, by)
    for pod in waits:
        # Of gangs it is asked whether they fit whole (`gang_rest`).
        if uid_of(pod) in held or is_native(gang_of(pod)):
            continue
        ours = world.shards and world.shards.open_to(schedulers[pod["spec"]["schedulerName"]])
        if not everybody and pod["spec"].get("preemptionPolicy") == "Never":
            continue
        asking = without_extended(pod)
        for node in nodes:
            is_outside = ours is not None and name_of(node) not in ours
            if is_outside != outside or (outside and not is_ready(node)):
                continue
            lesser = [each for each in everyone.on(node) if priority(each) < priority(pod)]
            cluster = everyone.without(lesser) if lesser and not everybody else everyone
            if refusal(asking, node, cluster, by) is not None or not has_its_volumes(world, pod, node):
                continue
            if world.devices is None or world.devices.reading.could_have(pod, node):
                found.append((pod, name_of(node)))
                break
    return found


async def _until_none(world: World, find: Callable[[World], list[Unbound]], within: float, name: str) -> bool:
    """Whether `find` finds no pod any more, soon enough."""
    deadline = world.loop.time() + within
    while unbound := find(world):
        if world.loop.time() >= deadline:
            for pod, node in unbound[:3]:
                world.safety.violated(name, _unbound(world, pod, node, within))
            return False
        await asyncio.sleep(1.0)
    return True


async def come_to_rest(world: World) -> None:
    """Wait until all that fits is bound; then watch the rest."""
    owners, planned = None, -1
    # Who is bound when the nodes have been handed over changes where these belong, once more.
    for _ in range(_ROUNDS if world.plans is not None else 0):
        if world.plan_writes == planned or world.plans is None or world.shards is None:
            break
        shards = world.shards
        # Nodes and pods change how full nodes are, and so where these belong, as long as they move or are bound.
        moving = lambda: [*unsettled(shards), *(name_of(pod) for pod, _ in late(world))]  # noqa: B023, E731
        if not await until_divided(world, world.plans, moving):
            return
        planned = world.plan_writes
        if await until_handed_over(world, shards) is None:
            return
        if not await _until_none(world, late, BOUND_WITHIN, "L1"):
            return
        # The controller looks at how full nodes are every few seconds.
        await asyncio.sleep(10.0)
    if world.shards is not None:
        owners = await until_handed_over(world, world.shards)
        if owners is None:
            return
    if not (
        (world.gates is None or await until_served(world, world.gates, rules(world)))
        and await _until_none(world, late, BOUND_WITHIN, "L1")
        # Who could not be evicted is left in peace for a while, and who was takes a while to leave.
        and await _until_none(world, helpless, PREEMPTED_WITHIN, "L8")
        and await _until_none(world, late, BOUND_WITHIN, "L1")
        and (world.gangs is None or await until_nobody_rests(world, rules(world)))
    ):
        return
    if world.shards is not None and world.gates is not None:
        # Nodes have come and gone meanwhile.
        owners = await until_handed_over(world, world.shards)
    # Conditions and events have budgets of their own, and series are told every half minute.
    await asyncio.sleep(40.0)
    await _rest(world)
    # A condition whose write was refused for good is written again with the next attempt: after the flush. So is the
    # end of a nomination that the watch shows when the pod has been refused already.
    deadline = world.loop.time() + _FLUSHED
    while world.plan.fired and world.loop.time() < deadline:
        said = all(
            is_gated(world, pod)
            or uid_of(pod) in incomplete(world, [pod], rules(world))
            or reason_of(pod) == "QueueFull"
            or (_says_why(pod) and not pod["status"].get("nominatedNodeName"))
            for pod in waiting(world)
        )
        if said and not misnamed(world) and have_said_why(world, rules(world)):
            break
        await asyncio.sleep(5.0)
    held = held_by_queues(world, waiting(world), rules(world))
    parts = incomplete(world, waiting(world), rules(world))
    for pod in waiting(world):
        if uid_of(pod) in held and reason_of(pod) == "QueueFull":
            continue
        if uid_of(pod) in parts:
            if not is_gated(world, pod) and reason_of(pod) not in ("NotEnoughPods", "PodGroupNotFound"):
                world.safety.violated("L2", f"{name_of(pod)} lacks its gang and says {condition_of(pod)}")
            continue
        if world.gates is not None and world.gates.gave_back(pod):
            world.states.reached("room of a queue given back")
        elif not is_gated(world, pod) and not _says_why(pod) and not _has_no_shard(world, pod):
            world.safety.violated("L2", f"{name_of(pod)} fits nowhere and says {condition_of(pod)}")
    if world.shards is not None:
        world.safety.look("L18")
        for problem in misnamed(world):
            world.safety.violated("L18", problem)
        if any(reason_of(pod) == "NodeShardFull" for pod in waiting(world)):
            world.states.reached("shard full at rest, and others not")
    if world.gangs is not None:
        check_gangs(world, rules(world))
        check_words(world, rules(world))
    if world.new_nodes is not None:
        world.new_nodes.check(rules(world))
    if world.gates is not None:
        check_gates(world, world.gates, rules(world))
    if world.job_safety is not None:
        check_jobs(world)
    _check_claims(world)
    check_claims(world, _names(world))
    _check_history(world)
    for process in world.processes:
        _check_metrics(world, process)
        _check_reserved(world, process)
        _check_preemption(world, process)
        _check_configuration(world, process)
        check_gpus(world, process)
    note_gpus(world)
    _check_workers(world)
    for process in world.processes:
        await _check_itself(world, process)
    if world.shards is not None and owners is not None:
        check_still(world, world.shards, owners)
    if world.plans is not None and world.gates is None:
        check_planned(world, world.plans, planned)
    if world.gangs is not None and not world.safety.violations:
        await _check_unwritten(world)
        await check_restarts(world)


async def _check_unwritten(world: World) -> None:
    """For a while nothing is written but leases, by nobody of ours, in a cluster in which nothing happens. How often
    something was said is told when that is over, and a pod may say something else when the flush has it tried again."""
    deadline, moves = world.loop.time() + _FLUSHED, 0
    while True:
        written, before, given = len(world.writes), _positions(world), _nodes_given(world)
        await asyncio.sleep(UNWRITTEN)
        found = world.writes[written:]
        if moves < _MOVES and (before != _positions(world) or given != _nodes_given(world)):
            moves += 1
        elif not found or world.loop.time() >= deadline:
            break
    if found:
        told = ", ".join(dict.fromkeys(found[:5]))
        world.safety.violated("L3", f"{len(found)} writes in {UNWRITTEN:g} s of rest: {told}")


async def _rest(world: World) -> None:
    """Watch what a cluster at rest causes.

    Whoever was watching while history was cut off lists anew when its next bookmark is due, which is soon, and once.
    Pods that are placed as others end may be late for the first window, and how often they were refused is told every
    half minute: in the second. As long as pods of gangs end and others take their room there is no rest.
    """
    moves, looked = 0, 0
    while looked < 3:
        sent, before, given = world.requests, _positions(world), _nodes_given(world)
        await asyncio.sleep(_REST)
        now, left = world.requests - sent, waiting(world)
        if world.gangs is not None and moves < _MOVES and before != _positions(world):
            moves += 1
            continue
        looked += 1
        most = _QUIET + _QUIET_A_PROCESS * len(world.processes) + _QUIET_A_POD * len(left)
        if world.shards is not None:
            most += _QUIET_A_SHARD * world.shards.waiting()
            those = len(world.processes) + len(waiting(world, {BATCH}))
            most += _QUIET_A_NODE * those * (_nodes_given(world) - given)
        if now <= most:
            break
    else:
        world.safety.violated("L3", f"{now} requests in {_REST:g} s of rest, with {len(left)} pods waiting")
    world.safety.look("L3")
    if left:
        world.states.reached("all places full")


def _nodes_given(world: World) -> int:
    """How often the operator who gives an autoscaler's nodes to shards has done so."""
    operator = None if world.gates is None else world.gates.operator
    return 0 if operator is None else operator.writes


def _positions(world: World) -> dict[str, tuple[str | bool, ...]]:
    """Where each pod is, in which phase, and whether it is gated, and the phase of each PodGroup: who gives its room in
    a queue back after a time lets others past their gate, or into the queue."""
    table = world.store.tables[PODS]
    node, phase = map(table.field_names.index, ("spec.nodeName", "status.phase"))
    found: dict[str, tuple[str | bool, ...]] = {
        record.uid: (record.fields[node], record.fields[phase], b"schedulingGates" in record.data)
        for record in table.scan("")
    }
    groups = world.gangs.groups().values() if world.gangs is not None else ()
    return found | {uid_of(each): (phase_of_group(each),) for each in groups}


def _unbound(world: World, pod: Json, node: str, within: float) -> str:
    where = []
    for process in world.processes:
        fast_path = process.fast_path
        if fast_path is not None:
            place = fast_path.queue.where(uid_of(pod))
            where.append(f"{process.identity}{' (leads)' if process.leads() else ''}: {place}")
    return f"{name_of(pod)} could be on {node} and is not bound after {within:g} s; " + "; ".join(where)


def _says_why(pod: Json) -> bool:
    is_false = condition_of(pod).get("status") == "False"
    return is_false and reason_of(pod) in ("Unschedulable", "NodeShardFull")


def _has_no_shard(world: World, pod: Json) -> bool:
    """Whether the pod says that there are no nodes for it to go to, and there are none; or there were none when a
    request was sent that was carried out after later ones."""
    if world.shards is None or reason_of(pod) != "NodeShardNotReady":
        return False
    late = world.plan.fired["failed"] + world.plan.fired["slow"]
    return bool(late) or not world.shards.open_to(_names(world)[pod["spec"]["schedulerName"]])


def _leader(process: Process) -> FastPath | None:
    """What decides in the process, if that may write."""
    fast_path = process.fast_path
    if fast_path is None or not process.is_up or not process.leads():
        return None
    return fast_path


def _check_metrics(world: World, process: Process) -> None:
    if _leader(process) is None:
        return
    world.safety.look("L5")
    seen = samples(process)
    waits = waiting(world, rules(world, process.scheduler).names)
    # Those whose claims have gone since they were refused are not behind the gate; and that their queue is full may not
    # be said of some, as the server has refused that.
    held = held_by_queues(world, waits, rules(world)) | incomplete(world, waits, rules(world))
    gated = sum(is_gated(world, pod) or uid_of(pod) in held or reason_of(pod) == "QueueFull" for pod in waits)
    queues = ("active", "backoff", "unschedulable")
    told = sum(seen[f'scheduler_pending_pods{{queue="{queue}"}}'] for queue in queues)
    if not len(waits) - gated <= told <= len(waits):
        world.safety.violated("L5", f"{process.identity} says {told:g} pods wait; {len(waits)} do")
    stand_by = may_stand_by(world)
    if seen["agent_scheduler_binds_in_flight"] > stand_by:
        world.safety.violated("L5", f"{process.identity} says that binds are in flight")
    nodes = len(world.store.tables[NODES].records)
    if (told := seen['scheduler_cache_size{type="nodes"}']) != nodes:
        world.safety.violated("L5", f"{process.identity} says it knows {told:g} nodes; there are {nodes}")
    if (assumed := seen['scheduler_cache_size{type="assumed_pods"}']) > stand_by:
        world.safety.violated("L5", f"{process.identity} says that {assumed:g} pods are assumed")
    elif assumed:
        world.states.reached("pod stands by at rest")


async def _check_itself(world: World, process: Process) -> None:
    fast_path = process.fast_path
    if fast_path is None or not process.is_up or not fast_path.is_synced:
        return
    world.safety.look("L13")
    report = await world.loop.create_task(fast_path.selfcheck.run(), context=process.context())
    told = [
        *(
            " ".join((each.where, each.kind, each.name, each.problem))
            for each in report.differences
            if world.allocations is None or not world.allocations.is_contested(each.problem)
        ),
        *(f"unsettled {name}" for name in report.unsettled),
        *(f"not listed {kind}: {why}" for kind, why in report.not_listed.items()),
    ]
    if told:
        world.safety.violated("L13", f"{process.identity} checks itself and finds: {'; '.join(told[:5])}")


def _check_reserved(world: World, process: Process) -> None:
    if (fast_path := _leader(process)) is None:
        return
    world.safety.look("L7")
    catalogue = fast_path.cluster.catalogue
    if left := [*catalogue.taken, *catalogue.selected]:
        world.safety.violated("L7", f"{process.identity} still assumes something of {left}")
    check_books(world, process, fast_path)


def _check_history(world: World) -> None:
    """Nobody goes by what was undone when the store went back."""
    for process in world.processes:
        world.safety.checked["L15"] += world.backups.restored
        if world.backups.must_start_over(process) and process.is_up:
            world.safety.violated("L15", f"{process.identity} has not started over since the store went back")


def _check_claims(world: World) -> None:
    """Nobody was evicted for a pod that still waits, unless something else happened to the node since then, or others
    have filled the pod's queue."""
    left = waiting(world)
    held = held_by_queues(world, left, rules(world))
    waits = {uid_of(pod) for pod in left} - held
    for claim in world.evictions.open():
        if claim.uid not in waits:
            # It was gone before, and the scheduler had not seen that.
            continue
        world.safety.look("L8")
        if claim.deleted == claim.victims.keys() and not world.evictions.world_changed(claim):
            why = f"{sorted(claim.victims.values())} had to leave {claim.node} for {claim.name}"
            world.safety.violated("L8", f"{why}, which still waits")
    for pod in left:
        # What a process has sent that is no more may say it of one that waits for its queue by now.
        is_kept = is_gated(world, pod) or uid_of(pod) in held
        if (node := pod["status"].get("nominatedNodeName")) and not is_kept:
            world.safety.violated("L8", f"{name_of(pod)} is nominated to {node} for nothing")


def _check_preemption(world: World, process: Process) -> None:
    if (fast_path := _leader(process)) is None:
        return
    world.safety.look("L8")
    preemption = fast_path.preemption
    gated = {uid_of(pod) for pod in waiting(world) if is_gated(world, pod)}
    gated |= held_by_queues(world, waiting(world), rules(world))
    nominated = fast_path.queue.nominator.nominated
    # Somebody is still about to leave, for as long as its node agent, or a finalizer, takes.
    leaving = {pod.node_name for pod in fast_path.cluster.pods.values() if pod.deleting}
    left = {
        # Who waits behind a gate, or for its queue, keeps what it was told until that opens.
        "nominations": {uid for uid, node in nominated.items() if node not in leaving} - gated,
        "gate": preemption._gate.gated,
        "leaving": preemption._unseen(),
        "under way": preemption._under_way,
        "backing_off": preemption._backing_off,
    }
    for what, uids in left.items():
        if uids:
            world.safety.violated("L8", f"{process.identity}: {what}: {sorted(uids)}")


def _check_configuration(world: World, process: Process) -> None:
    runtime = process.runtime
    if runtime is None or not process.is_up:
        return
    world.safety.look("L9")
    if to_dict(runtime._configuration) != to_dict(_read(world.file.source(process.scheduler).valid())):
        world.safety.violated("L9", f"{process.identity} does not go by what the file says")


def _check_workers(world: World) -> None:
    leading = sum(_leader(process) is not None for process in world.processes)
    working = len(list(workers(world)))
    if working < leading:
        world.safety.violated("L9", f"the workers of {working} work; those of {leading} should")


def nothing_left(world: World, task: asyncio.Task[Any]) -> None:
    """After the end of all processes."""
    left = [each for each in asyncio.all_tasks(world.loop) if each is not task]
    if left:
        world.safety.violated("L4", "tasks are left: " + " | ".join(world.loop.waiting()))
    for complaint in world.loop.complaints:
        world.safety.violated("L4", f"failed unheard: {complaint}")
