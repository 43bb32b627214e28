"""Checks what must become true after the last fault: L1 to L15, L18 and L20 of docs/reliability.md.

Devices, shards, plans, takeovers and GPUs have modules of their own. If nodes are shared, a pod fits only on the nodes
that its scheduler uses, and pods of schedulers that never return are not checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator
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
from .gang_rest import check_gangs, have_said_why, held_by_queues, incomplete, misnamed_members
from .gate_rest import check_gates, until_served
from .gpus import check_gpus, note_gpus
from .job_judges import check_jobs, may_stand_by
from .kinds import Process, World
from .legality import has_its_volumes
from .nemesis import workers
from .queue_rest import UNWRITTEN, check_restarts, check_words, until_nobody_rests
from .rules import Rules, cluster_of, is_ready, readable, refusal, rules_of
from .shard_rest import check_planned, check_still, unsettled, until_divided, until_handed_over
from .states import SHARD_FULL, samples

#: A waiting pod, and the node on which it fits.
Unbound = tuple[Json, str]
#: Seconds to bind what fits: the longest backoff and the last queues, not the flush of leftovers after 300.
BOUND_WITHIN = 60.0
#: Seconds until all necessary evictions are done: the longest pause after a failure, a backoff, and their end.
PREEMPTED_WITHIN = 60.0 * 1.5 + 30.0
_REST = 30.0
#: How often pods may still end and free capacity, one after another.
_MOVES = 40
#: How often nodes are assigned again after the faults, at most, because pods were bound on nodes that had moved.
_ROUNDS = 5
#: Seconds until every waiting pod has been tried again: the pool's flush, and what follows it.
_FLUSHED = 345.0
#: Maximum requests of all processes in a rest of `_REST` seconds, without the lease's; and in addition per waiting pod.
_QUIET, _QUIET_A_POD = 10, 4
#: In addition per process: it has two dozen watches, which end by their timeout and are started again.
_QUIET_A_PROCESS = 4
#: In addition per process and per waiting member of a gang, for each node that is assigned to a shard or removed from
#: one: schedulers read all shards, write their own, and report again why pods wait.
_QUIET_A_NODE = 4
#: In addition per shard that waits for a node which another one uses: it checks every two seconds whether that one
#: still lives.
_QUIET_A_SHARD = 32


@cache
def _read(text: str) -> Configuration:
    return load_text(text)


def rules(world: World, scheduler: str = ALONE) -> Rules:
    """Return the rules of the last configuration. Schedulers differ only in their names."""
    return rules_of(_read(world.file.source(scheduler).valid()))


def _names(world: World) -> dict[str, str]:
    """Return schedulerName -> the living scheduler whose pods have it."""
    schedulers = world.shape.schedulers
    live = [each for each in schedulers if world.shards is None or world.shards.lives(each)]
    return {name: scheduler for scheduler in live for name in rules(world, scheduler).names}


def waiting(world: World, names: Container[str] | None = None) -> list[Json]:
    """Return pods of ours, or of those `names`, that have no node and no gate and have not ended."""
    names = _names(world) if names is None else names
    pods = pending(objects(world.store, PODS))
    return [pod for pod in pods if pod["spec"].get("schedulerName") in names]


def late(world: World) -> list[Unbound]:
    """Return pods that wait although they fit on a node now, by the API's own objects, with that node."""
    return _late(world, rules(world), everybody=True)


def helpless(world: World) -> list[Unbound]:
    """Return pods that wait although they would fit on a node if pods of lower priority left it, with that node."""
    by = rules(world)
    return _late(world, by, everybody=False) if by.preempts else []


def elsewhere(world: World) -> list[Unbound]:
    """Return pods that wait in a shard of mode hard and fit on a ready node outside it, with that node."""
    return [] if world.shards is None else _late(world, rules(world), everybody=True, outside=True)


def misnamed(world: World) -> list[str]:
    """Return pods of a shard of mode hard with the wrong reason of `Unschedulable` and `NodeShardFull`.

    The right one depends on whether a node outside the shard fits the pod.
    """
    if world.shards is None:
        return []
    fit = {uid_of(pod): node for pod, node in elsewhere(world)}
    found = misnamed_members(world, rules(world))
    waits = waiting(world)
    held = held_by_queues(world, waits, rules(world))
    for pod in waits:
        if uid_of(pod) in held:
            # If more is reserved than exists, only those with a later reservation report that the queue is full.
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
        # `gang_rest` checks whether gangs fit as a whole.
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
    """Wait until `find` finds no pod; return whether that was within the time."""
    deadline = world.loop.time() + within
    while unbound := find(world):
        if world.loop.time() >= deadline:
            for pod, node in unbound[:3]:
                world.safety.violated(name, _unbound(world, pod, node, within))
            return False
        await asyncio.sleep(1.0)
    return True


