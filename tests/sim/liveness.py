"""What must become true once the faults have ended.

L1  every pod that fits somewhere is bound, within `BOUND_WITHIN` seconds
L2  a pod that fits nowhere says so: PodScheduled is False, Unschedulable
L3  a cluster at rest causes next to no traffic
L4  when all processes have ended, nothing is left: no task, no stream, no request, nothing that failed unheard
L5  metrics tell the truth
L7  nothing stays reserved for pods whose claims are bound, or never will be
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from tests.unit.engine.world import plain_reasons

from .states import samples
from .volumes import has_its_volumes

if TYPE_CHECKING:
    from .processes import Process
    from .world import World

PODS, NODES = ("", "pods"), ("", "nodes")
#: Seconds for binding what fits: the longest backoff and the last queues, not the flush of leftovers after 300.
BOUND_WITHIN = 60.0
_REST = 30.0
#: Seconds until every pod that waits has been tried again: the pool's flush, and what follows it.
_FLUSHED = 345.0
#: Requests of all processes in a rest of `_REST` seconds, besides the lease's; and each pod that waits.
_QUIET, _QUIET_A_POD = 10, 4


def waiting(world: World) -> list[dict[str, Any]]:
    """Pods of ours that have no node, no gate and no end."""
    pods = (orjson.loads(record.data) for record in world.store.tables[PODS].scan(""))
    return [
        pod
        for pod in pods
        if pod["spec"].get("schedulerName") == "agent-scheduler"
        and not pod["spec"].get("nodeName")
        and not pod["spec"].get("schedulingGates")
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def late(world: World) -> list[tuple[dict[str, Any], str]]:
    """Pods that wait although they fit on a node now, by the API's own objects, and that node."""
    waits = waiting(world)
    if not waits:
        return []
    nodes = [orjson.loads(record.data) for record in world.store.tables[NODES].scan("")]
    placed: dict[str, list[dict[str, Any]]] = {node["metadata"]["name"]: [] for node in nodes}
    for record in world.store.tables[PODS].scan(""):
        pod = orjson.loads(record.data)
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            placed.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
    found = []
    for pod in waits:
        for node in nodes:
            name = node["metadata"]["name"]
            if not plain_reasons(pod, node, placed[name])[0] and has_its_volumes(world, pod, node):
                found.append((pod, name))
                break
    return found


async def come_to_rest(world: World) -> None:
    """Wait until all that fits is bound; then watch the rest."""
    deadline = world.loop.time() + BOUND_WITHIN
    while True:
        unbound = late(world)
        if not unbound:
            break
        if world.loop.time() >= deadline:
            for pod, node in unbound[:3]:
                world.safety.violated("L1", _unbound(world, pod["metadata"], node))
            return
        await asyncio.sleep(1.0)
    # Conditions and events have budgets of their own, and series are told every half minute.
    await asyncio.sleep(40.0)
    sent = world.requests
    await asyncio.sleep(_REST)
    left = waiting(world)
    if left:
        world.states.reached("all places full")
    if (now := world.requests - sent) > _QUIET + _QUIET_A_POD * len(left):
        world.safety.violated("L3", f"{now} requests in {_REST:g} s of rest, with {len(left)} pods waiting")
    # A condition whose write was refused for good is written again with the next attempt: after the flush.
    deadline = world.loop.time() + _FLUSHED
    while world.plan.fired["denied"] and world.loop.time() < deadline:
        if all(_says_why(pod) for pod in waiting(world)):
            break
        await asyncio.sleep(5.0)
    for pod in waiting(world):
        if not _says_why(pod):
            condition = _condition(pod)
            world.safety.violated("L2", f"{pod['metadata']['name']} fits nowhere and says {condition}")
    for process in world.processes:
        _check_metrics(world, process)
        _check_reserved(world, process)


def _unbound(world: World, metadata: dict[str, Any], node: str) -> str:
    where = []
    for process in world.processes:
        fast_path = process.fast_path
        if fast_path is not None:
            place = fast_path.queue.where(metadata["uid"])
            where.append(f"{process.identity}{' (leads)' if process.leads() else ''}: {place}")
    return f"{metadata['name']} fits on {node} and is not bound after {BOUND_WITHIN:g} s; " + "; ".join(where)


def _condition(pod: dict[str, Any]) -> dict[str, Any]:
    conditions = {each["type"]: each for each in pod["status"].get("conditions") or []}
    return conditions.get("PodScheduled", {})


def _says_why(pod: dict[str, Any]) -> bool:
    condition = _condition(pod)
    return condition.get("status") == "False" and condition.get("reason") == "Unschedulable"


def _check_metrics(world: World, process: Process) -> None:
    fast_path = process.fast_path
    if fast_path is None or process.transport is None or process.transport.closed or not process.leads():
        return
    world.safety.checked["L5"] += 1
    seen = samples(process)
    waits = len(waiting(world))
    told = sum(
        seen[f'scheduler_pending_pods{{queue="{queue}"}}'] for queue in ("active", "backoff", "unschedulable")
    )
    if told != waits:
        world.safety.violated("L5", f"{process.identity} says {told:g} pods wait; {waits} do")
    if seen["agent_scheduler_binds_in_flight"]:
        world.safety.violated("L5", f"{process.identity} says that binds are in flight")
    nodes = len(world.store.tables[NODES].records)
    if (told := seen['scheduler_cache_size{type="nodes"}']) != nodes:
        world.safety.violated("L5", f"{process.identity} says it knows {told:g} nodes; there are {nodes}")
    if assumed := seen['scheduler_cache_size{type="assumed_pods"}']:
        world.safety.violated("L5", f"{process.identity} says that {assumed:g} pods are assumed")


def _check_reserved(world: World, process: Process) -> None:
    fast_path = process.fast_path
    if fast_path is None or process.transport is None or process.transport.closed or not process.leads():
        return
    world.safety.checked["L7"] += 1
    catalogue = fast_path.cluster.catalogue
    if left := [*catalogue.taken, *catalogue.selected]:
        world.safety.violated("L7", f"{process.identity} still assumes something of {left}")


def nothing_left(world: World, task: asyncio.Task[Any]) -> None:
    """After the end of all processes."""
    left = [each for each in asyncio.all_tasks(world.loop) if each is not task]
    if left:
        world.safety.violated("L4", "tasks are left: " + " | ".join(world.loop.waiting()))
    for complaint in world.loop.complaints:
        world.safety.violated("L4", f"failed unheard: {complaint}")
