"""The protocol of `demand` with a whole scheduler: on the embedded cluster, over HTTP, as separate processes.

In each run, as many pods that request only CPU and memory are scheduled on the same nodes by the scheduler's default
profile, so that the two speeds can be compared on the same machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..harness.embedded import embedded
from ..harness.manifests import template_of
from ..harness.model import Batch, Case, Fate, Nodes, Tuning
from ..harness.result import Run
from ..harness.run import Play, run_once
from ..harness.specs import GPU_MILLI, PodSpec, Workload
from .demand import DEMAND, drawn, gpu_nodes
from .policies import Policy

_PATIENCE: Final = 900.0
_PLAIN: Final = PodSpec(name="", requests={"cpu": 100, "memory": 128 << 20})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """The result of one run. `refused`: why it does not count. CPU is the scheduler's, per requested pod."""

    trace: str
    policy: str
    seed: int
    pods: int
    bound: int = 0
    allocated: float = 0.0
    pods_per_second: float = 0.0
    cpu_ms: float = 0.0
    #: The same for the plain pods.
    plain_per_second: float = 0.0
    plain_cpu_ms: float = 0.0
    refused: tuple[str, ...] = ()


async def schedule(
    workload: Workload, policy: Policy, seed: int, *, demand: float = DEMAND, workers: int = 1
) -> Scheduled:
    """Run the policy on a scheduler. Raises ValueError for a policy that is no profile."""
    if policy.is_random:
        raise ValueError(f"{policy.name} is no profile of a scheduler")
    nodes = gpu_nodes(workload)
    pods = drawn(workload.pods, nodes, seed, demand)
    found = Scheduled(trace=workload.name, policy=policy.name, seed=seed, pods=len(pods))
    profile = {
        "plugins": {
            "score": {
                "enabled": [{"name": name, "weight": weight} for name, weight in policy.scores.items()],
                "disabled": [{"name": "*"}],
            }
        },
        "pluginConfig": [{"name": name, "args": args} for name, args in policy.arguments(workload.pods).items()],
    }
    case = Case(
        name=policy.name,
        nodes=Nodes(count=len(nodes), given=nodes),
        load=Batch(name="pod", count=len(pods), templates=tuple(map(template_of, pods)), fate=Fate.ANY),
        tuning=Tuning(workers=workers, events=False, profile=profile),
        patience=_PATIENCE,
    )
    run, allocated = await _run(case)
    plain = replace(
        case,
        load=Batch(name="plain", count=len(pods), templates=(template_of(_PLAIN),)),
        tuning=Tuning(workers=workers, events=False),
    )
    beside, _ = await _run(plain)
    refused = (*run.refused, *beside.refused)
    if run.figures is None or beside.figures is None:
        return replace(found, refused=refused or ("nothing was measured",))
    return replace(
        found,
        bound=run.figures.pods,
        allocated=allocated,
        pods_per_second=run.figures.pods_per_second or 0.0,
        cpu_ms=run.figures.cpu_ms or 0.0,
        plain_per_second=beside.figures.pods_per_second or 0.0,
        plain_cpu_ms=beside.figures.cpu_ms or 0.0,
    )


async def _run(case: Case) -> tuple[Run, float]:
    """Return the run, and the pods' share of all GPUs at its end."""
    plays: list[Play] = []

    async def watch(play: Play) -> None:
        plays.append(play)

    run = await run_once(case, embedded(case), scenario="packing", watch=watch)
    return run, plays[0].verdict.state.allocation(GPU_MILLI) or 0.0 if plays else 0.0
