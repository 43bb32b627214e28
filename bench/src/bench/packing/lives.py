"""Measures pods that come and go: the arrivals and lives of a trace, on as many GPUs as make them scarce.

The trace alone uses few of its nodes (at most 66 of OpenB's 6,212 GPUs). So there are fewer nodes, drawn from it, and
the trace is repeated several times in parallel, each time with its arrivals shifted by a random part of its length, so
that on average `load` times the GPUs are requested. A pod that fits nowhere waits, and is tried again, the oldest
first, whenever a pod has ended. Times are the trace's; nothing takes any time here.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo

from ..harness.specs import GPU_MILLI, NodeSpec, PodSpec, Workload
from .decisions import Decisions, Pods
from .demand import gpu_nodes
from .policies import Policy, measured_by

#: Minimum number of GPUs of the drawn nodes.
GPUS: Final = 128
#: Average requested GPUs per existing GPU.
LOAD: Final = 0.9
#: The measurement begins after this share of the time, once the cluster is busy.
_WARM: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """The result of one run.

    Shares are of all GPUs, over time; waits are in seconds, of pods that arrived during the measurement.
    """

    trace: str
    policy: str
    seed: int
    gpus: int
    pods: int
    allocated: float
    unusable: float
    #: Share of pods that had to wait; the mean wait of all; and the number without a node at the end.
    waited: float
    mean_wait: float
    unplaced: int


def live(workload: Workload, policy: Policy, seed: int, *, gpus: int = GPUS, load: float = LOAD) -> Lived:
    chance = random.Random(seed)
    nodes = _some(gpu_nodes(workload), gpus, chance)
    arrivals = _overlaid(workload.pods, sum(node.gpus for node in nodes), load, chance)
    return _Replay(workload, policy, seed, nodes).run(arrivals)


def _some(nodes: Sequence[NodeSpec], gpus: int, chance: random.Random) -> list[NodeSpec]:
    found: list[NodeSpec] = []
    for node in chance.sample(nodes, len(nodes)):
        if sum(each.gpus for each in found) >= gpus:
            break
        found.append(node)
    return found


def _overlaid(pods: Sequence[PodSpec], gpus: int, load: float, chance: random.Random) -> list[PodSpec]:
    """Return the overlaid arrivals within one length of the trace. A longer life ends with it."""
    length = max(pod.arrival for pod in pods)
    asked = sum(pod.requests.get(GPU_MILLI, 0) * min(pod.life or length, length) for pod in pods)
    if not asked:
        raise ValueError("no pod asks for a GPU for any time; expected a trace with such pods and with their times")
    times = max(1, round(load * gpus * 1000 * length / asked))
    found = []
    for _ in range(times):
        moved = chance.random() * length
        found += [
            replace(pod, arrival=(pod.arrival + moved) % length, life=min(pod.life or length, length)) for pod in pods
        ]
    return sorted(found, key=lambda pod: pod.arrival)


class _Waiting(NamedTuple):
    number: int
    pod: PodInfo
    spec: PodSpec


class _Replay:
    def __init__(self, workload: Workload, policy: Policy, seed: int, nodes: Sequence[NodeSpec]) -> None:
        self._workload, self._policy, self._seed = workload, policy, seed
        self._gpus = sum(node.gpus for node in nodes)
        self._decisions, self._pods = Decisions(nodes, policy, workload.pods, seed), Pods()
        self._unusable = self._decisions.unusable(measured_by(workload.pods))
        #: (end time, number, pod).
        self._ends: list[tuple[float, int, PodInfo]] = []
        #: Waiting pods by class, the oldest first: if one pod of a class fits nowhere, none of the class does.
        self._waiting: dict[PodClass, deque[_Waiting]] = {}
        self._waits: list[float] = []
        self._from = 0.0

    def run(self, arrivals: Sequence[PodSpec]) -> Lived:
        length = arrivals[-1].arrival
        self._from = _WARM * length
        sums, last = [0.0, 0.0], self._from
        shares = (0.0, 0.0)
        for number, spec in enumerate(arrivals):
            while self._ends and self._ends[0][0] <= spec.arrival:
                now, _, pod = heapq.heappop(self._ends)
                self._decisions.remove(pod)
                self._try_again(now)
            if spec.arrival > last:
                span, last = spec.arrival - last, spec.arrival
                sums = [total + span * share for total, share in zip(sums, shares, strict=True)]
            pod = self._pods.pod(spec, f"pod-{number:06d}")
            self._decisions.seen(pod)
            waiting = _Waiting(number, pod, spec)
            if pod.cls in self._waiting or not self._place(waiting, spec.arrival):
                self._waiting.setdefault(pod.cls, deque()).append(waiting)
            shares = (self._decisions.allocated(GPU_MILLI), self._unusable())
        measured = max(last - self._from, 1e-9)
        left = [each for queue in self._waiting.values() for each in queue]
        still = [length - each.spec.arrival for each in left if each.spec.arrival >= self._from]
        waits = [*self._waits, *still]
        return Lived(
            trace=self._workload.name,
            policy=self._policy.name,
            seed=self._seed,
            gpus=self._gpus,
            pods=len(arrivals),
            allocated=sums[0] / measured,
            unusable=sums[1] / measured,
            waited=sum(wait > 0 for wait in waits) / max(1, len(waits)),
            mean_wait=statistics.fmean(waits) if waits else 0.0,
            unplaced=len(left),
        )

    def _place(self, waiting: _Waiting, now: float) -> bool:
        number, pod, spec = waiting
        if not self._decisions.place(pod):
            return False
        heapq.heappush(self._ends, (now + (spec.life or 0.0), number, pod))
        if spec.arrival >= self._from:
            self._waits.append(now - spec.arrival)
        return True

    def _try_again(self, now: float) -> None:
        heads = [(queue[0].number, cls) for cls, queue in self._waiting.items()]
        heapq.heapify(heads)
        while heads:
            _, cls = heapq.heappop(heads)
            queue = self._waiting[cls]
            if not self._place(queue[0], now):
                continue
            queue.popleft()
            if queue:
                heapq.heappush(heads, (queue[0].number, cls))
            else:
                del self._waiting[cls]
