"""The budget of one decision, in units of work that do not depend on the machine.

A unit is the evaluation of one scheduling constraint (`state.podconstraints`) for one placed pod or for `_NODES` nodes.
A decision is one step of the event loop. So a pod whose decision would exceed the budget is not decided on: it is
refused on every node, and its condition and event give the reason. It is tried again after a change of the pod, and
when it has waited for long. Pods with few constraints are always decided on.
"""

from __future__ import annotations

from typing import Final

from ..ledger import Ledger
from ..state.podclass import PodClass
from ..state.podconstraints import CONSTRAINTS
from ..state.podterms import NO_TERMS

#: The units of a decision.
DECISION: Final = 100_000
#: The number of nodes for which a constraint is evaluated in the time of one pod: nodes are in arrays.
_NODES: Final = 8
#: The units of the dry runs of preemption for a pod. A unit is one constraint for one node without one of its pods.
DRY_RUNS: Final = 2_000
#: The number of constraints that a pod may have whatever the size of the cluster.
ALWAYS: Final = 16
#: The maximum number of constraints of all classes whose views are kept.
KEPT: Final = 4_096


def excess(pod: PodClass, ledger: Ledger) -> str:
    """Return why a decision on the class would exceed the budget; empty if it would not."""
    if pod.constraints <= ALWAYS:
        return ""
    nodes = len(ledger.rows)
    pods = len(ledger.placements) if pod.spread or pod.terms is not NO_TERMS else 0
    each = nodes // _NODES + pods
    if pod.constraints * each <= DECISION:
        return ""
    among = f"{nodes} nodes and {pods} pods" if pods else f"{nodes} nodes"
    return (
        f"the pod has {pod.constraints} scheduling constraints, and a decision among {among} would take too long; "
        f"allowed: at most {max(ALWAYS, DECISION // each)} {CONSTRAINTS}"
    )
