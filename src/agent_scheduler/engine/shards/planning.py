"""Which nodes each shard should have, worked out anew after each change at the price of what changed.

How a plan is made, by Volcano's rules, with additions:

1. Nodes that take no new pods are left out as the settings say, and nodes that a foreign shard wants are always.
2. Each shard in its turn, in the order of the settings, takes nodes that no earlier one took: those that pass all of
   its filters, the highest score first and by name where scores are equal, as far as its limits allow. It leaves as
   many nodes as the minimums of other shards need.
3. Shards that are short of their minimum take of the rest, in the same order, without their filters.
4. What is left goes to the shard that is named for it, as far as its limits allow.

A node that is in a shard by the shard's spec has a higher score there (`Stickiness.gain`) and passes its ranges by a
margin, so that it moves for a gain only. A plan that was carried out is not changed by planning again.

Utilisation is the sum of the requests of a node's active pods, as kube-scheduler counts them (`engine.requests`: with
init containers, sidecars and overhead), of what is allocatable, at most 1, rounded to hundredths. Volcano counts app
containers alone, against capacity.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..requests import Amounts
from .facts import NodeFacts
from .plan import Plan
from .settings import PlanSettings


class Planner:
    """Owner of what is known of nodes, pods and specs, for planning. Changes are taken note of at once and worked in by
    `plan`.

    Invariant, after `plan`: the plan equals that of a new planner which was told the same nodes, pods and specs.
    """

    def __init__(self, settings: PlanSettings) -> None:
        self._settings = settings

    @property
    def settings(self) -> PlanSettings:
        return self._settings

    def reconfigure(self, settings: PlanSettings) -> None:
        """Plan by these from now on. What is known of nodes, pods and specs stays."""
        raise NotImplementedError

    def set_node(self, node: NodeFacts) -> None:
        """A node is new, or is now as given. One that is equal to what was known costs next to nothing."""
        raise NotImplementedError

    def delete_node(self, name: str) -> None:
        """No error if it is not known. Its pods stay known until they are deleted, and count if it comes back."""
        raise NotImplementedError

    def set_pod(self, uid: str, node: str, requests: Amounts) -> None:
        """An active pod is on a node, or asks for something else now. The node need not be known yet; a pod on another
        node than before has moved. Who calls leaves out pods that have ended, and deletes those that come to end, and
        decides whether mirror pods count."""
        raise NotImplementedError

    def delete_pod(self, uid: str) -> None:
        """No error if it is not known."""
        raise NotImplementedError

    def set_current(self, shard: str, nodes: Iterable[str]) -> None:
        """What the spec of this NodeShard of ours says now, whole; empty if it is not there. It need not be one of the
        settings: the plan wants it empty then. Where two shards have a node, it is taken to be in the earlier one by
        the settings' order."""
        raise NotImplementedError

    def set_foreign(self, shard: str, nodes: Iterable[str]) -> None:
        """What a shard that is not ours wants: none of ours gets these. Empty if it is not there."""
        raise NotImplementedError

    def plan(self) -> Plan:
        """What should be. Costs what changed since the last time, and one look at all nodes for each shard in which
        that moves the line between those it takes and those it leaves."""
        raise NotImplementedError
