"""Topology spread constraints over columns: the nodes that count for a constraint, and the pods in each domain.

Shared by the two halves of PodTopologySpread. Rules are kube-scheduler's (`podtopologyspread`, `common.go`): a node
counts if it has the keys of all constraints that are evaluated together, and if the constraint's policies include it;
pods that are being deleted do not count, and a selector without requirements counts no pod.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..framework.handle import Handle
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.nodeselection import match_labels, match_selector
from ..state.podclass import PodClass
from ..state.podcounts import PodsMatching
from ..state.podterms import PodMatch, SpreadConstraint
from .tolerance import schedulable
from .topology import Domains

Floats = NDArray[np.float64]

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"


class DefaultSpread(NamedTuple):
    """Constraints for pods without their own that a service or a controller selects. Their selector is its."""

    constraints: tuple[SpreadConstraint, ...] = ()
    #: Whether nodes without a constraint's key are ranked by the others, rather than last.
    lenient: bool = False


SYSTEM_DEFAULTS: Final = DefaultSpread(
    (SpreadConstraint(3, HOSTNAME, False, None), SpreadConstraint(5, ZONE, False, None)), lenient=True
)


class CountedConstraint(NamedTuple):
    """A constraint for one class."""

    constraint: SpreadConstraint
    #: The pods that it counts; None for none.
    kind: PodsMatching | None
    #: Whether the pod itself will be counted.
    itself: bool


class Layout(NamedTuple):
    """The domains of one constraint on the current nodes; 0 is none."""

    #: The domains of all nodes.
    all: Domains
    #: The domains of nodes that count; 0 for the others.
    counted: Domains
    #: Domains with a node that counts: their numbers, or all from 1 on.
    known: Rows | slice
    #: The number of these domains.
    number: int

    def sums(self, each: CountedConstraint, nodes: Columns) -> Ints:
        """Return [domain] the number of pods that the constraint counts there. Valid until the next change."""
        return self.counted.sums(matching(each, nodes), nodes.counted)

    def facets(self, each: CountedConstraint, nodes: Columns) -> tuple[Ints, ...]:
        """Return facets as `Domains.facets`; no pods are counted on nodes that do not count."""
        if each.kind is None:
            return (self.all.marks(),)
        facets = self.all.facets(nodes.matching[each.kind])
        return facets if len(facets) == 1 else (*facets, self.counted.marks())


class Spreading:
    """The constraints of a class that are evaluated together: those that refuse, or those that rank."""

    __slots__ = ("_keys", "_pod", "counted", "lenient")

    def __init__(self, pod: PodClass, counted: tuple[CountedConstraint, ...], *, lenient: bool) -> None:
        self._pod = pod
        self._keys = () if lenient else tuple(each.constraint.topology_key for each in counted)
        self.counted = counted
        self.lenient = lenient

    def carriers(self, nodes: Columns) -> Bools:
        """Return [row] whether the node has the keys of all constraints, or need not."""
        return nodes.derive(("carriers", self._keys), lambda: self._carriers(nodes))

    def _carriers(self, nodes: Columns) -> Bools:
        mask = nodes.present[: nodes.size].copy()
        for key in self._keys:
            mask &= nodes.label(key)[: nodes.size] != 0
        return mask

    def layout(self, each: CountedConstraint, nodes: Columns) -> Layout:
        constraint, pod = each.constraint, self._pod
        chooses = constraint.honors_affinity and (pod.node_selector or (pod.affinity and pod.affinity.required))
        # Classes whose policies exclude nothing share one layout.
        whose = pod if chooses or constraint.honors_taints else None
        key = (
            "layout",
            whose,
            constraint.honors_affinity,
            constraint.honors_taints,
            constraint.topology_key,
            self._keys,
        )
        return nodes.derive(key, lambda: self._layout(constraint, nodes))

    def _layout(self, constraint: SpreadConstraint, nodes: Columns) -> Layout:
        every = Domains.along(constraint.topology_key, nodes)
        of = every.of
        counted = np.where(self._included(constraint, nodes), of, 0)
        rows = np.bincount(counted)
        rows[:1] = 0
        span = int(of.max(initial=0)) + 1
        known = np.flatnonzero(rows)
        number = known.shape[0]
        return Layout(every, Domains(counted, span), known if number < span - 1 else slice(1, None), number)

    def _included(self, constraint: SpreadConstraint, nodes: Columns) -> Bools:
        """Return [row] whether a carrier counts for one constraint."""
        pod, mask = self._pod, self.carriers(nodes)
        if constraint.honors_affinity:
            if pod.node_selector:
                mask = mask & match_labels(pod.node_selector, nodes, nodes.all_rows())
            if pod.affinity is not None and pod.affinity.required is not None:
                mask = mask & match_selector(pod.affinity.required, nodes, nodes.all_rows())
        if constraint.honors_taints:
            ids = nodes.taints[: nodes.size]  # Read first because reading may intern taints.
            admitted = [schedulable(taints, pod.tolerations) for taints in nodes.interns.taints]
            mask = mask & np.array(admitted)[ids]
        return mask


def matching(each: CountedConstraint, nodes: Columns) -> Ints:
    """Return [row] the number of pods that the constraint counts there."""
    if each.kind is None:
        return nodes.derive("nobody", lambda: np.zeros(nodes.capacity, dtype=np.int64))
    return nodes.matching[each.kind]


def spreading(pod: PodClass, handle: Handle, defaults: DefaultSpread, *, required: bool) -> Spreading | None:
    """Return the class's own or default constraints of a sort; None without any."""
    if pod.spread:
        own = (each for each in pod.spread if each.required is required)
        counted = tuple(_counted(pod, each, handle) for each in own)
        return Spreading(pod, counted, lenient=False) if counted else None
    siblings = pod.siblings
    if siblings is None:
        return None
    match = PodMatch(frozenset((siblings.namespace,)), None, siblings.selector)
    counted = tuple(
        CountedConstraint(each, handle.count((match,), alive_only=True), siblings.itself)
        for each in defaults.constraints
        if each.required is required
    )
    return Spreading(pod, counted, lenient=defaults.lenient) if counted else None


def _counted(pod: PodClass, constraint: SpreadConstraint, handle: Handle) -> CountedConstraint:
    selector = constraint.selector
    if selector is None or not selector.requirements:
        return CountedConstraint(constraint, None, selector is not None)
    match = PodMatch(frozenset((pod.namespace,)), None, selector)
    return CountedConstraint(constraint, handle.count((match,), alive_only=True), selector.matches(pod.labels))
