"""Which nodes a volume can be reached from, or made for: node selectors, by rows and in numbers.

Local volumes come by the thousand, each with an affinity for one node, so asking one after the other about all nodes
would cost their product. A selector that is one label with some values, which is what nearly all are, is counted by
value instead: one table a label, and one look at it a node.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from agent_scheduler.objects.wire import NodeSelector

from ..columns import Bools, Columns, Interns, Ints, Rows
from ..nodeinfo import NodeInfo
from ..nodeselection import match_selector


def reached(reach: NodeSelector | None, nodes: Columns, rows: Rows) -> Bools:
    """Which of `rows` the selector matches; None matches all."""
    if reach is None:
        return np.ones(rows.shape[0], dtype=np.bool_)
    return match_selector(reach, nodes, rows)


def reaches(reach: NodeSelector | None, node: NodeInfo) -> bool:
    """`reached` for one node, in a column or not."""
    if reach is None:
        return True
    simple = _one_label(reach)
    if simple is not None:
        key, values = simple
        return node.labels.get(key) in values
    alone = Columns(Interns())
    alone.reserve(1)
    alone.size = 1
    alone.nodes[0] = node
    return bool(match_selector(reach, alone, np.zeros(1, dtype=np.intp))[0])


def counted(reaches: Iterable[NodeSelector | None], nodes: Columns, rows: Rows) -> Ints:
    """How many of the selectors match each of `rows`."""
    found: Ints = np.zeros(rows.shape[0], dtype=np.int64)
    by_label: dict[str, dict[str, int]] = {}
    for reach in reaches:
        if reach is None:
            found += 1
            continue
        simple = _one_label(reach)
        if simple is None:
            found += match_selector(reach, nodes, rows)
            continue
        key, values = simple
        counts = by_label.setdefault(key, {})
        for value in set(values):
            counts[value] = counts.get(value, 0) + 1
    for key, counts in by_label.items():
        # The column first: it interns the values that are then looked up.
        column = nodes.label(key)[rows]
        table: Ints = np.zeros(len(nodes.interns.values) + 1, dtype=np.int64)
        for value, count in counts.items():
            number = nodes.interns.known_value(value)
            if number > 0:
                table[number] = count
        found += table[column]
    return found


def _one_label(reach: NodeSelector) -> tuple[str, list[str]] | None:
    """The label and its values, for a selector that says no more than that."""
    terms = reach.node_selector_terms or ()
    if len(terms) != 1 or terms[0].match_fields:
        return None
    requirements = terms[0].match_expressions or ()
    if len(requirements) != 1 or requirements[0].operator != "In":
        return None
    return requirements[0].key, requirements[0].values or []
