"""What pods say of their resource claims, and what these mean to a decision: values, without what is known of devices.

A `Demand` says nothing about which claims these are, as long as they have no allocation: the pods of one template, each
with a claim of its own, have the same `Demand`, and so are one class. `dra.demand` makes it.
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
    #: None while the claim that is to be made of its template has not been made.
    claim: ClaimKey | None
    #: UID of the pod, for a claim that is made for it; empty for a claim that any pod may name.
    must_be_owned_by: str = ""


class PodRef(NamedTuple):
    """For words about the pod, and for claims that are reserved for it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class ClaimToAllocate(NamedTuple):
    """A claim without an allocation. `name` is what the pod calls it."""

    name: str
    spec: ClaimSpec


class AllocatedClaim(NamedTuple):
    """A claim that has an allocation."""

    key: ClaimKey
    #: None: it can be used anywhere.
    reach: Reach | None
    #: Whether its devices did not become ready, or not in time (binding conditions); it can be used nowhere.
    binding_failed: bool = False


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Demand:
    """Equal only to itself: equal contents are the same object (`dra.demand.demand`)."""

    #: In the order of the pod's spec; `allocate` answers in the same.
    to_allocate: tuple[ClaimToAllocate, ...]
    allocated: tuple[AllocatedClaim, ...]
    #: Why no node will do; empty if one might.
    problem: str
    #: Extended resources that the pod asks for and that devices may stand for, on nodes that lack them.
    extended: ExtendedNeeds | None
    #: Claims that an attempt before this one made for its extended resources. No node will do before they are gone.
    left_over: tuple[ClaimKey, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.to_allocate or self.allocated or self.problem or self.extended or self.left_over)

    def __repr__(self) -> str:
        return f"Demand({[each.name for each in self.to_allocate]}, allocated={len(self.allocated)}, {self.problem!r})"
