"""Which nodes each shard should have. What policies make of a node is worked out anew for nodes that changed only.

How a plan is made, by Volcano's rules, with additions:

1. Nodes that take no new pods are left out as the settings say, and nodes that a foreign shard wants are always.
2. Each shard in its turn, in the order of the settings, takes nodes that no earlier one took: those that pass all of
   its filters, the highest score first and by name where scores are equal, as far as its limits allow. It leaves as
   many nodes as the minimums of other shards need.
3. Shards that are short of their minimum take of the rest, in the same order, without their filters.
4. What is left goes to the shard that is named for it, as far as its limits allow.

If there are fewer nodes than all minimums together, an earlier shard has its own first.

A node that is in a shard by the shard's spec has a higher score there (`Stickiness.gain`) and passes its ranges by a
margin, so that it moves for a gain only. A plan that was carried out is not changed by planning again.

Utilisation is the sum of the requests of a node's active pods, as kube-scheduler counts them (`engine.state.requests`:
with init containers, sidecars and overhead), of what is allocatable, at most 1, rounded to hundredths. Volcano counts
app containers alone, against capacity.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .assignment import Assignment
from .node_columns import NodeColumns, rows_of
from .plan import Plan
from .settings import PlanSettings
from .specs import NO_SHARD, Specs


class Planner:
    """Owner of what is known of nodes, pods and specs, for planning. Changes are taken note of at once and worked in by
    `plan`.

    Invariant, after `plan`: the plan equals that of a new planner which was given the same nodes, pods and specs.
    """

    def __init__(self, settings: PlanSettings) -> None:
        self._columns = columns = NodeColumns()
        #: What is known of nodes and pods changes by these.
        self.set_node, self.delete_node = columns.set_node, columns.delete_node
        self.set_pod, self.delete_pod = columns.set_pod, columns.delete_pod
        self._specs = Specs()
        self._foreign: dict[str, frozenset[str]] = {}
        #: Rows of which a spec says something else than at the last plan.
        self._changed_specs: set[int] = set()
        self._last: Plan | None = None
        self._configure(settings)

    @property
    def settings(self) -> PlanSettings:
        return self._settings

    def reconfigure(self, settings: PlanSettings) -> None:
        """Plan by these from now on. What is known of nodes, pods and specs stays."""
        if settings != self._settings:
            self._configure(settings)

    def _configure(self, settings: PlanSettings) -> None:
        self._settings = settings
        self._specs.set_order(settings.names)
        numbers = [self._specs.number(name) for name in settings.names]
        self._assignment = Assignment(settings, numbers, self._columns)
        self._columns.set_columns(self._assignment.resources, self._assignment.marks)
        #: Whether the assignment knows of no row yet.
        self._fresh = True

    def set_current(self, shard: str, nodes: Iterable[str]) -> None:
        """What the spec of this NodeShard of ours says now, whole; empty if it is not there. It need not be one of the
        settings: the plan wants it empty then. Where two shards have a node, it is taken to be in the earlier one by
        the settings' order."""
        self._changed_specs.update(self._specs.update(shard, nodes, self._columns.row))

    def set_foreign(self, shard: str, nodes: Iterable[str]) -> None:
        """What a shard that is not ours wants: none of ours gets these. Empty if it is not there."""
        before, after = self._foreign.pop(shard, frozenset()), frozenset(nodes)
        if after:
            self._foreign[shard] = after
        if before != after:
            self._columns.set_foreign(shard, before - after, after - before)

    def plan(self) -> Plan:
        """What should be. Costs what changed since the last time, and one look at all nodes for each shard if anything
        has."""
        self._specs.merge(self._columns.capacity)
        self._assignment.grow(self._columns.capacity)
        self._columns.recheck(self._changed_specs)
        changed = self._columns.refresh(lambda row: self._specs.column.item(row) != NO_SHARD)
        changed[rows_of(self._changed_specs)] = True
        self._changed_specs = set()
        rows = np.arange(self._columns.size) if self._fresh else np.flatnonzero(changed)
        if self._last is None or self._fresh or rows.shape[0]:
            self._fresh = False
            self._assignment.update(rows, self._specs.column)
            self._last = Plan(self._settings, self._columns, self._specs, self._assignment)
        return self._last
