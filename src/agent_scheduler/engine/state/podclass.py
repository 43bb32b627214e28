"""The class of a pod: pods with equal requirements share one compiled class, whose results are cached.

A `PodClass` has everything that filters and scores read from a pod, in compiled form. Two pods of one class have the
same results on the same snapshot, so a worker keeps masks and scores from one pod to the next. `PodClasses` returns the
class of a pod.

Namespace and labels are part of the class only if the spec has terms about other pods or spread constraints. So agents
that each have their own label still share a class. Name and UID are part of it only with ephemeral volumes, whose
claims are created for one pod; such a pod shares its class with no other.

An invalid pod also has a class: its `error` names the field, and no worker places the pod.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from agent_scheduler.objects import wire
from apimachinery.labels import Labels

from .gpus import RESOURCE as GPU
from .podclaims import ClaimDemand
from .podterms import NO_TERMS, ExistingTerm, PodTerms, SpreadConstraint
from .podvolumes import PodVolumes
from .requests import Amounts
from .siblings import Siblings

#: The number of pods on a node, treated as a resource.
PODS = "pods"

#: (host IP, protocol, port); the IP is "0.0.0.0" if the pod names none.
HostPort = tuple[str, str, int]


class Images(NamedTuple):
    """The images of containers and init containers, and those that are mounted as volumes, as written in the spec."""

    run: tuple[str, ...]
    mounted: tuple[str, ...]


NO_IMAGES: Final = Images((), ())

#: The inputs of decisions on a class besides its spec: matching terms of existing pods, siblings, and resource claims.
Context = tuple[tuple[ExistingTerm, ...], Siblings | None, ClaimDemand | None]


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False, repr=False)
class PodClass:
    """The fields that filters and scores read from a pod. Immutable; equal only to itself."""

    #: Amounts in the ledger's units without zeros; `PODS` is always 1.
    requests: Amounts
    #: (millicores, bytes) of the pod in scores.
    nonzero: tuple[int, int]
    #: The amounts that NodeResourcesFit counts until the pod runs, if they differ from `requests` (`pod_amounts`).
    by_containers: Amounts | None = None
    #: The features that its node must declare.
    features: frozenset[str] = frozenset()
    host_ports: tuple[HostPort, ...]
    node_selector: dict[str, str]
    affinity: wire.NodeAffinity | None
    tolerations: tuple[wire.Toleration, ...]
    #: Its terms about other pods, and those of them that affect other pods once it runs.
    terms: PodTerms = NO_TERMS
    existing: tuple[ExistingTerm, ...] = field(init=False)
    spread: tuple[SpreadConstraint, ...] = ()
    #: Empty if no plugin needs them (see `PodClasses`).
    images: Images = NO_IMAGES
    #: Empty if the spec has no terms about other pods and no spread constraints.
    namespace: str = ""
    labels: Labels = field(default_factory=dict)
    #: Affinity and anti-affinity terms of existing pods that match this one.
    matching_terms: tuple[ExistingTerm, ...] = ()
    #: The pods among which default constraints spread it; None if it has constraints or its profile no default ones.
    siblings: Siblings | None = None
    #: Its claims and disks; None if all its volumes are available on every node.
    volumes: PodVolumes | None = None
    #: The current demand of its resource claims; None if it has none, and in a class without context.
    claims: ClaimDemand | None = None
    #: Whether volumes or devices may have to be reserved for it on a node.
    reserves: bool = field(init=False)
    #: Whether it requests extended resources, which devices may provide.
    extended: bool = field(init=False)
    #: The requested thousandths of GPUs (`gpus`).
    gpu: int = field(init=False)
    #: The number of its scheduling constraints (`podconstraints`).
    constraints: int = 0
    #: The only node that it may be placed on; empty for any node.
    node_name: str = ""
    #: Why the pod cannot be placed; empty for a valid spec.
    error: str = ""
    #: Equal for classes that differ in no more than `requests`, `nonzero`, `by_containers`, `extended` and `gpu`.
    key_without_requests: Hashable = field(default_factory=object)
    _in_contexts: WeakValueDictionary[Context, PodClass] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.existing = self.terms.existing()
        self.reserves = self.volumes is not None or self.claims is not None
        self.extended = any("/" in resource for resource in self.requests)
        self.gpu = self.requests.get(GPU, 0)

    def takes_the_same(self, other: PodClass) -> bool:
        """Return whether pods of both classes have the same amounts and host ports in a node's columns."""
        return self is other or (
            self.requests == other.requests and self.nonzero == other.nonzero and self.host_ports == other.host_ports
        )

    def in_context(
        self,
        matching_terms: tuple[ExistingTerm, ...],
        siblings: Siblings | None = None,
        claims: ClaimDemand | None = None,
    ) -> PodClass:
        """Return this class in another context. Equal arguments return the same object while it is referenced."""
        if self.spread:
            siblings = None
        if matching_terms == self.matching_terms and siblings == self.siblings and claims is self.claims:
            return self
        if self._in_contexts is None:
            self._in_contexts = WeakValueDictionary()
        context = (matching_terms, siblings, claims)
        found = self._in_contexts.get(context)
        if found is None:
            found = self._in_contexts[context] = replace(
                self,
                matching_terms=matching_terms,
                siblings=siblings,
                claims=claims,
                key_without_requests=(self.key_without_requests, *context),
            )
        return found
