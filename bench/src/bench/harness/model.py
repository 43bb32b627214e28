"""The parts of a scenario: nodes, pods that exist before, measured pods, and changes meanwhile.

A `Scenario` answers one question with several `Case`s, such as the sizes of a curve or the two sides of a comparison.
Runs of its cases alternate, so that a slow phase of the machine affects all of them.
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
    """A number of equal nodes, in three zones; or those that are `given` (a trace's)."""

    count: int
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    #: Devices that each node offers for resource claims.
    devices: int = 0
    given: tuple[NodeSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A pod without its name. `spec` is added to its only container."""

    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "100m", "memory": "128Mi"})
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


#: Sixteen clients that each wait for their responses.
AS_ANSWERED = ClosedLoop(16)


class Fate(Enum):
    """The required result for a pod; otherwise the run is refused."""

    BOUND = "bound, and there at the end or after its life"
    #: As BOUND, but another pod may preempt it later.
    PREEMPTED = "bound, and perhaps preempted"
    WAITS = "refused by every node, and waiting"
    GATED = "waiting behind its gates"
    #: Any result that the audit of the final state accepts.
    ANY = "bound, or no node can take it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Gangs of `size` pods in a queue; `minimum` of them are bound together or none, all if None."""

    size: int
    minimum: int | None = None
    queue: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Pods `NAME-000000` and following; the templates take turns.

    With `gang` each group of pods has a PodGroup, and the batch scheduler handles them.
    """

    name: str
    count: int
    gang: Gang | None = None
    templates: tuple[Template, ...] = (Template(),)
    arrival: Arrival = AS_ANSWERED
    lives: Lives | GivenLives | None = None
    fate: Fate = Fate.BOUND

    @property
    def schedule(self) -> Schedule | None:
        """Return the times at which pods are due; None for a closed loop."""
        return self.arrival if isinstance(self.arrival, Schedule) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Creating:
    """Another pod every `every` seconds while pods are measured.

    Or all of them, and the run continues until they are bound.
    """

    batch: Batch
    every: float
    to_the_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreating:
    """A node without allocatable, a service and a pod of `batch`, created and deleted in turn every `every` seconds."""

    batch: Batch
    every: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleting:
    """Deletions of the pods of the batch of that name, `rate` per second."""

    batch: str
    rate: float


Churn = Creating | Recreating | Deleting


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The required placement at the end of the measured batch, and of `initial` if `both`.

    By the label `key` of the nodes: with at most `skew` pods between the fullest and the emptiest; of at most `values`
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
    """The scheduler's configuration, if the benchmark starts it."""

    workers: int = 1
    #: The strategy of the score NodeResourcesFit; the profile's own if None.
    strategy: Strategy | None = None
    #: The profile without its name.
    profile: Mapping[str, Any] = field(default_factory=dict)
    #: The policy for workers that choose the same node (`conflictPolicy`).
    policy: Policy = "revalidate"
    #: Feature gates that differ from their default.
    gates: Mapping[str, bool] = field(default_factory=dict)
    #: Whether it writes events: then all of them, without a rate limit.
    events: bool = True
    #: The batch scheduler's settings; None: there is none.
    batch: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of a scenario's table. `at` is its position on the axis of a plot."""

    name: str
    nodes: Nodes
    load: Batch
    before: tuple[Batch, ...] = ()
    #: Specs of Queues by name.
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    churn: tuple[Churn, ...] = ()
    tuning: Tuning = Tuning()
    #: Whether bound pods must run: Volcano reclaims only from running pods.
    runs_pods: bool = False
    #: Whether the template of the pods' claims is created last: then pods of a `Backlog` exist and wait, the scheduler
    #: runs, and the measurement begins with the template.
    template_last: bool = False
    #: The pods' constraints beyond capacity, as the audit checks them.
    rule: Spread | None = None
    at: float = 0.0
    #: Cases of one series are one line of a plot.
    series: str = ""
    #: Maximum number of runs, also if more are requested: runs that take minutes are not repeated for a range.
    most_runs: int = 99
    #: Seconds after which a run is given up.
    patience: float = 600.0

    @property
    def zones(self) -> bool:
        """Whether some pod requires the zones of the nodes that are created here."""
        texts = (str(template.spec) for batch in self.batches for template in batch.templates)
        return any(ZONE in text for text in texts)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """Every batch, that of the measured pods last."""
        return (*self.before, *(each.batch for each in self.churn if not isinstance(each, Deleting)), self.load)

    def scaled(self, factor: float) -> Case:
        """Return the case with `factor` times the nodes and pods, so that the same share fits.

        Rates and lives stay, and smaller waves follow one another faster.
        """
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
    """Cases that answer one question. `group` groups scenarios in the report, `axis` names what `at` counts."""

    name: str
    group: str
    measures: str
    cases: tuple[Case, ...]
    axis: str = ""


#: The label of a node's zone, and the zones of the nodes that are created here.
ZONE = "topology.kubernetes.io/zone"
ZONES = ("local-a", "local-b", "local-c")


def _scaled(batch: Batch, factor: float) -> Batch:
    arrival = batch.arrival
    if isinstance(arrival, Waves):
        arrival = Waves(max(1, int(arrival.size * factor)), max(1.0, arrival.gap * min(1.0, factor)))
    size = batch.gang.size if batch.gang is not None else 1
    return replace(batch, count=max(1, int(batch.count * factor) // size) * size, arrival=arrival)
