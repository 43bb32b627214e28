"""What a plan of shards looks at in a node."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from agent_scheduler.objects import wire

from ..state.nodeinfo import NodeInfo, node_info
from ..state.requests import Amounts

_READY = "Ready"


class NodeFacts(Struct, frozen=True, gc=False, kw_only=True):
    """One node at one resourceVersion. Two that are equal make no difference to a plan."""

    name: str
    labels: Mapping[str, str] = {}
    #: In the ledger's units, each at most its `NODE_LIMIT` (`engine.state.requests`).
    allocatable: Amounts = {}
    #: Whether its spec says unschedulable.
    cordoned: bool = False
    #: Whether its condition Ready is True; a node that has none yet is not.
    ready: bool = True


def node_facts(node: wire.Node | NodeInfo) -> NodeFacts:
    """Never raises: a quantity that cannot be read counts as none."""
    info = node if isinstance(node, NodeInfo) else node_info(node)
    return NodeFacts(
        name=info.name,
        labels=info.labels,
        allocatable=info.allocatable,
        cordoned=info.unschedulable,
        ready=info.conditions.get(_READY) == "True",
    )
