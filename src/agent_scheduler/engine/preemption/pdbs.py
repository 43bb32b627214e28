"""PodDisruptionBudgets (PDBs), and the evictions that would violate one.

A PDB is a preference of preemption, not a prohibition: nodes with fewer violations are preferred, and pods whose
eviction would violate one are the first to be reprieved. The rules are kube-scheduler's (`filterPodsWithPDBViolation`):
a PDB without requirements covers nothing, a pod without labels is covered by none, and a pod among the disrupted pods
of the PDB's status was already counted by the API server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent_scheduler.objects.selecting import PodDisruptionBudget
from apimachinery.labels import LabelSelector

from ..state.indexes import drop_entry
from ..state.labelselector import label_selector
from ..state.podinfo import PodInfo
from ..state.podspec import SpecError
from ..state.records import Record, identity

#: The requirements of PDBs that are compared with a pod. Evictions of a pod with more than one PDB are refused anyway.
MOST_REQUIREMENTS: Final = 256


class PDB(Record, frozen=True, kw_only=True, eq=False):
    """One PDB at one version."""

    #: None covers nothing: the selector is missing, empty or invalid.
    selector: LabelSelector | None
    disruptions_allowed: int
    #: Names of pods.
    disrupted_pods: frozenset[str]

    def covers(self, pod: PodInfo) -> bool:
        return (
            self.selector is not None
            and pod.namespace == self.namespace
            and bool(pod.labels)
            and self.selector.matches(pod.labels)
            and pod.name not in self.disrupted_pods
        )


def read_pdb(found: PodDisruptionBudget) -> PDB:
    """Decode a PDB. Never raises: an invalid selector is ignored, as in kube-scheduler."""
    try:
        selector = label_selector(found.spec.selector, "spec.selector")
    except SpecError:
        selector = None
    return PDB(
        **identity(found.metadata),
        selector=selector if selector is not None and selector.requirements else None,
        disruptions_allowed=found.status.disruptions_allowed,
        disrupted_pods=frozenset(found.status.disrupted_pods or ()),
    )


class _OfNamespace:
    """The PDBs of a namespace that cover a pod, indexed by a label that their pods must have."""

    def __init__(self) -> None:
        self.pdbs: dict[str, PDB] = {}
        #: (key, value) -> name -> PDB; None for those that no label determines.
        self._by_label: dict[tuple[str, str] | None, dict[str, PDB]] = {}

    def put(self, name: str, found: PDB | None) -> None:
        old = self.pdbs.pop(name, None)
        if old is not None and old.selector is not None:
            drop_entry(self._by_label, old.selector.pins, name)
        if found is not None:
            self.pdbs[name] = found
            if found.selector is not None:
                self._by_label.setdefault(found.selector.pins, {})[name] = found

    def candidates(self, pod: PodInfo) -> list[PDB] | None:
        """Return the PDBs that may cover a pod; None if they have too many requirements to be compared."""
        by_label = self._by_label
        labels = (None, *pod.labels.items())
        tables = [by_label[each] for each in labels if each in by_label]
        if sum(map(len, tables)) > MOST_REQUIREMENTS:
            return None
        found = [each for table in tables for each in table.values()]
        requirements = sum(len(each.selector.requirements) for each in found if each.selector is not None)
        return found if requirements <= MOST_REQUIREMENTS else None


class PDBs:
    """Owns the PDBs in their last known state."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, _OfNamespace] = {}
        #: Increases whenever an answer may have changed.
        self.version = 0

    def set(self, found: PDB) -> None:
        self.version += 1
        self._by_namespace.setdefault(found.namespace, _OfNamespace()).put(found.name, found)

    def delete(self, namespace: str, name: str) -> None:
        self.version += 1
        if (there := self._by_namespace.get(namespace)) is not None:
            there.put(name, None)
            if not there.pdbs:
                del self._by_namespace[namespace]

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def violating(self, pods: Sequence[PodInfo]) -> frozenset[str]:
        """Return the UIDs of pods whose eviction a PDB no longer allows if all of `pods` are evicted in order.

        A pod with PDBs beyond `MOST_REQUIREMENTS` is one of them.
        """
        if not self._by_namespace:
            return frozenset()
        pdbs_allowed: dict[PDB, int] = {}
        violating = set()
        for pod in pods:
            there = self._by_namespace.get(pod.namespace)
            candidates = there.candidates(pod) if there is not None and pod.labels else ()
            if candidates is None:
                violating.add(pod.uid)
                continue
            for each in candidates:
                if each.covers(pod):
                    pdbs_allowed[each] = pdbs_allowed.get(each, each.disruptions_allowed) - 1
                    if pdbs_allowed[each] < 0:
                        violating.add(pod.uid)
        return frozenset(violating)
