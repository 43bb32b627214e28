"""Node selectors of volumes and devices: the nodes that can reach one, or for which a volume can be provisioned.

Nearly all of them are one label with some values. `key` and `values` have these, so that many can be indexed by value.
"""

from __future__ import annotations

import msgspec

from agent_scheduler.objects.wire import NodeSelector


class Reach(msgspec.Struct, frozen=True, gc=False):
    """A node selector. If it only lists the values of one label, `key` is this label; otherwise `key` is empty."""

    selector: NodeSelector
    key: str
    values: frozenset[str]


def reach_of(selector: NodeSelector) -> Reach:
    """Return the reach of a selector."""
    terms = selector.node_selector_terms or ()
    if len(terms) == 1 and not terms[0].match_fields:
        requirements = terms[0].match_expressions or ()
        if len(requirements) == 1 and requirements[0].operator == "In":
            return Reach(selector, requirements[0].key, frozenset(requirements[0].values or ()))
    return Reach(selector, "", frozenset())
