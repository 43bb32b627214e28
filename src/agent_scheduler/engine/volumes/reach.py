"""Which nodes a volume can be reached from, or made for: node selectors, by rows and in numbers.

Local volumes come by the thousand, each with an affinity for one node, so asking one after the other about all nodes
would cost their product. A selector that is one label with some values, which is what nearly all are, is looked up by
value instead: `Shelf` is built once, and a node then costs one look a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from agent_scheduler.objects.wire import NodeSelector

from ..columns import Bools, Columns, Interns, Ints, Rows
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


class Shelf:
    """Many reaches, by the labels that they ask for. Immutable; knows the reaches by their positions."""

    __slots__ = ("_by_label", "_everywhere", "_others")

    def __init__(self, reaches: Iterable[Reach | None]) -> None:
        self._everywhere: list[int] = []
        #: Label -> value -> positions.
        self._by_label: dict[str, dict[str, list[int]]] = {}
        self._others: list[tuple[int, Reach]] = []
        for position, reach in enumerate(reaches):
            if reach is None:
                self._everywhere.append(position)
            elif reach.key:
                by_value = self._by_label.setdefault(reach.key, {})
                for value in reach.values:
                    by_value.setdefault(value, []).append(position)
            else:
                self._others.append((position, reach))

    def counts(self, nodes: Columns, rows: Rows) -> Ints:
        """How many of the reaches each of `rows` is in."""
        found: Ints = np.full(rows.shape[0], len(self._everywhere), dtype=np.int64)
        for _, reach in self._others:
            found += match_selector(reach.selector, nodes, rows)
        for key, by_value in self._by_label.items():
            # The column first: it interns the values that are then looked up.
            column = nodes.label(key)[rows]
            table: Ints = np.zeros(len(nodes.interns.values) + 1, dtype=np.int64)
            known = nodes.interns.known_value
            for value, positions in by_value.items():
                number = known(value)
                if number > 0:
                    table[number] = len(positions)
            found += table[column]
        return found

    def at(self, node: NodeInfo) -> Sequence[int]:
        """The positions of the reaches that the node is in, in order."""
        found = [*self._everywhere, *(position for position, reach in self._others if reaches(reach, node))]
        for key, by_value in self._by_label.items():
            found += by_value.get(node.labels.get(key, ""), ()) if key in node.labels else ()
        found.sort()
        return found
