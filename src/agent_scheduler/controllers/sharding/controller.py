"""Maintains NodeShards according to the plan of the cluster's nodes.

    watches ─> planner, store, settings ─> the key, after the debounce or when the period has passed
            ─> plan ─> writes, in an order that keeps every node in at most one shard ─> store

While it leads, only this controller decides its shards' desired nodes: other clients' changes are overwritten, and a
deleted shard is recreated. A plan starts from the nodes that were written last, so an executed plan is stable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final

from agent_scheduler.controllers.reconciling import CreationReceiver, KeyQueue, Reconciled
from agent_scheduler.engine.shards.plan import ShardPlan
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.settings import PlanSettings
from agent_scheduler.objects.config_map import ConfigMap, config_maps
from agent_scheduler.objects.shard import KIND, NODE_SHARDS, NodeShard
from agent_scheduler.shards.holders import Holders
from kube_client.informers import Kind
from kube_client.retry import Timing
from kube_client.transport import Transport

from .configuration import EffectiveSettings, ShardingSettings, without
from .reports import ShardingReports, shard_reference
from .retiring import Retirement
from .store import ShardStore, shard_of
from .watching import NODES, ON_NODES, PODS, pod_reader, read_config_map, read_node, read_shard, set_node, set_pod
from .writes import ShardWriter, WriteOutcome, next_step

#: Seconds between a change and its plan, so that changes in that time cost one plan and one write.
DEBOUNCE = 0.2
#: Seconds until a failed write is retried, and between checks of shards that are to be deleted.
RETRY = 5.0

#: The default place of the ConfigMap, as in Volcano.
NAMESPACE = "volcano-system"
CONFIG_MAP = "volcano-sharding-configmap"
#: The minimum duration in seconds that a scheduler's lease is assumed to have.
LEASE_DURATION = 15.0

_NOTHING: Final[frozenset[str]] = frozenset()
#: The key.
_PLAN: Final = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The settings; `flags` apply without a ConfigMap, the names locate the ConfigMap and the schedulers' leases."""

    flags: ShardingSettings
    namespace: str = NAMESPACE
    config_map: str = CONFIG_MAP
    lease_namespace: str = "kube-system"
    #: Seconds for which a request without a response may still be carried out: our own, and those of the scheduler of a
    #: shard to delete, after its lease has ended.
    fence: float = 60.0
    debounce: float = DEBOUNCE
    retry: float = RETRY


