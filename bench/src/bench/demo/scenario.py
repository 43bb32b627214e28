"""The workloads of the demo: a burst of AI agents, or a recorded trace, as a case of `bench.harness`.

By default all agents of a burst are created as fast as the API server accepts them. They can arrive in waves instead: a
batch of sessions starts, each creates tool calls and sandboxes within a second or two, and nearly all of it ends soon.
The generator is a pure function of its arguments, so a seed defines a workload exactly.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, replace
from typing import Any

from apimachinery.plural import counted
from bench.harness.arrivals import ClosedLoop, Given, GivenLives
from bench.harness.manifests import template_of
from bench.harness.model import Batch, Case, Creating, Fate, Gang, Nodes, Tuning
from bench.harness.specs import NodeSpec, PodSpec, Workload, compressed, paced
from bench.harness.traces import read_trace

MIB = 1 << 20
NODES = 500
PODS = 5000
#: Gangs in each of the two queues of a generated burst.
GANGS = 6
#: Stories that can be played instead of a burst.
STORIES = ("gates", "jobs")
_GANG_SIZE = 8
#: Seconds between two pods of a queue's gangs.
_GANG_POD_EVERY = 0.06
_MEMBER = PodSpec(name="member", requests={"cpu": 1000, "memory": 2048 * MIB}, life=2.0)
#: Queues by the name of their gangs. The first has room for half of its gangs at a time.
QUEUES: dict[str, dict[str, Any]] = {
    "training": {"capability": {"cpu": str(_GANG_SIZE * GANGS // 2)}},
    "evaluation": {},
}
#: Seconds to which the arrivals of a longer trace are compressed by default.
_ARRIVALS_WITHIN = 60.0


def simulated_nodes(count: int) -> tuple[NodeSpec, ...]:
    """Return `count` equal nodes of 32 CPUs, 128 GiB and 110 pods, over three zones."""
    return tuple(
        NodeSpec(
            name=f"node-{number:05d}",
            cpu_milli=32_000,
            memory=128 * 1024 * MIB,
            labels={
                "topology.kubernetes.io/region": "local",
                "topology.kubernetes.io/zone": f"local-{'abc'[number % 3]}",
            },
        )
        for number in range(count)
    )


def workload_of(args: argparse.Namespace) -> Workload:
    """Return the pods and the nodes that the command's arguments select. Raises `TraceError`."""
    if args.trace is None:
        workload = _paced(agent_burst(pods=args.pods or PODS, seed=args.seed, waves=args.waves), args)
    else:
        workload = read_trace(args.trace)
        workload = _paced(replace(workload, pods=workload.pods[: args.pods]), args)
    nodes = workload.nodes[: args.nodes] or simulated_nodes(args.nodes or NODES)
    return replace(workload, nodes=nodes)


def case_of(workload: Workload, *, workers: int, patience: float, gangs: int = 0) -> Case:
    """Return the case of a workload. `gangs`: their number in each queue.

    Simulated kubelets end pods after their life, which is in an annotation.
    """
    arrivals = tuple(pod.arrival for pod in workload.pods)
    load = Batch(
        name="agent",
        count=len(workload.pods),
        templates=tuple(map(template_of, workload.pods)),
        arrival=Given(arrivals) if any(arrivals) else ClosedLoop(),
        lives=GivenLives(tuple(pod.life for pod in workload.pods)),
        fate=Fate.ANY,
    )
    return Case(
        name=workload.name,
        nodes=Nodes(count=len(workload.nodes), given=workload.nodes),
        load=load,
        queues=QUEUES if gangs else {},
        churn=tuple(
            Creating(
                batch=Batch(
                    name=queue,
                    count=gangs * _GANG_SIZE,
                    gang=Gang(size=_GANG_SIZE, queue=queue),
                    templates=(template_of(_MEMBER),),
                    fate=Fate.ANY,
                ),
                every=_GANG_POD_EVERY,
                to_the_end=True,
            )
            for queue in (QUEUES if gangs else ())
        ),
        tuning=Tuning(workers=workers, events=False, batch={} if gangs else None),
        patience=patience,
    )


def _paced(workload: Workload, args: argparse.Namespace) -> Workload:
    pods, note = workload.pods, ""
    last = max((pod.arrival for pod in pods), default=0.0)
    if args.rate is not None:
        pods = paced(pods, args.rate)
        note = f"Arrivals: {args.rate:g} pods per second, in the workload's order."
    elif args.speedup is not None:
        pods, note = compressed(pods, args.speedup), f"Arrivals and lives are {args.speedup:g} times as fast."
    elif workload.nodes:
        pods, note = paced(pods, None), "Arrivals: all at once, in the trace's order."
    elif args.trace is not None and last > _ARRIVALS_WITHIN:
        speedup = last / _ARRIVALS_WITHIN
        pods = compressed(pods, speedup)
        note = f"Arrivals and lives are {speedup:.3g} times as fast, so that all arrive in {_ARRIVALS_WITHIN:g} s."
    if workload.nodes and args.speedup is None:
        pods = tuple(replace(pod, life=None) for pod in pods)
        note += " Pods stay once they are placed."
    return replace(workload, pods=pods, notes=(*workload.notes, note) if note else workload.notes)


@dataclass(frozen=True, slots=True)
class AgentClass:
    """One kind of pod: its share of the burst, its requests, and how long it runs (median seconds, sigma)."""

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


def agent_burst(*, pods: int, seed: int, waves: int | None = None, gap: float = 2.0, spread: float = 0.8) -> Workload:
    """Return `pods` agent pods that all arrive at 0, or in `waves` waves, one every `gap` seconds.

    A wave's size varies by a half either way; within a wave arrivals follow an exponential of mean `spread` / 3
    seconds, limited to `spread`. Lives are log-normal. Raises ValueError for counts below 1 or negative times.
    """
    if pods < 1 or (waves is not None and waves < 1):
        raise ValueError(f"a burst needs at least one pod and one wave, not {pods} and {waves}")
    if gap < 0 or spread < 0:
        raise ValueError(f"gap and spread are seconds of at least 0, not {gap:g} and {spread:g}")
    if waves is None:
        waves, spread = 1, 0.0
        arrive = "created as fast as the API server accepts them"
    else:
        arrive = f"in {counted(min(waves, pods), 'wave')}, one every {gap:g} s"
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
        notes=(f"{counted(pods, 'pod')} {arrive}; most live for seconds.",),
    )


def _split(total: int, shares: list[float]) -> list[int]:
    """Divide `total` by `shares`: every part at least 1 and the sum exact (largest remainders first)."""
    spare = total - len(shares)
    exact = [spare * share / sum(shares) for share in shares]
    parts = [int(amount) for amount in exact]
    by_remainder = sorted(range(len(parts)), key=lambda index: parts[index] - exact[index])
    for index in by_remainder[: spare - sum(parts)]:
        parts[index] += 1
    return [part + 1 for part in parts]
