"""Pods that want the same are one class, compiled once and decided together.

A `PodClass` holds everything that the filters and scores of a node read from a pod, in compiled form. Two pods
of one class get the same answer on the same snapshot, which is what lets a worker keep masks and scores from
one pod to the next. `PodClasses` tells of which class a pod is.

Namespace and labels are part of the class only where the spec makes them matter: with terms about other pods, and
with spread constraints. Agents that each carry a label of their own still are one class. Name and UID are, where it has
ephemeral claims: these are made for one pod, and no other can share its class.

A pod that cannot be read is a class too: its `error` names the field, and no worker ever places it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from agent_scheduler.objects import wire

from .gpus import RESOURCE as GPU
from .labelselector import Labels
from .owners import Siblings
from .podclaims import Demand
from .podterms import (
    NO_TERMS,
    ExistingTerm,
    PodTerms,
    SpreadConstraint,
)
from .podvolumes import PodVolumes
from .requests import Amounts

#: The counter of pods on a node, treated as one more resource.
PODS = "pods"

#: (host IP, protocol, port); the IP is "0.0.0.0" where the pod names none.
HostPort = tuple[str, str, int]


class Images(NamedTuple):
    """As they are written: what containers and init containers run, and what is mounted as volumes."""

    run: tuple[str, ...]
    mounted: tuple[str, ...]


NO_IMAGES: Final = Images((), ())

#: What a class is decided with beside its spec: matching terms of existing pods, siblings, and resource claims.
Context = tuple[tuple[ExistingTerm, ...], Siblings | None, Demand | None]


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False, repr=False)
class PodClass:
    """What the rules of a node read from a pod. Immutable once built; equal only to itself."""

    #: Amounts in the ledger's units, zeros left out, `PODS` always 1.
    requests: Amounts
    #: (millicores, bytes) that the pod counts as in scores.
    nonzero: tuple[int, int]
    #: As what NodeResourcesFit counts it there until it runs, where that is something else (`pod_amounts`).
    by_containers: Amounts | None = None
    #: What its node has to have declared.
    features: frozenset[str] = frozenset()
    host_ports: tuple[HostPort, ...]
    node_selector: dict[str, str]
    affinity: wire.NodeAffinity | None
    tolerations: tuple[wire.Toleration, ...]
    #: What it says about other pods, and what that means to others once it runs.
    terms: PodTerms = NO_TERMS
    existing: tuple[ExistingTerm, ...] = field(init=False)
    spread: tuple[SpreadConstraint, ...] = ()
    #: Empty where no plugin asks (see `PodClasses`).
    images: Images = NO_IMAGES
    #: Empty where nothing in the spec makes them matter.
    namespace: str = ""
    labels: Labels = field(default_factory=dict)
    #: Affinity and anti-affinity terms of existing pods that match this one.
    matching_terms: tuple[ExistingTerm, ...] = ()
    #: The pods that it is spread among if it does not say so itself and its profile spreads pods by default.
    siblings: Siblings | None = None
    #: Its claims and disks; None where every node has all that it mounts.
    volumes: PodVolumes | None = None
    #: What its resource claims ask for, as things stand; None where it has none, and for a pod's own class.
    claims: Demand | None = None
    #: Whether more than room may have to be reserved for it on a node.
    reserves: bool = field(init=False)
    #: Whether it asks for resources that are not Kubernetes' own, which devices may stand for.
    extended: bool = field(init=False)
    #: Thousandths of GPUs that it asks for (`gpus`).
    gpu: int = field(init=False)
    #: The one node that it may go to; empty for any.
    node_name: str = ""
    #: Why no node may be chosen for it; empty for a sound spec.
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
        """Whether a node's columns cannot tell pods of the two classes apart."""
        return self is other or (
            self.requests == other.requests
            and self.nonzero == other.nonzero
            and self.host_ports == other.host_ports
        )

    def in_context(
        self,
        matching_terms: tuple[ExistingTerm, ...],
        siblings: Siblings | None = None,
        claims: Demand | None = None,
    ) -> PodClass:
        """This class with these in place of its own. Equal arguments give the same object while it is held."""
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
