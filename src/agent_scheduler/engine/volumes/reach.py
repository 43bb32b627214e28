"""Which nodes a volume can be reached from, or made for: node selectors, for many nodes or for one.

Nearly all are one label with some values, which is told, so that many of them can be looked up by value (`shelves`).
"""

from __future__ import annotations

import msgspec
import numpy as np

from agent_scheduler.objects.wire import NodeSelector

from ..columns import Bools, Columns, Rows
from ..interns import Interns
from ..nodeinfo import NodeInfo
from ..nodeselection import match_selector


class Reach(msgspec.Struct, frozen=True, gc=False):
    """A node selector. `key` is the label, for one that says no more than which values a label may have."""

    selector: NodeSelector
    key: str
    values: frozenset[str]


def reach_of(selector: NodeSelector) -> Reach:
    terms = selector.node_selector_terms or ()
    if len(terms) == 1 and not terms[0].match_fields:
        requirements = terms[0].match_expressions or ()
        if len(requirements) == 1 and requirements[0].operator == "In":
            return Reach(selector, requirements[0].key, frozenset(requirements[0].values or ()))
    return Reach(selector, "", frozenset())


def reached(reach: Reach | None, nodes: Columns, rows: Rows) -> Bools:
    """Which of `rows` can reach it; None is for all."""
    if reach is None:
        return np.ones(rows.shape[0], dtype=np.bool_)
    return match_selector(reach.selector, nodes, rows)


def reaches(reach: Reach | None, node: NodeInfo) -> bool:
    """`reached` for one node, in a column or not."""
    if reach is None:
        return True
    if reach.key:
        return node.labels.get(reach.key) in reach.values
    alone = Columns(Interns())
    alone.reserve(1)
    alone.size = 1
    alone.nodes[0] = node
    return bool(match_selector(reach.selector, alone, np.zeros(1, dtype=np.intp))[0])
