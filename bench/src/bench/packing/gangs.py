"""Measures how many gangs still fit beside agents: the value of keeping large capacities free.

Nodes of three shapes, of which one is too small for a member of a gang, are filled with small pods up to a share of
their CPU. Several times half of the pods, at random, end, and others arrive until it is as full as before. Then gangs
are placed, complete or not at all, until one does not fit. No pod requests a GPU.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from agent_scheduler.engine.state.podinfo import PodInfo

from ..harness.specs import NodeSpec, PodSpec
from .decisions import Decisions, Pods
from .policies import Policy

GIB: Final = 1 << 30

#: Nodes of each shape, and the agents' share of all CPU.
NODES: Final = 60
SHARE: Final = 0.4
#: How often half of the pods end.
_TIDES: Final = 6
_SHAPES: Final = ((32_000, 48 * GIB), (32_000, 256 * GIB), (64_000, 256 * GIB))
#: (CPU, memory, weight).
_AGENTS: Final = (
    (250, GIB // 2, 30),
    (500, GIB, 25),
    (1_000, 2 * GIB, 20),
    (1_000, 8 * GIB, 10),
    (2_000, 4 * GIB, 10),
    (4_000, 16 * GIB, 5),
)
_MEMBER: Final = PodSpec(name="", requests={"cpu": 16_000, "memory": 64 * GIB})
_MEMBERS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The result of one run. `without`: number of gangs that fit without agents."""

    policy: str
    seed: int
    agents: int
    gangs: int
    without: int


def fit_gangs(policy: Policy, seed: int, *, nodes: int = NODES, share: float = SHARE) -> Fitted:
    chance = random.Random(seed)
    there = [
        NodeSpec(name=f"node-{shape}-{number:04d}", cpu_milli=cpu, memory=memory, pods=250)
        for number in range(nodes)
        for shape, (cpu, memory) in enumerate(_SHAPES)
    ]
    kinds = [PodSpec(name="", requests={"cpu": cpu, "memory": memory}) for cpu, memory, _ in _AGENTS]
    weights = [weight for _, _, weight in _AGENTS]
    # One of ten expected pods belongs to a gang.
    coming = [kind for kind, weight in zip(kinds, weights, strict=True) for _ in range(weight)]
    coming += [_MEMBER] * (len(coming) // 9)
    decisions, pods = Decisions(there, policy, coming, seed), Pods()
    for number, spec in enumerate(coming):
        # For policies that learn: such pods have arrived before.
        decisions.seen(pods.pod(spec, f"before-{number:04d}"))
    running: list[PodInfo] = []

    def come() -> bool:
        pod = pods.pod(chance.choices(kinds, weights)[0], f"agent-{decisions.decided:06d}")
        placed = decisions.place(pod)
        if placed:
            running.append(pod)
        return placed

    def rise() -> None:
        while decisions.allocated("cpu") < share and come():
            pass

    rise()
    for _ in range(_TIDES):
        chance.shuffle(running)
        for pod in running[len(running) // 2 :]:
            decisions.remove(pod)
        del running[len(running) // 2 :]
        rise()
    return Fitted(
        policy=policy.name,
        seed=seed,
        agents=len(running),
        gangs=_gangs(decisions, pods),
        without=_gangs(Decisions(there, policy, coming, seed), pods),
    )


def _gangs(decisions: Decisions, pods: Pods) -> int:
    found = 0
    while True:
        members = [pods.pod(_MEMBER, f"gang-{found}-{index}") for index in range(_MEMBERS)]
        if not all(decisions.place(member) for member in members):
            return found
        found += 1
