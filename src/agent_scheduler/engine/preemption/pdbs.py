"""PodDisruptionBudgets (PDBs): which evictions would violate one.

A PDB is a hint to preemption, not a bar: nodes where fewer are violated are preferred, and pods whose eviction would
violate one are the first to be reprieved. Rules are kube-scheduler's (`filterPodsWithPDBViolation`): a PDB without
requirements covers nothing, a pod without labels is covered by none, and a pod that the PDB's status names among the
disrupted was counted by the API server already.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_scheduler.objects.selecting import PodDisruptionBudget

from ..state.indexes import drop_entry
from ..state.labelselector import LabelSelector, label_selector
from ..state.podinfo import PodInfo
from ..state.podspec import SpecError
from ..state.records import Record, identity


class PDB(Record, frozen=True, kw_only=True, eq=False):
    """One PDB at one version."""

    #: None covers nothing: there is no selector, it is empty, or it cannot be read.
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
    """Never raises: kube-scheduler, too, passes over a selector that cannot be read."""
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


class PDBs:
    """Owner of the PDBs as last seen."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, PDB]] = {}
        #: Rises whenever an answer may have changed.
        self.version = 0

    def set(self, found: PDB) -> None:
        self.version += 1
        self._by_namespace.setdefault(found.namespace, {})[found.name] = found

    def delete(self, namespace: str, name: str) -> None:
        self.version += 1
        drop_entry(self._by_namespace, namespace, name)

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def violating(self, pods: Sequence[PodInfo]) -> frozenset[str]:
        """UIDs of those pods whose eviction some PDB no longer allows, if all of `pods` go in their order."""
        if not self._by_namespace:
            return frozenset()
        pdbs_allowed: dict[PDB, int] = {}
        violating = set()
        for pod in pods:
            for each in self._by_namespace.get(pod.namespace, {}).values():
                if each.covers(pod):
                    pdbs_allowed[each] = pdbs_allowed.get(each, each.disruptions_allowed) - 1
                    if pdbs_allowed[each] < 0:
                        violating.add(pod.uid)
        return frozenset(violating)
