"""The properties of a pod that a ResourceQuota depends on: its usage, and the scopes that include it.

The rule is that of Kubernetes' pod evaluator (`pkg/quota/v1/evaluator/core`): a quota counts a pod that is in all of
its scopes and satisfies all requirements of its scope selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from agent_scheduler.objects import wire
from agent_scheduler.objects.batch import QuotaPart, ResourceQuotaSpec, ScopeRequirement
from agent_scheduler.objects.workload import Requirements, TemplateContainer, TemplateSpec
from apimachinery.quantity import QuantityError, parse
from apimachinery.wire import Resources

from .podusage import quota_usage

#: Resource -> billionths of a unit.
Nanos = Mapping[str, int]

PRIORITY_CLASS: Final = "PriorityClass"
_EXISTS: Final = "Exists"

#: A pod without any of these has the QoS class BestEffort.
_MAKING_QUALITY: Final = tuple(
    f"{prefix}{name}" for name in ("cpu", "memory") for prefix in ("", "requests.", "limits.")
)

#: The scopes that are listed in the annotation `QUOTA_PARTS`.
_TOLD: Final = ("Terminating", "BestEffort", "CrossNamespacePodAffinity")

_parts = msgspec.json.Decoder(tuple[QuotaPart, ...])
_requirements = msgspec.json.Decoder(Requirements | None)
_resources = msgspec.json.Decoder(Resources | None)
_affinity = msgspec.json.Decoder(wire.Affinity | None)


class ScopeFacts(msgspec.Struct, frozen=True, gc=False):
    """The properties of a pod that scopes of quotas depend on."""

    #: Whether `activeDeadlineSeconds` is set.
    terminating: bool = False
    #: Whether it has no requests and limits of CPU and memory.
    best_effort: bool = False
    #: Empty for none; None if it is unknown, then no scope PriorityClass includes the pod.
    priority_class: str | None = ""
    #: Whether it has affinity terms about pods of other namespaces.
    crosses_namespaces: bool = False

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that include the pod, without the negated ones and PriorityClass."""
        return tuple(scope for scope in _TOLD if self._is_in(scope))

    def is_counted_by(self, quota: ResourceQuotaSpec) -> bool:
        selector = quota.scope_selector
        return all(map(self._is_in, quota.scopes or ())) and (
            selector is None or all(map(self._meets, selector.match_expressions or ()))
        )

    def _is_in(self, scope: str) -> bool:
        """Return whether a scope includes the pod; False for scopes of other objects, such as VolumeAttributesClass."""
        if scope == "Terminating":
            return self.terminating
        if scope == "NotTerminating":
            return not self.terminating
        if scope == "BestEffort":
            return self.best_effort
        if scope == "NotBestEffort":
            return not self.best_effort
        if scope == PRIORITY_CLASS:
            return bool(self.priority_class)
        return scope == "CrossNamespacePodAffinity" and self.crosses_namespaces

    def _meets(self, requirement: ScopeRequirement) -> bool:
        """Return whether the pod satisfies a requirement; scopes other than PriorityClass only have Exists."""
        if requirement.scope_name != PRIORITY_CLASS or requirement.operator == _EXISTS:
            return self._is_in(requirement.scope_name)
        if requirement.operator == "In":
            return bool(self.priority_class) and self.priority_class in (requirement.values or ())
        if requirement.operator == "NotIn":
            return self.priority_class is not None and self.priority_class not in (requirement.values or ())
        return requirement.operator == "DoesNotExist" and self.priority_class == ""


class QuotaUse(msgspec.Struct, frozen=True):
    """The usage of one pod, or of several pods with equal scopes."""

    scoped: ScopeFacts
    amounts: Nanos


def quota_use(spec: wire.PodSpec) -> QuotaUse:
    """Return the usage of one pod. Never raises: invalid fields, which the API server never stores, count as empty."""
    return _use(
        tuple(_written(spec.containers)),
        tuple(_written(spec.init_containers)),
        bytes(spec.overhead),
        bytes(spec.resources),
        bytes(spec.affinity),
        spec.priority_class_name,
        is_terminating(spec.active_deadline_seconds),
    )


def quota_parts(text: str) -> tuple[QuotaUse, ...]:
    """Parse the annotation `QUOTA_PARTS`; empty if it is invalid."""
    try:
        parts = _parts.decode(text) if text else ()
    except (msgspec.MsgspecError, RecursionError):
        return ()
    return tuple(
        QuotaUse(
            ScopeFacts(
                terminating="Terminating" in part.scopes,
                best_effort="BestEffort" in part.scopes,
                priority_class=part.priority_class_name,
                crosses_namespaces="CrossNamespacePodAffinity" in part.scopes,
            ),
            nanos(part.resources),
        )
        for part in parts
    )


def is_terminating(active_deadline_seconds: int | None) -> bool:
    return active_deadline_seconds is not None and active_deadline_seconds >= 0


def asks_for_quality(amounts: Nanos) -> bool:
    """Return whether a pod with this usage has another QoS class than BestEffort."""
    return any(amounts.get(name) for name in _MAKING_QUALITY)


def crosses_namespaces(affinity: wire.Affinity | None) -> bool:
    return affinity is not None and any(
        bool(term.namespaces) or term.namespace_selector is not None for term in _terms(affinity)
    )


def nanos(resources: Resources | None) -> dict[str, int]:
    """Convert quantities to billionths; invalid ones, which the API server never stores, are left out."""
    found = {}
    for resource, quantity in (resources or {}).items():
        try:
            found[resource] = parse(str(quantity)).nano
        except QuantityError:
            continue
    return found


_Container = tuple[str | None, bytes]


def _written(containers: Iterable[wire.Container] | None) -> Iterator[_Container]:
    return ((each.restart_policy, bytes(each.resources)) for each in containers or ())


@lru_cache(maxsize=4096)
def _use(
    containers: tuple[_Container, ...],
    inits: tuple[_Container, ...],
    overhead: bytes,
    whole: bytes,
    affinity: bytes,
    priority_class: str,
    terminating: bool,
) -> QuotaUse:
    """Compute the usage from all fields that it depends on, as written; pods of one template share a cache entry."""
    try:
        spec = TemplateSpec(
            containers=_read(containers),
            init_containers=_read(inits),
            overhead=_resources.decode(overhead) if overhead else None,
            resources=_requirements.decode(whole) if whole else None,
        )
        amounts = {name: amount.nano for name, amount in quota_usage(spec).items()}
        crosses = crosses_namespaces(_affinity.decode(affinity)) if affinity else False
    except (QuantityError, msgspec.MsgspecError, RecursionError):
        amounts, crosses = {}, False
    scoped = ScopeFacts(
        terminating=terminating,
        best_effort=not asks_for_quality(amounts),
        priority_class=priority_class,
        crosses_namespaces=crosses,
    )
    return QuotaUse(scoped, amounts)


def _read(containers: Iterable[_Container]) -> tuple[TemplateContainer, ...]:
    return tuple(
        TemplateContainer(
            restart_policy=restart_policy,
            resources=(_requirements.decode(resources) if resources else None) or Requirements(),
        )
        for restart_policy, resources in containers
    )


def _terms(affinity: wire.Affinity) -> Iterator[wire.PodAffinityTerm]:
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if each is not None:
            yield from each.required or ()
            yield from (weighted.pod_affinity_term for weighted in each.preferred or ())