async def come_to_rest(world: World) -> None:
    """Wait until all that fits is bound; then observe the rest."""
    owners, planned = None, -1
    # Binds after the hand-over of nodes change the plan once more.
    for _ in range(_ROUNDS if world.plans is not None else 0):
        if world.plan_writes == planned or world.plans is None or world.shards is None:
            break
        shards = world.shards
        # While nodes and pods move or are bound, they change the usage of nodes and so the plan.
        moving = lambda: [*unsettled(shards), *(name_of(pod) for pod, _ in late(world))]  # noqa: B023, E731
        if not await until_divided(world, world.plans, moving):
            return
        planned = world.plan_writes
        if await until_handed_over(world, shards) is None:
            return
        if not await _until_none(world, late, BOUND_WITHIN, "L1"):
            return
        # The controller reads the usage of nodes every few seconds.
        await asyncio.sleep(10.0)
    if world.shards is not None:
        owners = await until_handed_over(world, world.shards)
        if owners is None:
            return
    if not (
        (world.gates is None or await until_served(world, world.gates, rules(world)))
        and await _until_none(world, late, BOUND_WITHIN, "L1")
        # After a failed eviction there is a pause, and victims take a while to leave.
        and await _until_none(world, helpless, PREEMPTED_WITHIN, "L8")
        and await _until_none(world, late, BOUND_WITHIN, "L1")
        and (world.gangs is None or await until_nobody_rests(world, rules(world)))
    ):
        return
    if world.shards is not None and world.gates is not None:
        # Nodes were added and removed meanwhile.
        owners = await until_handed_over(world, world.shards)
    # Conditions and events have rate limits, and event series are written every half minute.
    await asyncio.sleep(40.0)
    await _rest(world)
    # A permanently rejected condition is written again with the next attempt, after the flush. So is the end of a
    # nomination that the watch delivers after the pod was already rejected.
    deadline = world.loop.time() + _FLUSHED
    while world.plan.fired and world.loop.time() < deadline:
        nominated = any(_says_why(pod) and pod["status"].get("nominatedNodeName") for pod in waiting(world))
        if not (nominated or any(_untold(world)) or misnamed(world)) and have_said_why(world, rules(world)):
            break
        await asyncio.sleep(5.0)
    for problem in _untold(world):
        world.safety.violated("L2", problem)
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
    if world.gangs is not None and not world.safety.violations and await _until_retried(world):
        await _check_unwritten(world)
        await check_restarts(world)


async def _until_retried(world: World) -> bool:
    """Wait until no pod could preempt; return whether that was before the flush has retried every pod.

    As in kube-scheduler, a waiting pod is retried at events of the filters that rejected it. If preemption did not help
    because of another filter, and that filter would accept the pod now, only the flush retries it. A new process tries
    it at once.
    """
    return await _until_none(world, helpless, _FLUSHED, "L8")


async def _check_unwritten(world: World) -> None:
    """Check that for a while our processes write nothing but leases in a cluster in which nothing happens.

    Event series are written after this, and a pod may change its report when the flush retries it.

    A cluster does not come to rest if a gang lacks capacity only in its NodeShard and an autoscaler removes the shard's
    idle nodes: without these the whole cluster lacks capacity, so the gang requests nodes again
    (docs/sharding.md#modes).
    """
    deadline, moves = world.loop.time() + _FLUSHED, 0
    while True:
        written, before, given = len(world.writes), _positions(world), _nodes_given(world)
        added, full = _nodes_added(world), world.states.seen[SHARD_FULL]
        await asyncio.sleep(UNWRITTEN)
        found = world.writes[written:]
        if added < _nodes_added(world) and full < world.states.seen[SHARD_FULL]:
            if world.loop.time() >= deadline:
                world.states.reached("nodes of a full shard come and go")
                return
        elif moves < _MOVES and (before != _positions(world) or given != _nodes_given(world)):
            moves += 1
        elif not found or world.loop.time() >= deadline:
            break
    if found:
        told = ", ".join(dict.fromkeys(found[:5]))
        world.safety.violated("L3", f"{len(found)} writes in {UNWRITTEN:g} s of rest: {told}")


