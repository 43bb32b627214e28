"""Generated workloads: what a fleet of AI agents asks of a scheduler.

Agents come in waves: a batch of sessions starts, each fans out into tool calls and sandboxes within a second or
two, and nearly all of it is gone again soon. The generator is a pure function of its arguments, so a seed names
a workload exactly.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .specs import PodSpec, Workload

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class AgentClass:
    """One kind of pod: its share of the burst, what it asks for, and how long it runs (median seconds, sigma)."""

    name: str
    weight: float
    cpu_milli: int
    memory: int
    median_life: float
    sigma: float


#: Small and short-lived first: most of what an agent starts is a tool call.
AGENT_CLASSES = (
    AgentClass("tool-call", 0.62, 100, 128 * MIB, 1.5, 0.7),
    AgentClass("sandbox", 0.25, 500, 512 * MIB, 6.0, 0.6),
    AgentClass("browser", 0.10, 1000, 1536 * MIB, 10.0, 0.5),
    AgentClass("planner", 0.03, 250, 1024 * MIB, 20.0, 0.3),
)


def agent_burst(*, pods: int, seed: int, waves: int = 5, gap: float = 2.0, spread: float = 0.8) -> Workload:
    """`pods` agent pods in `waves` waves, one every `gap` seconds.

    A wave's size varies by a half either way; within a wave arrivals follow an exponential of mean `spread`
    / 3 seconds, cut at `spread`. Lives are log-normal. Raises ValueError for counts below 1 or negative times.
    """
    if pods < 1 or waves < 1:
        raise ValueError(f"a burst needs at least one pod and one wave, not {pods} and {waves}")
    if gap < 0 or spread < 0:
        raise ValueError(f"gap and spread are seconds of at least 0, not {gap:g} and {spread:g}")
    chance = random.Random(seed)
    sizes = _split(pods, [chance.uniform(0.5, 1.5) for _ in range(min(waves, pods))])
    weights = [kind.weight for kind in AGENT_CLASSES]
    drawn: list[tuple[float, int, AgentClass, float]] = []
    for wave, size in enumerate(sizes):
        for kind in chance.choices(AGENT_CLASSES, weights=weights, k=size):
            late = min(chance.expovariate(3.0 / spread), spread) if spread else 0.0
            life = kind.median_life * chance.lognormvariate(0.0, kind.sigma)
            drawn.append((wave * gap + late, wave, kind, round(life, 3)))
    drawn.sort(key=lambda entry: entry[0])
    return Workload(
        name=f"agent burst, seed {seed}",
        pods=tuple(
            PodSpec(
                name=f"agent-{index:06d}",
                requests={"cpu": kind.cpu_milli, "memory": kind.memory},
                arrival=arrival,
                life=life,
                labels={"app": "agent", "role": kind.name, "wave": str(wave)},
            )
            for index, (arrival, wave, kind, life) in enumerate(drawn)
        ),
        notes=(f"{pods} pods in {len(sizes)} waves, one every {gap:g} s; most live for seconds.",),
    )


def _split(total: int, shares: list[float]) -> list[int]:
    """`total` divided by `shares`, every part at least 1 and the sum exact (largest remainders first)."""
    spare = total - len(shares)
    exact = [spare * share / sum(shares) for share in shares]
    parts = [int(amount) for amount in exact]
    by_remainder = sorted(range(len(parts)), key=lambda index: parts[index] - exact[index])
    for index in by_remainder[: spare - sum(parts)]:
        parts[index] += 1
    return [part + 1 for part in parts]
