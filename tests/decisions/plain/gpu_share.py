"""GPUShare: a share of a GPU must be free on one device, and whole GPUs must be unused.

This plugin is this scheduler's own. A node offers 1000 of `agent-scheduler.io/gpu-milli` for each of its devices, a pod
asks for a part of one or for a number of whole ones, and its annotation `agent-scheduler.io/gpu-index` names its
devices. A pod without the annotation uses no device.
"""

from __future__ import annotations

from collections.abc import Iterable

from apimachinery.quantity import resource_value
from tests.decisions.plain.requests import pod_request
from tests.decisions.plain.world import Obj, Refusal, World

RESOURCE, ANNOTATION = "agent-scheduler.io/gpu-milli", "agent-scheduler.io/gpu-index"
WHOLE = 1000


def asked(pod: Obj) -> int:
    return pod_request(pod, RESOURCE)


def said(pod: Obj) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(ANNOTATION, ""))


def given(pod: Obj) -> tuple[int, ...]:
    """Return the devices that the pod names; none if it names anything else."""
    parts = said(pod).split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        return ()
    return tuple(sorted(set(map(int, parts))))


def devices(node: Obj) -> int:
    return resource_value(RESOURCE, node["status"]["allocatable"].get(RESOURCE, "0")) // WHOLE


def left(node: Obj, placed: Iterable[Obj]) -> list[int]:
    """Return the rest of each device of the node."""
    free = [WHOLE] * devices(node)
    for pod in placed:
        for index in given(pod):
            if index < len(free):
                free[index] -= min(asked(pod), WHOLE)
    return free


def choice(free: list[int], amount: int) -> tuple[int, ...]:
    """Return the devices that a pod would be given; none if it does not fit."""
    if amount < WHOLE:
        enough = [(each, index) for index, each in enumerate(free) if each >= amount]
        return (min(enough)[1],) if enough else ()
    unused = [index for index, each in enumerate(free) if each == WHOLE]
    return tuple(unused[: amount // WHOLE]) if len(unused) >= amount // WHOLE else ()


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    amount = asked(pod)
    if not amount:
        return None
    if amount > WHOLE and amount % WHOLE:
        return Refusal((f"{amount} is neither a share of one GPU nor a number of whole ones",), True)
    if choice(left(node, world.on(node)), amount):
        return None
    too_few = devices(node) < max(1, amount // WHOLE)
    return Refusal(("node(s) didn't have a GPU with enough left",), too_few)
