"""The resource claims of pods, as values that decisions depend on; the state of devices is elsewhere.

A `ClaimDemand` does not identify claims without an allocation. So the pods of one template, each with its own claim,
have the same `ClaimDemand` and the same class. `dra.demand` builds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .claimspec import ClaimSpec
from .extended import ExtendedNeeds
from .reach import Reach

#: Namespace and name.
ClaimKey = tuple[str, str]


class PodClaim(NamedTuple):
    """An entry of a pod's `spec.resourceClaims`."""

    name: str
    #: None while the claim of its template has not been created.
    claim: ClaimKey | None
    #: The pod's UID for a claim that is created for this pod; empty for a claim that any pod may use.
    must_be_owned_by: str = ""


class PodRef(NamedTuple):
    """A reference to a pod, for messages and for claims that are reserved for it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class ClaimToAllocate(NamedTuple):
    """A claim without an allocation. `name` is its name in the pod's spec."""

    name: str
    spec: ClaimSpec


class AllocatedClaim(NamedTuple):
    """A claim that has an allocation."""

    key: ClaimKey
    #: The nodes on which it can be used; None for all nodes.
    reach: Reach | None
    #: Whether its devices failed, or did not become ready in time (binding conditions). Then no node can use it.
    binding_failed: bool = False


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class ClaimDemand:
    """The claims of a pod. Equal only to itself, but equal contents are the same object (`dra.demand.demand`)."""

    #: In the order of the pod's spec; `allocate` returns its results in this order.
    to_allocate: tuple[ClaimToAllocate, ...]
    allocated: tuple[AllocatedClaim, ...]
    #: Why no node is feasible; empty if a node may be.
    problem: str
    #: The requested extended resources that devices may provide, on nodes without them.
    extended: ExtendedNeeds | None
    #: The claims that an earlier attempt created for extended resources. No node is feasible until they are deleted.
    left_over: tuple[ClaimKey, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.to_allocate or self.allocated or self.problem or self.extended or self.left_over)

    def __repr__(self) -> str:
        return f"Demand({[each.name for each in self.to_allocate]}, allocated={len(self.allocated)}, {self.problem!r})"