async def _rest(world: World) -> None:
    """Observe the traffic of a cluster at rest.

    A process whose watch lost its history lists again when its next bookmark is due, which is soon, and once. Pods that
    are placed when others end may be late for the first window, and event series are written every half minute: in the
    second. While pods of gangs end and others take their capacity, the cluster is not at rest.
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
    """Return how often the operator has assigned an autoscaler's nodes to shards."""
    operator = None if world.gates is None else world.gates.operator
    return 0 if operator is None else operator.writes


def _nodes_added(world: World) -> int:
    """Return how many nodes the autoscaler has added."""
    return 0 if world.gates is None else world.gates.autoscaler._numbers.total()


def _positions(world: World) -> dict[str, tuple[str | bool, ...]]:
    """Return each pod's node, phase, and whether it is gated, and each PodGroup's phase.

    A pod or a group whose reservation in a queue ends allows others to be admitted.
    """
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


def _untold(world: World) -> Iterator[str]:
    """Yield what is wrong with the reports of waiting pods."""
    held = held_by_queues(world, waiting(world), rules(world))
    parts = incomplete(world, waiting(world), rules(world))
    for pod in waiting(world):
        if is_gated(world, pod) or (uid_of(pod) in held and reason_of(pod) == "QueueFull"):
            continue
        if uid_of(pod) in parts:
            if reason_of(pod) not in ("NotEnoughPods", "PodGroupNotFound"):
                yield f"{name_of(pod)} lacks its gang and says {condition_of(pod)}"
        elif world.gates is not None and world.gates.gave_back(pod):
            world.states.reached("room of a queue given back")
        elif not _says_why(pod) and not _has_no_shard(world, pod):
            yield f"{name_of(pod)} fits nowhere and says {condition_of(pod)}"


def _says_why(pod: Json) -> bool:
    is_false = condition_of(pod).get("status") == "False"
    return is_false and reason_of(pod) in ("Unschedulable", "NodeShardFull")


def _has_no_shard(world: World, pod: Json) -> bool:
    """Return whether the pod reports that its shard has no nodes, and that is true.

    Or it was true when a request was sent that was carried out after later ones.
    """
    if world.shards is None or reason_of(pod) != "NodeShardNotReady":
        return False
    late = world.plan.fired["failed"] + world.plan.fired["slow"]
    return bool(late) or not world.shards.open_to(_names(world)[pod["spec"]["schedulerName"]])


def _leader(process: Process) -> FastPath | None:
    """Return the process's fast path, if the process may write."""
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
    # Pods whose claims were deleted after their rejection are not gated; and the report of a full queue may be missing,
    # because the server rejected it.
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
    """Check that no process uses what was undone when the store went back."""
    for process in world.processes:
        world.safety.checked["L15"] += world.backups.restored
        if world.backups.must_start_over(process) and process.is_up:
            world.safety.violated("L15", f"{process.identity} has not started over since the store went back")


def _check_claims(world: World) -> None:
    """Check that no pod was evicted for a pod that still waits.

    Unless the node has changed otherwise since, or other pods have filled the pod's queue.
    """
    left = waiting(world)
    held = held_by_queues(world, left, rules(world))
    waits = {uid_of(pod) for pod in left} - held
    for claim in world.evictions.open():
        if claim.uid not in waits:
            # It was deleted before, and the scheduler had not observed that.
            continue
        world.safety.look("L8")
        if claim.deleted == claim.victims.keys() and not world.evictions.world_changed(claim):
            why = f"{sorted(claim.victims.values())} had to leave {claim.node} for {claim.name}"
            world.safety.violated("L8", f"{why}, which still waits")
    for pod in left:
        # A late request of a process that has ended may set it on a pod that waits for its queue by now.
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
    # Victims are still leaving, for as long as their node agent, or a finalizer, takes.
    leaving = {pod.node_name for pod in fast_path.cluster.pods.values() if pod.deleting}
    left = {
        # A gated pod, or one that waits for its queue, keeps its nomination until that opens.
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
    """Check that nothing is left after the end of all processes."""
    left = [each for each in asyncio.all_tasks(world.loop) if each is not task]
    if left:
        world.safety.violated("L4", "tasks are left: " + " | ".join(world.loop.waiting()))
    for complaint in world.loop.complaints:
        world.safety.violated("L4", f"failed unheard: {complaint}")
