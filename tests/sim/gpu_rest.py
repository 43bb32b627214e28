"""What must be true of GPUs once the faults have ended and nothing moves.

L20 whoever has listed everything counts each pod on the devices that its annotation names, and has free of each device
    what these leave: what it goes by is what a scheduler finds that is started now
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from tests.decisions.plain.gpu_share import WHOLE, asked, given, left

from .gpu_reading import as_placed

if TYPE_CHECKING:
    from .gpu_safety import GpuSafety
    from .processes import Process
    from .world import World

Json = dict[str, Any]

PODS, NODES = ("", "pods"), ("", "nodes")
_FINAL = ("Succeeded", "Failed")


def check_gpus(world: World, process: Process) -> None:
    """At rest."""
    fast_path, safety = process.fast_path, world.gpu_safety
    if safety is None or fast_path is None or process.transport is None or process.transport.closed:
        return
    if not fast_path.is_synced:
        return
    world.safety.checked["L20"] += 1
    ledger = fast_path.ledger
    placed: dict[str, list[Json]] = {}
    for pod in _placed(world):
        placement = ledger.placements.get(pod["metadata"]["uid"])
        counted = () if placement is None else placement.gpus
        if asked(pod) and not _agree(safety, pod, counted):
            name = pod["metadata"]["name"]
            text = f"{process.identity} counts {name} on the devices {counted}; it names {given(pod)}"
            world.safety.violated("L20", text)
        placed.setdefault(pod["spec"]["nodeName"], []).append(as_placed(pod, counted))
    for record in world.store.tables[NODES].scan(""):
        node, row = orjson.loads(record.data), ledger.rows.get(record.name)
        free = tuple(left(node, placed.get(record.name, ())))
        counted = () if row is None else ledger.columns.gpus.get(row, ())
        if counted != free:
            text = f"{process.identity} has {counted} free of the devices of {record.name}; {free} are"
            world.safety.violated("L20", text)


def note_gpus(world: World) -> None:
    """Whether a pod waits though its node has as many thousandths as it asks for, on several devices."""
    if world.gpu_safety is None:
        return
    there = _placed(world)
    for record in world.store.tables[NODES].scan(""):
        node = orjson.loads(record.data)
        free = left(node, [pod for pod in there if pod["spec"]["nodeName"] == record.name])
        for pod in map(orjson.loads, (each.data for each in world.store.tables[PODS].scan(""))):
            waits = not pod["spec"].get("nodeName") and pod["status"].get("phase") not in _FINAL
            if waits and max(free, default=0) < asked(pod) <= min(sum(free), WHOLE):
                world.states.reached("pod waits for a GPU of which parts are free")


def _placed(world: World) -> list[Json]:
    pods = (orjson.loads(record.data) for record in world.store.tables[PODS].scan(""))
    return [pod for pod in pods if pod["spec"].get("nodeName") and pod["status"].get("phase") not in _FINAL]


def _agree(safety: GpuSafety, pod: Json, counted: Sequence[int]) -> bool:
    """A scheduler keeps a pod on the devices on which it has counted it when the pod names none any more."""
    if given(pod):
        return given(pod) == counted
    return set(counted) <= safety.named.get(pod["metadata"]["uid"], set())
