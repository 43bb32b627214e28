"""Topology spread constraints over columns: which nodes count for a constraint, and how many pods are in each domain.

What is shared by the two halves of PodTopologySpread. Rules are kube-scheduler's (`podtopologyspread`, `common.go`):
a node counts if it carries the keys of all constraints that are looked at together, and if the constraint's policies
do not leave it out; pods that are being deleted do not count, and a selector without requirements counts nobody.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from .columns import Bools, Columns, Ints
from .handle import Handle
from .nodeselection import match_labels, match_selector
from .podclass import PodClass
from .podcounts import PodsMatching
from .podterms import PodMatch, SpreadConstraint
from .tolerance import schedulable
from .topology import Domains

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"


class DefaultSpread(NamedTuple):
    """Constraints for pods that have none and that a service or a controller selects; their selector is of these."""

    constraints: tuple[SpreadConstraint, ...] = ()
    #: Whether nodes without a constraint's key are ranked by the others, rather than last.
    lenient: bool = False


NO_DEFAULTS: Final = DefaultSpread()
SYSTEM_DEFAULTS: Final = DefaultSpread(
    (SpreadConstraint(3, HOSTNAME, False, None), SpreadConstraint(5, ZONE, False, None)), lenient=True
)


class Counted(NamedTuple):
    """A constraint for one class."""

    constraint: SpreadConstraint
    #: Whom it counts; None: nobody.
    kind: PodsMatching | None
    #: Whether the pod will be counted itself.
    itself: bool


class Spreading:
    """The constraints of a class that are looked at together: those that refuse, or those that rank."""

    __slots__ = ("_admitted", "_pod", "counted", "lenient")

    def __init__(self, pod: PodClass, counted: tuple[Counted, ...], *, lenient: bool) -> None:
        self._pod = pod
        self.counted = counted
        self.lenient = lenient
        #: [taint list] whether the class tolerates it; grows with the interns, never changes an entry.
        self._admitted: Bools = np.zeros(0, dtype=np.bool_)

    def carriers(self, nodes: Columns) -> Bools:
        """[row] whether it has the keys of all constraints, or need not."""
        mask = nodes.present[: nodes.size].copy()
        if not self.lenient:
            for each in self.counted:
                mask &= nodes.label(each.constraint.topology_key)[: nodes.size] != 0
        return mask

    def included(self, each: Counted, carriers: Bools, nodes: Columns) -> Bools:
        """[row] which of the carriers count for one constraint."""
        pod, mask = self._pod, carriers
        if each.constraint.honors_affinity:
            if pod.node_selector:
                mask = mask & match_labels(pod.node_selector, nodes, nodes.all_rows())
            if pod.affinity is not None and pod.affinity.required is not None:
                mask = mask & match_selector(pod.affinity.required, nodes, nodes.all_rows())
        if each.constraint.honors_taints:
            mask = mask & self._admitting(nodes)[nodes.taints[: nodes.size]]
        return mask

    def _admitting(self, nodes: Columns) -> Bools:
        fresh = nodes.interns.taints[self._admitted.shape[0] :]
        if fresh:
            answers = [schedulable(taints, self._pod.tolerations) for taints in fresh]
            self._admitted = np.append(self._admitted, answers)
        return self._admitted


def matching(each: Counted, nodes: Columns) -> Ints:
    """[row] how many pods the constraint counts there."""
    if each.kind is None:
        return np.zeros(nodes.size, dtype=np.int64)
    return nodes.matching[each.kind][: nodes.size]


def sums(each: Counted, included: Bools, domains: Domains, nodes: Columns) -> Ints:
    """[domain] how many pods the constraint counts there."""
    return domains.sums(matching(each, nodes) * included)


def spreading(pod: PodClass, handle: Handle, defaults: DefaultSpread, *, required: bool) -> Spreading | None:
    """What the class has to look at, by its own constraints or by default; None where that is nothing."""
    if pod.spread:
        own = (each for each in pod.spread if each.required is required)
        counted = tuple(_counted(pod, each, handle) for each in own)
        return Spreading(pod, counted, lenient=False) if counted else None
    siblings = pod.siblings
    if siblings is None:
        return None
    match = PodMatch(frozenset((siblings.namespace,)), None, siblings.selector)
    counted = tuple(
        Counted(each, handle.count((match,), alive_only=True), siblings.itself)
        for each in defaults.constraints
        if each.required is required
    )
    return Spreading(pod, counted, lenient=defaults.lenient) if counted else None


def _counted(pod: PodClass, constraint: SpreadConstraint, handle: Handle) -> Counted:
    selector = constraint.selector
    if selector is None or not selector.requirements:
        return Counted(constraint, None, selector is not None)
    match = PodMatch(frozenset((pod.namespace,)), None, selector)
    return Counted(constraint, handle.count((match,), alive_only=True), selector.matches(pod.labels))
