"""The parts of a workload before they are API objects: nodes, pods, and their order.

Readers (`traces`) and generators (`workloads`) produce these values, `manifests` turns them into objects, and `load`
sends them. Amounts are integers in the scheduler's own units: millicores for cpu, bytes for memory, counts for
everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent_scheduler.engine.state.gpus import RESOURCE

#: A pod's request of GPUs in thousandths: a share of one, or whole ones (`engine.state.gpus`).
GPU_MILLI = RESOURCE
#: The node label with the GPU model.
GPU_MODEL_LABEL = "alibabacloud.com/gpu-card-model"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node. `gpus` counts cards; `extended` has its extended resources, including those for the cards."""

    name: str
    cpu_milli: int
    memory: int
    pods: int = 110
    gpus: int = 0
    extended: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def allocatable(self) -> dict[str, int]:
        """Return every resource by its Kubernetes name."""
        return {"cpu": self.cpu_milli, "memory": self.memory, "pods": self.pods, **self.extended}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """One pod.

    `affinity` maps a node label to its allowed values; all must hold. `arrival` is in seconds since the workload's
    start, `life` the seconds that it runs once started; None runs until deleted.
    """

    name: str
    requests: Mapping[str, int]
    arrival: float = 0.0
    life: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Pods in order of arrival, and the nodes of their source (empty: any nodes)."""

    name: str
    pods: tuple[PodSpec, ...]
    nodes: tuple[NodeSpec, ...] = ()
    #: How the source was mapped to Kubernetes, for the report.
    notes: tuple[str, ...] = ()


def compressed(pods: Sequence[PodSpec], speedup: float) -> tuple[PodSpec, ...]:
    """Return the pods `speedup` times as fast: arrivals and lives divided by it. Raises ValueError unless > 0."""
    if not speedup > 0:
        raise ValueError(f"speedup must be more than 0, not {speedup:g}")
    return tuple(
        replace(pod, arrival=pod.arrival / speedup, life=None if pod.life is None else pod.life / speedup)
        for pod in pods
    )


def paced(pods: Sequence[PodSpec], rate: float | None) -> tuple[PodSpec, ...]:
    """Return the pods in the same order, `rate` per second; None is all at once. Lives do not change."""
    if rate is not None and not rate > 0:
        raise ValueError(f"rate must be more than 0 pods per second, not {rate:g}")
    gap = 0.0 if rate is None else 1.0 / rate
    return tuple(replace(pod, arrival=index * gap) for index, pod in enumerate(pods))


class Refusals:
    """Finds the pods that no node of a set could hold even when empty, with the reason.

    Equal nodes and equal pods are grouped, so that a trace of thousands of each costs a few thousand comparisons.
    """

    __slots__ = ("_known", "_shapes")

    def __init__(self, nodes: Iterable[NodeSpec]) -> None:
        shapes: dict[tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]], None] = {}
        for node in nodes:
            labels = tuple(sorted(item for item in node.labels.items() if item[0] != "kubernetes.io/hostname"))
            shapes[(tuple(sorted(node.allocatable().items())), labels)] = None
        self._shapes = [(dict(amounts), dict(labels)) for amounts, labels in shapes]
        self._known: dict[object, str | None] = {}

    def why(self, pod: PodSpec) -> str | None:
        """Return None if an empty node could hold the pod; otherwise the reason, as a scheduler would group it."""
        key = (tuple(sorted(pod.requests.items())), tuple(sorted(pod.affinity.items())))
        if key not in self._known:
            self._known[key] = self._look(pod)
        return self._known[key]

    def counted(self, pods: Iterable[PodSpec]) -> dict[str, int]:
        """Return how many of these pods no empty node could hold, by reason."""
        reasons = (self.why(pod) for pod in pods)
        return dict(Counter(reason for reason in reasons if reason is not None))

    def _look(self, pod: PodSpec) -> str | None:
        allowed = [
            amounts
            for amounts, labels in self._shapes
            if all(labels.get(label) in values for label, values in pod.affinity.items())
        ]
        if not allowed:
            wanted = ", ".join(f"{label} in {'|'.join(values)}" for label, values in pod.affinity.items())
            return f"no node has {wanted}" if wanted else "there is no node"
        wanted_amounts = {"pods": 1, **pod.requests}
        short: set[str] = set()
        for amounts in allowed:
            lacking = {name for name, amount in wanted_amounts.items() if amount > amounts.get(name, 0)}
            if not lacking:
                return None
            short |= lacking
        return "no empty node has enough of " + ", ".join(sorted(short))
