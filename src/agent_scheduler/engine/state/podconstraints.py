"""The number of scheduling constraints of a pod, and its limit.

Users determine this number, a request to the API server has room for thousands of constraints, and each costs time for
each node in a decision. So a pod with more than the limit is invalid: it is not placed, and its terms about other pods
do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from agent_scheduler.objects import wire

from .podspec import SpecError

#: The maximum number of constraints of a pod.
MOST: Final = 256
_SPREAD: Final = 3
#: The number of values of a requirement that cost as much as a constraint.
_VALUES: Final = 64
#: The constraints that are counted.
CONSTRAINTS: Final = (
    "labels, requirements, terms, tolerations, volumes and requested resources in nodeSelector, affinity, "
    "topologySpreadConstraints, tolerations, volumes and containers together; "
    "a topology spread constraint counts as 3, and each 64 values of a requirement as one more"
)


def check_number(counts: Mapping[str, int]) -> int:
    """Return the sum of the constraints. Raises `SpecError`, which names the field with most, if it is too large."""
    total = sum(counts.values())
    if total > MOST:
        field = max(counts, key=lambda name: counts[name])
        raise SpecError(
            f"{field}: {counts[field]} of the pod's {total} scheduling constraints are here; "
            f"allowed: at most {MOST} {CONSTRAINTS}"
        )
    return total


def of_affinity(affinity: wire.Affinity | None) -> int:
    """Return the number of requirements and terms; an empty term of node affinity counts as one requirement."""
    if affinity is None:
        return 0
    near, far, nodes = affinity.pod_affinity, affinity.pod_anti_affinity, affinity.node_affinity
    found = 0
    for terms in (near, far):
        if terms is not None:
            found += sum(map(_of_pod_term, terms.required or ()))
            found += sum(_of_pod_term(each.pod_affinity_term) for each in terms.preferred or ())
    if nodes is not None:
        required = nodes.required.node_selector_terms if nodes.required is not None else None
        preferred = [each.preference for each in nodes.preferred or ()]
        found += sum(max(1, _of_node_term(each)) for each in (*(required or ()), *preferred))
    return found


def of_spread(constraints: Iterable[wire.TopologySpreadConstraint]) -> int:
    """Return the number for topology spread constraints. Each counts as three, because it needs as many columns."""
    return sum(
        max(_SPREAD, of_selector(each.label_selector) + len(each.match_label_keys or ())) for each in constraints
    )


def _of_node_term(term: wire.NodeSelectorTerm) -> int:
    return _of_requirements(term.match_expressions) + _of_requirements(term.match_fields)


def _of_requirements(requirements: Sequence[wire.SelectorRequirement] | None) -> int:
    return sum(1 + len(each.values or ()) // _VALUES for each in requirements or ())


def _of_pod_term(term: wire.PodAffinityTerm) -> int:
    keys = len(term.match_label_keys or ()) + len(term.mismatch_label_keys or ())
    selectors = of_selector(term.label_selector) + of_selector(term.namespace_selector)
    return max(1, selectors + keys, len(term.namespaces or ()))


def of_selector(selector: wire.LabelSelector | None) -> int:
    """Return the number of labels and requirements of a selector."""
    if selector is None:
        return 0
    return len(selector.match_labels or ()) + _of_requirements(selector.match_expressions)
