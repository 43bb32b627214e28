"""Evaluates node selectors over columns, for all rows at once, by comparing numbers instead of strings.

Semantics are those of apimachinery's node selectors: terms are ORed, the requirements of a term are ANDed, an empty
term matches no node; a node without the label satisfies NotIn and DoesNotExist, and neither Gt nor Lt.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agent_scheduler.objects.wire import NodeSelector, NodeSelectorTerm, SelectorRequirement

from .columns import NODE_NAME, Bools, Columns, Ints, Rows
from .interns import Interns
from .nodeinfo import NodeInfo
from .podspec import parse_int
from .reach import Reach


def match_labels(labels: Mapping[str, str], nodes: Columns, rows: Rows) -> Bools:
    """Return for each of `rows` whether the node has all of `labels`."""
    mask = np.ones(rows.shape[0], dtype=np.bool_)
    for key, value in labels.items():
        mask &= nodes.label(key)[rows] == nodes.interns.known_value(value)
    return mask


def match_selector(selector: NodeSelector, nodes: Columns, rows: Rows) -> Bools:
    """Return for each of `rows` whether at least one term matches the node."""
    mask = np.zeros(rows.shape[0], dtype=np.bool_)
    for term in selector.node_selector_terms or ():
        mask |= match_term(term, nodes, rows)
    return mask


def match_term(term: NodeSelectorTerm, nodes: Columns, rows: Rows) -> Bools:
    if not term.match_expressions and not term.match_fields:
        return np.zeros(rows.shape[0], dtype=np.bool_)
    mask = np.ones(rows.shape[0], dtype=np.bool_)
    for requirement in term.match_expressions or ():
        mask &= _match(requirement, nodes, rows)
    for requirement in term.match_fields or ():
        mask &= _match(requirement, nodes, rows, NODE_NAME)
    return mask


def _match(requirement: SelectorRequirement, nodes: Columns, rows: Rows, label: str = "") -> Bools:
    operator, label = requirement.operator, label or requirement.key
    values = nodes.label(label)[rows]
    has: Bools = values != 0
    if operator == "Exists":
        return has
    if operator == "DoesNotExist":
        return ~has
    if operator in ("In", "NotIn"):
        wanted = [nodes.interns.known_value(value) for value in requirement.values or ()]
        found: Bools = values == wanted[0] if len(wanted) == 1 else np.isin(values, wanted)
        return found if operator == "In" else ~found
    bound = parse_int((requirement.values or [""])[0])
    assert bound is not None, "checked when the class was compiled"
    numbers, are = nodes.derive(("numbers", label), lambda: _numbers(label, nodes))
    compared: Bools = numbers[rows] > bound if operator == "Gt" else numbers[rows] < bound
    return compared & are[rows]


def _numbers(label: str, nodes: Columns) -> tuple[Ints, Bools]:
    """Return [row] the value of a label as a number, and whether it is one."""
    distinct, where = np.unique(nodes.label(label)[: nodes.size], return_inverse=True)
    parsed = [parse_int(nodes.interns.values[each - 1]) if each else None for each in distinct.tolist()]
    numbers: Ints = np.array([each or 0 for each in parsed], dtype=np.int64)
    are: Bools = np.array([each is not None for each in parsed], dtype=np.bool_)
    return numbers[where], are[where]


def reached(reach: Reach | None, nodes: Columns, rows: Rows) -> Bools:
    """Return for each of `rows` whether `reach` includes the node; None includes all nodes."""
    if reach is None:
        return np.ones(rows.shape[0], dtype=np.bool_)
    return match_selector(reach.selector, nodes, rows)


def reaches(reach: Reach | None, node: NodeInfo) -> bool:
    """Return whether `reach` includes a node, which need not have a row."""
    if reach is None:
        return True
    if reach.key:
        return node.labels.get(reach.key) in reach.values
    alone = Columns(Interns())
    alone.reserve(1)
    alone.size = 1
    alone.nodes[0] = node
    return bool(match_selector(reach.selector, alone, np.zeros(1, dtype=np.intp))[0])
