"""GPUs of nodes, shares and whole ones that pods ask for, and by which scores nodes are ranked; all from the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.decisions.plain.gpu_share import RESOURCE, WHOLE

Body = dict[str, Any]

#: What a profile may rank nodes by, besides what it does by itself.
_SCORES = (
    "{name: Fragmentation, weight: 100}, {name: BestFit, weight: 1}",
    "{name: Fragmentation, weight: 100}, {name: BestFit, weight: 1}",
    "{name: GPUPacking, weight: 5}, {name: DotProduct, weight: 2}",
    "",
)
_SHARES = (100, 250, 333, 500, 500, 700, 900)
_WHOLE = (1000, 1000, 2000, 4000)


@dataclass
class Gpus:
    """What a world with GPUs is like."""

    #: Entries of `plugins.score.enabled`.
    scores: str


def offer(rng: random.Random, nodes: Sequence[Body]) -> None:
    """Have some of the nodes offer GPUs, mostly of different numbers."""
    sizes = rng.choice(((1,), (2,), (4,), (1, 2, 4), (0, 1, 2, 3, 4), (2, 4)))
    for node in nodes:
        set_devices(node, rng.choice(sizes))
    if nodes and not any(RESOURCE in node["status"]["allocatable"] for node in nodes):
        set_devices(nodes[0], 2)


def set_devices(node: Body, devices: int) -> None:
    for amounts in (node["status"]["allocatable"], node["status"]["capacity"]):
        if devices:
            amounts[RESOURCE] = str(devices * WHOLE)


def fill(rng: random.Random, nodes: Sequence[Body], pods: Sequence[tuple[float, Body]]) -> Gpus:
    """Nodes offer GPUs, and most pods ask for some."""
    offer(rng, nodes)
    kinds = rng.choice((_SHARES, _SHARES + _WHOLE, _SHARES + _WHOLE, (500, 1000), (700, 333)))
    often = rng.choice((0.5, 0.8, 1.0))
    for _, pod in pods:
        if rng.random() < often:
            ask(pod, 1500 if rng.random() < 0.01 else rng.choice(kinds))
            if rng.random() < 0.7:
                _shrink(pod)
    return Gpus(rng.choice(_SCORES))


def fill_gangs(rng: random.Random, nodes: Sequence[Body], pods: Sequence[tuple[float, Body]]) -> Gpus:
    """The same where pods come in gangs, whose members ask for the same."""
    offer(rng, nodes)
    chosen: dict[str, int] = {}
    for _, pod in pods:
        gang = pod["metadata"].get("labels", {}).get("gang") or pod["metadata"]["name"]
        amount = chosen.setdefault(gang, rng.choice((0, *_SHARES, *_WHOLE)))
        if amount:
            ask(pod, amount)
    return Gpus(rng.choice(_SCORES))


def ask(pod: Body, amount: int) -> None:
    resources = pod["spec"]["containers"][0]["resources"]
    resources["limits"] = {RESOURCE: str(amount)}
    resources["requests"] |= resources["limits"]


def _shrink(pod: Body) -> None:
    """So that it is GPUs that are short."""
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "50m"
