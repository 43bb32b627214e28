"""What must be true of devices and claims once the faults have ended and nothing moves.

L10 no claim is reserved for a pod that is gone, none is allocated for nobody unless somebody else did that, and every
    pod of ours that has a node has its claims and starts
L7  nothing of a claim is assumed any more, and what the scheduler knows of claims is what there is
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

import orjson

from .device_attaching import unready
from .device_reading import allocation_of, device_of, extended, is_made, named_by, owner_of, reserved_for

if TYPE_CHECKING:
    from agent_scheduler.fastpath.scheduler import FastPath

    from .processes import Process
    from .world import World

Json = dict[str, Any]

PODS = ("", "pods")
_FINAL = ("Succeeded", "Failed")


def is_gated(world: World, pod: Json) -> bool:
    """Whether the pod waits for a claim that is not there, and not for a node."""
    return world.devices is not None and world.devices.reading.is_gated(pod)


def check_claims(world: World, names: Container[str]) -> None:
    """Judged from the API's objects. `names`: the schedulerNames of pods that somebody looks after. What is reserved
    for others waits for a profile of theirs."""
    if world.devices is None or world.allocations is None:
        return
    world.safety.checked["L10"] += 1
    pods = {record.uid: orjson.loads(record.data) for record in world.store.tables[PODS].scan("")}
    alive = {uid for uid, pod in pods.items() if pod["status"].get("phase") not in _FINAL}
    awaited = {
        named.name
        for uid in alive
        if not pods[uid]["spec"].get("nodeName")
        for named in named_by(pods[uid])
        if named.name
    }
    waits = {uid for uid in alive if not pods[uid]["spec"].get("nodeName")}
    ours = {uid for uid in waits if pods[uid]["spec"].get("schedulerName") in names}
    named_as = {named.name: uid for uid in alive for named in named_by(pods[uid]) if named.own}
    for claim in world.devices.reading.claims():
        name, reserved = claim["metadata"]["name"], reserved_for(claim)
        if gone := reserved - alive:
            world.safety.violated("L10", f"claim {name} is reserved for {sorted(gone)}, who are gone")
        nobody = allocation_of(claim) is not None and not reserved and name not in awaited
        made_for = owner_of(claim) if is_made(claim) else ""
        # Another pod may name it, and an attempt that failed leaves it to the next one. One that was made after its pod
        # had gone is for the garbage collector of a real cluster, which looks for owners that never were.
        if made_for in pods and not reserved and made_for not in waits and named_as.get(name) != made_for:
            world.safety.violated("L10", f"claim {name} was made for a pod that has no use for it")
        if nobody and claim["metadata"]["uid"] not in world.allocations.left_by_others:
            world.safety.violated("L10", f"claim {name} is allocated for nobody")
        # One that is being deleted, or that is not there, keeps its pod waiting whatever this one has, as with
        # kube-scheduler.
        stays = "deletionTimestamp" not in claim["metadata"]
        wait_for_nodes = {uid for uid in reserved & ours if not is_gated(world, pods[uid])}
        if stays and (failed := unready(claim, only_failed=True)) and wait_for_nodes:
            world.safety.violated(
                "L10", f"claim {name} keeps {failed}, which cannot be used, for a pod that waits"
            )
    for uid in sorted(alive):
        _check_placed(world, uid, pods[uid])


def _check_placed(world: World, uid: str, pod: Json) -> None:
    assert world.devices is not None and world.allocations is not None, "there are devices"
    ours = uid in world.allocations.bound and not world.allocations.is_robbed(uid)
    if not ours or not pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
        return
    name = pod["metadata"]["name"]
    # A patch of a status names no version: carried out late, it takes away what was told since.
    late = any(world.plan.fired[fault] for fault in ("failed", "slow", "not_the_server"))
    if extended(pod) and "extendedResourceClaimStatus" not in pod["status"] and not late:
        world.safety.violated("L10", f"{name} has a node and nothing for its extended resources")
    disputed = False
    for named in named_by(pod):
        claim = world.devices.reading.claim(named.name) if named.name else None
        if claim is None or allocation_of(claim) is None or uid not in reserved_for(claim):
            world.safety.violated(
                "L10", f"{name} has a node, and its claim {named.name} is not reserved for it"
            )
            continue
        results = claim["status"]["allocation"]["devices"]["results"]
        disputed = disputed or any(device_of(each) in world.allocations.disputed for each in results)
    waits: Any = world.kubelets._claims._waits.by_key if world.kubelets._claims is not None else {}
    if uid in waits and not disputed:
        world.safety.violated("L10", f"{name} waits on its node for its claims")


def check_books(world: World, process: Process, fast_path: FastPath) -> None:
    """What a process that may write still assumes, and whether it knows what there is."""
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
    there = {
        claim["metadata"]["uid"]: allocation_of(claim) is not None for claim in world.devices.reading.claims()
    }
    if known != there:
        world.safety.violated("L7", f"{process.identity} knows the claims {known}; there are {there}")
