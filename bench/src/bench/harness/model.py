"""What a scenario is: nodes, pods that are there before, pods that are measured, and what goes on meanwhile.

A `Scenario` answers one question with several `Case`s, such as the sizes of a curve or the two sides of a
comparison. Runs of its cases alternate, so that a machine that is slow for a while is slow for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from .arrivals import Arrival, ClosedLoop, GivenLives, Lives, Schedule, Waves
from .specs import NodeSpec

Strategy = Literal["MostAllocated", "LeastAllocated"]
Policy = Literal["revalidate", "strict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """So many nodes of one shape, in three zones; or those that are `given` (a trace's)."""

    count: int
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    #: Devices that each node offers for resource claims.
    devices: int = 0
    given: tuple[NodeSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a pod is but for its name. `spec` goes beside its one container."""

    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "100m", "memory": "128Mi"})
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


#: Sixteen clients that each wait for their answers.
AS_ANSWERED = ClosedLoop(16)


class Fate(Enum):
    """What has to become of a pod; a run in which it did not is refused."""

    BOUND = "bound, and there at the end or after its life"
    #: As BOUND, but something else may take its place later.
    PREEMPTED = "bound, and perhaps preempted"
    WAITS = "refused by every node, and waiting"
    GATED = "waiting behind its gates"
    #: Whatever the audit of the last state allows.
    ANY = "bound, or no node can take it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Of so many pods each, in a queue; `minimum` of them are bound together or none, all if None."""

    size: int
    minimum: int | None = None
    queue: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Pods `NAME-000000` and following; the templates take turns. With `gang` each so many pods have a PodGroup, and
    are for the batch scheduler."""

    name: str
    count: int
    gang: Gang | None = None
    templates: tuple[Template, ...] = (Template(),)
    arrival: Arrival = AS_ANSWERED
    lives: Lives | GivenLives | None = None
    fate: Fate = Fate.BOUND

    @property
    def schedule(self) -> Schedule | None:
        """The times at which pods are due; None without such."""
        return self.arrival if isinstance(self.arrival, Schedule) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Creating:
    """Another pod every `every` seconds, for as long as pods are measured; or all of them, and the run goes on until
    they are bound."""

    batch: Batch
    every: float
    to_the_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreating:
    """A node without allocatable, a service and a pod of `batch`, made and deleted in turn every `every` seconds."""

    batch: Batch
    every: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleting:
    """The pods of the batch of that name are deleted, `rate` a second."""

    batch: str
    rate: float


Churn = Creating | Recreating | Deleting


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Where the bound pods of the case's measured batch, and of `initial` if `both`, have to be in the end.

    The labels `key` of their nodes: with at most `skew` pods between the fullest and the emptiest; of at most `values`
    kinds; only those of `among`; with at most `most` pods each.
    """

    key: str
    both: bool = True
    skew: int | None = None
    values: int | None = None
    among: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How the scheduler is set up, where the benchmark starts it."""

    workers: int = 1
    #: Of the score NodeResourcesFit; the profile's own if None.
    strategy: Strategy | None = None
    #: What the profile says beside its name.
    profile: Mapping[str, Any] = field(default_factory=dict)
    #: Of workers that want one node (`conflictPolicy`).
    policy: Policy = "revalidate"
    #: Feature gates that are not at their default.
    gates: Mapping[str, bool] = field(default_factory=dict)
    #: Whether it writes events: then all of them, without a limit of their rate.
    events: bool = True
    #: The batch scheduler's settings; None: there is none.
    batch: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of a scenario's table. `at` is where it stands on the axis of a plot."""

    name: str
    nodes: Nodes
    load: Batch
    before: tuple[Batch, ...] = ()
    #: Specs of Queues by name.
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    churn: tuple[Churn, ...] = ()
    tuning: Tuning = Tuning()
    #: Whether bound pods have to run: Volcano reclaims from no others.
    runs_pods: bool = False
    #: Whether the template of the pods' claims comes last: then pods of a `Backlog` are there and wait, the scheduler
    #: runs, and what is measured begins with the template.
    template_last: bool = False
    #: What the pods ask for beyond capacity, as the audit checks it.
    rule: Spread | None = None
    at: float = 0.0
    #: Cases of one series make one line of a plot.
    series: str = ""
    #: At most so many runs, however many are asked for: what takes minutes is not repeated for a range.
    most_runs: int = 99
    #: Seconds after which a run is given up.
    patience: float = 600.0

    @property
    def zones(self) -> bool:
        """Whether some pod asks for the zones that nodes made here are in."""
        texts = (str(template.spec) for batch in self.batches for template in batch.templates)
        return any(ZONE in text for text in texts)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """Every batch, that of the measured pods last."""
        return (
            *self.before,
            *(each.batch for each in self.churn if not isinstance(each, Deleting)),
            self.load,
        )

    def scaled(self, factor: float) -> Case:
        """The same with so many times the nodes and pods: what fitted still does. Rates and lives stay, and
        smaller waves follow one another faster."""
        if factor == 1:
            return self
        shrunk = {batch.name: _scaled(batch, factor) for batch in self.batches}
        given = self.nodes.given
        return replace(
            self,
            name=f"{self.name} (x {factor:g})",
            nodes=replace(self.nodes, count=max(1, math.ceil(self.nodes.count * factor)), given=given),
            load=shrunk[self.load.name],
            before=tuple(shrunk[batch.name] for batch in self.before),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Cases that answer one question. `group` gathers scenarios in the report, `axis` names what `at` counts."""

    name: str
    group: str
    measures: str
    cases: tuple[Case, ...]
    axis: str = ""


#: The label of a node's zone, and the zones of the nodes that are made here.
ZONE = "topology.kubernetes.io/zone"
ZONES = ("local-a", "local-b", "local-c")


def _scaled(batch: Batch, factor: float) -> Batch:
    arrival = batch.arrival
    if isinstance(arrival, Waves):
        arrival = Waves(max(1, int(arrival.size * factor)), max(1.0, arrival.gap * min(1.0, factor)))
    size = batch.gang.size if batch.gang is not None else 1
    return replace(batch, count=max(1, int(batch.count * factor) // size) * size, arrival=arrival)
