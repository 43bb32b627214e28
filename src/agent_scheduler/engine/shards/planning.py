"""The planner: the desired nodes of each shard. Policies are evaluated again only for changed nodes.

A plan follows Volcano's rules, with additions:

1. Nodes that accept no new pods are left out as the settings require, and nodes that a foreign shard wants always are.
2. Each shard in turn, in the order of the settings, takes nodes that no earlier one took: those that pass all of its
   filters, by falling score and then by name, within its limits. It leaves the nodes that the minimums of other shards
   need.
3. Shards below their minimum take from the rest, in the same order, without their filters.
4. The remaining nodes go to the leftover shard, within its limits.

If there are fewer nodes than all minimums together, earlier shards fill theirs first.

A node that is in a shard by the shard's spec has a higher score there (`Stickiness.gain`) and may be outside of its
ranges by a margin, so that it moves only for a gain. Planning again does not change a plan that was applied.

Utilization is the sum of the requests of a node's active pods, as kube-scheduler counts them (`engine.state.requests`:
with init containers, sidecars and overhead), divided by allocatable, at most 1, rounded to hundredths. Volcano counts
app containers alone, against capacity.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .assignment import Assignment
from .node_columns import NodeColumns, rows_of
from .plan import ShardPlan
from .settings import PlanSettings
from .specs import NO_SHARD, Specs


class Planner:
    """Owns the known nodes, pods and specs for planning. Changes are recorded immediately and applied by `plan`.

    Invariant, after `plan`: the plan equals that of a new planner with the same nodes, pods and specs.
    """

    def __init__(self, settings: PlanSettings) -> None:
        self._columns = columns = NodeColumns()
        #: These methods change the known nodes and pods.
        self.set_node, self.delete_node = columns.set_node, columns.delete_node
        self.set_pod, self.delete_pod = columns.set_pod, columns.delete_pod
        self._specs = Specs()
        self._foreign: dict[str, frozenset[str]] = {}
        #: Rows whose spec has changed since the last plan.
        self._changed_specs: set[int] = set()
        self._last: ShardPlan | None = None
        self._configure(settings)

    @property
    def settings(self) -> PlanSettings:
        return self._settings

    def reconfigure(self, settings: PlanSettings) -> None:
        """Replace the settings. The known nodes, pods and specs stay."""
        if settings != self._settings:
            self._configure(settings)

    def _configure(self, settings: PlanSettings) -> None:
        self._settings = settings
        self._specs.set_order(settings.names)
        numbers = [self._specs.number(name) for name in settings.names]
        self._assignment = Assignment(settings, numbers, self._columns)
        self._columns.set_columns(self._assignment.resources, self._assignment.marks)
        #: Whether the assignment has evaluated no row yet.
        self._fresh = True

    def set_current(self, shard: str, nodes: Iterable[str]) -> None:
        """Store the whole spec of a NodeShard of ours; empty if it does not exist.

        The shard need not be one of the settings: the plan then wants it empty. If two shards have a node, it counts as
        in the earlier one by the settings' order.
        """
        self._changed_specs.update(self._specs.update(shard, nodes, self._columns.row))

    def set_foreign(self, shard: str, nodes: Iterable[str]) -> None:
        """Store the nodes that a shard of another owner wants, which none of ours gets. Empty if it does not exist."""
        before, after = self._foreign.pop(shard, frozenset()), frozenset(nodes)
        if after:
            self._foreign[shard] = after
        if before != after:
            self._columns.set_foreign(shard, before - after, after - before)

    def plan(self) -> ShardPlan:
        """Return the desired plan.

        Costs the changes since the last call, and a pass over all nodes for each shard if any.
        """
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
            self._last = ShardPlan(self._settings, self._columns, self._specs, self._assignment)
        return self._last
