"""From which nodes a volume or a device can be reached, or for which a volume can be made: node selectors.

Nearly all are one label with some values, which `key` and `values` say, so that many of them can be looked up by value.
"""

from __future__ import annotations

import msgspec

from agent_scheduler.objects.wire import NodeSelector


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