class ShardingController:
    """A `Reconciler` with one key for all shards, since a node must leave one shard before another gets it."""

    name = "sharding"
    workers = 1
    #: Each write has its own limit (`writes.PATIENCE`), so that one that fails does not prevent the others.
    patience = math.inf
    needs: tuple[str, ...] = (KIND,)

    def __init__(
        self, settings: ControllerSettings, *, transport: Transport, reports: ShardingReports, timing: Timing
    ) -> None:
        self.settle = settings.debounce
        self._settings = settings
        self.reports = reports
        self._timing = timing
        self._put: KeyQueue = lambda _key, _seconds=None, /: None
        self._learn: CreationReceiver = lambda _kind, _made, /: True
        self._absent: Set[str] = frozenset()
        self.effective = EffectiveSettings(settings.flags, namespace=settings.namespace, name=settings.config_map)
        self._planner = Planner(settings.flags.plan)
        self._store = ShardStore()
        self._writer = ShardWriter(transport, self._store, learn=self._learned, fence=settings.fence, timing=timing)
        self._retirement = Retirement(
            Holders(
                transport,
                namespace=settings.lease_namespace,
                lease_duration=LEASE_DURATION,
                fence=settings.fence,
                timing=timing,
            ),
            clock=timing.clock,
        )
        #: Shards whose state in the store the planner has not received yet.
        self._dirty: set[str] = set()
        #: The nodes in each of our shards according to the planner: found at the start, or written last.
        self._current: dict[str, frozenset[str]] = {}
        #: The last plan; None before the first.
        self.plan: ShardPlan | None = None

    # ---- watches

    def kinds(self, put: KeyQueue, learn: CreationReceiver, absent: Set[str]) -> list[Kind]:
        self._put, self._learn, self._absent = put, learn, absent
        settings, planner, pods = self._settings, self._planner, pod_reader()
        return [
            Kind(
                "Node",
                NODES,
                read_node,
                lambda node: self._nodes_changed(set_node(planner, node)),
                lambda node: self._nodes_changed(planner.delete_node(node.name)),
                vital=True,
            ),
            Kind(
                "Pod",
                PODS,
                pods,
                lambda pod: self._nodes_changed(set_pod(planner, pod)),
                lambda pod: self._nodes_changed(planner.delete_pod(pod.uid)),
                query=ON_NODES,
                read_event=pods.read_event,
                vital=True,
            ),
            # While the kind is missing, the first list is not waited for, and nothing is written (`_sync`).
            Kind(
                KIND,
                NODE_SHARDS,
                read_shard,
                lambda found: self._shard_changed(found.name, self._store.set(shard_of(found))),
                lambda found: self._shard_changed(found.name, self._store.delete(shard_of(found))),
                optional=True,
                vital=True,
            ),
            Kind(
                "ConfigMap",
                config_maps(settings.namespace),
                read_config_map,
                self._set_configuration,
                self._delete_configuration,
                query={"fieldSelector": f"metadata.name={settings.config_map}"},
                vital=True,
            ),
        ]

    def all_keys(self) -> list[str]:
        self.reports.is_leading = True
        if self.effective.problem:
            self.reports.still_refused(self.effective)
        self._dirty.update(shard.name for shard in self._store)
        return [_PLAN]

    def start(self) -> None:
        """Apply the flags if the first list had no ConfigMap."""
        if self.effective.start():
            self.reports.started(self.effective)

    def _learned(self, found: NodeShard) -> bool:
        return self._learn(KIND, found)

    def _nodes_changed(self, is_told: bool) -> None:
        """Wake the planner if the change can affect a plan."""
        settings = self.effective.settings
        if is_told and settings is not None and settings.event_trigger:
            self._put(_PLAN)

    def _shard_changed(self, name: str, is_news: bool) -> None:
        # A changed status does not affect a plan.
        if is_news:
            self._dirty.add(name)
            self._put(_PLAN)

    def _set_configuration(self, found: ConfigMap) -> None:
        self.reports.configured(self.effective, self.effective.take(found))
        self._put(_PLAN)

    def _delete_configuration(self, _: ConfigMap) -> None:
        self.reports.configuration_gone(self.effective)
        self._put(_PLAN)

    # ---- what is done

    def about(self, key: str) -> Reconciled | None:
        """Return None: a plan is of all nodes and shards."""

    async def reconcile(self, key: str, wanted: Callable[[], bool]) -> bool:
        self._put(key, await self._sync(wanted))
        return True

    async def _sync(self, wanted: Callable[[], bool]) -> float:
        """Plan, and write the differences. Returns the seconds until the next call if nothing changes."""
        settings = self.effective.settings
        if settings is None:
            return self._settings.flags.sync_period
        if KIND in self._absent:
            self.reports.kind_missing()
            return self._settings.retry
        blocked = self._blocked(settings.plan)
        usable = without(settings.plan, blocked)
        self._update_planner(settings.plan.names)
        if usable is not None:
            if usable != self._planner.settings:
                self._planner.reconfigure(usable)
            began = self._timing.clock()
            self.plan = self._planner.plan()
            self.reports.planned(self._timing.clock() - began, dict(self.plan.short))
        names = () if usable is None else usable.names
        is_done = await self._write(names, self.plan if names else None, wanted)
        is_waiting = await self._retire(frozenset(settings.plan.names), wanted)
        return settings.sync_period if is_done and not is_waiting else min(self._settings.retry, settings.sync_period)

    def _blocked(self, plan: PlanSettings) -> frozenset[str]:
        """Return the configured shards whose objects are not ours."""
        found = {
            shard.name: shard_reference(shard.name, shard.uid)
            for name in plan.names
            if (shard := self._store.get(name)) is not None and not shard.ours
        }
        self.reports.foreign(found)
        return frozenset(found)

    def _update_planner(self, configured: tuple[str, ...]) -> None:
        """Pass the store's changes since the last call to the planner."""
        dirty, self._dirty = self._dirty, set()
        for name in sorted(dirty):
            shard = self._store.get(name)
            self._planner.set_foreign(name, shard.desired if shard is not None and not shard.ours else ())
            if shard is not None and shard.ours:
                # Later, the nodes that we wrote count, not other clients' changes.
                if name not in self._current:
                    self._set_current(name, shard.desired)
            elif shard is not None or name not in configured:
                self._set_current(name, None)

    def _set_current(self, name: str, nodes: frozenset[str] | None) -> None:
        """Set the nodes of our shard; None if it does not exist."""
        if nodes is None:
            if self._current.pop(name, None) is not None:
                self._planner.set_current(name, ())
        else:
            self._current[name] = nodes
            self._planner.set_current(name, nodes)

    async def _write(self, names: tuple[str, ...], plan: ShardPlan | None, wanted: Callable[[], bool]) -> bool:
        """Write the shards. Returns whether all are as desired. Our shards that are not in `names` are emptied."""
        desired: dict[str, frozenset[str]] = {}
        leaving = [shard.name for shard in self._store if shard.ours and shard.name not in names]
        # A shard whose creation may still be carried out is created empty; until it exists, or cannot, no shard gets
        # its nodes.
        unconfirmed = self._store.unconfirmed(self._timing.clock())
        leaving += [name for name in unconfirmed if self._store.get(name) is None and name not in names]
        for name in (*leaving, *names):
            nodes = _NOTHING
            if plan is not None and name in names:
                nodes = frozenset(plan.desired[name]) if name in plan.changed else self._current.get(name, _NOTHING)
            shard = self._store.get(name)
            if shard is None or (shard.desired is not nodes and shard.desired != nodes):
                desired[name] = nodes
        is_done = True
        while desired and wanted():
            held = {shard.name: shard.desired for shard in self._store}
            step = next_step(desired, held, unconfirmed)
            if step is None:
                # The shard that has their nodes could not be written, or is not ours.
                return False
            before = self._store.get(step.shard)
            written = await self._writer.put(step.shard, step.nodes)
            unconfirmed = self._store.unconfirmed(self._timing.clock())
            had = before.desired if before is not None else _NOTHING
            self.reports.written(
                shard_reference(step.shard, before.uid if before is not None else ""),
                written,
                added=len(step.nodes - had),
                removed=len(had - step.nodes),
            )
            if written.result.is_done:
                self._set_current(step.shard, step.nodes)
                if step.is_last:
                    del desired[step.shard]
                continue
            is_done = False
            del desired[step.shard]
            if written.is_absent:
                self.reports.kind_missing()
                return False
            if written.result is WriteOutcome.CONFLICT and self._store.get(step.shard) is not before:
                # Plan again immediately, from the current state. If it cannot be read, there is nothing to plan from.
                self._dirty.add(step.shard)
                self._put(_PLAN)
        return is_done

    async def _retire(self, configured: frozenset[str], wanted: Callable[[], bool]) -> bool:
        """Delete our shards that the configuration no longer has, when this is safe. Returns whether any is left."""
        going = [shard for shard in self._store if shard.ours and shard.name not in configured]
        self._retirement.only(going)
        left = False
        for shard in going:
            waits = shard.desired or not wanted() or self._writer.may_come_again(shard.name)
            if waits or not await self._retirement.may_go(shard):
                left = True
                continue
            written = await self._writer.delete(shard)
            self.reports.written(shard_reference(shard.name, shard.uid), written)
            if written.result.is_done:
                self._set_current(shard.name, None)
            else:
                left = True
        return left
