"""Maintains NodeShards according to the plan of the cluster's nodes.

    watches ─> planner, store, settings ─> [a change and the debounce, or the period has passed]
            ─> plan ─> writes, in an order that keeps every node in at most one shard ─> store

While it leads, only this controller decides its shards' desired nodes: other clients' changes are overwritten, and a
deleted shard is recreated. A plan starts from the nodes that were written last, so an executed plan is stable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent_scheduler.engine.shards.plan import ShardPlan
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.settings import PlanSettings
from agent_scheduler.objects.config_map import ConfigMap, config_maps
from agent_scheduler.objects.shard import NODE_SHARDS
from agent_scheduler.shards.holders import Holders
from kube_client.informers import Informers, Kind
from kube_client.reflector import WatchTimes
from kube_client.retry import REAL, Timing
from kube_client.transport import Transport
from kube_client.watch_events import Change

from .configuration import EffectiveSettings, ShardingSettings, without
from .reports import ShardingReports, shard_reference
from .retiring import Retirement
from .store import ShardStore, shard_of
from .watching import (
    NODES,
    ON_NODES,
    PODS,
    pod_reader,
    read_config_map,
    read_node,
    read_shard,
    set_node,
    set_pod,
)
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
    watch_times: WatchTimes = field(default_factory=WatchTimes)


class ShardingController:
    """A `Controller` for NodeShards: run `watch` at all times, and `lead`, once, while this process may write."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        transport: Transport,
        reports: ShardingReports,
        timing: Timing = REAL,
    ) -> None:
        self._settings = settings
        self.reports = reports
        self._timing = timing
        self.effective = EffectiveSettings(
            settings.flags, namespace=settings.namespace, name=settings.config_map
        )
        self._planner = Planner(settings.flags.plan)
        self._store = ShardStore()
        self._writer = ShardWriter(transport, self._store, fence=settings.fence, timing=timing)
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
        #: Whether the API server does not serve the kind NodeShard.
        self.is_kind_missing = False
        self._informers = Informers(
            self._kinds(), transport=transport, times=settings.watch_times, timing=timing, observer=self
        )
        #: Shards whose state in the store the planner has not received yet.
        self._dirty: set[str] = set()
        #: The nodes in each of our shards according to the planner: found at the start, or written last.
        self._current: dict[str, frozenset[str]] = {}
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        #: The last plan; None before the first.
        self.plan: ShardPlan | None = None

    # ---- watches

    def _kinds(self) -> tuple[Kind, ...]:
        settings, planner, pods = self._settings, self._planner, pod_reader()
        return (
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
            # If the kind is missing, `synced` must not wait for it; `is_kind_missing` prevents creations.
            Kind(
                "NodeShard",
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
        )

    async def watch(self) -> None:
        """Watch the cluster until cancelled."""
        await self._informers.run()

    async def synced(self) -> None:
        """Wait until all objects that existed at the start have been received."""
        await self._informers.synced()
        if self.effective.start():
            self.reports.started(self.effective)

    @property
    def is_synced(self) -> bool:
        return self._informers.is_synced

    @property
    def stale(self) -> list[str]:
        """The kinds whose watch has received nothing from the API server for too long."""
        return self._informers.stale

    @property
    def missing(self) -> list[str]:
        """The required kinds that the API server does not serve."""
        return ["NodeShard"] if self.is_kind_missing else []

    def watched(self, kind: str, what: str) -> None:
        if kind == "NodeShard" and what == "absent":
            self.is_kind_missing = True
        elif kind == "NodeShard" and what == "watch" and self.is_kind_missing:
            self.is_kind_missing = False
            self._wake.set()
        self.reports.watched(kind, what)

    def received(self, kind: str, changes: Sequence[Change[Any]], began: float) -> None:
        self.reports.received(kind, changes)

    def change_failed(self, kind: str, key: str, error: Exception) -> None:
        # Nodes must not be assigned on a state that lacks that change.
        raise error

    def _nodes_changed(self, is_told: bool) -> None:
        """Wake the planner if the change can affect a plan."""
        settings = self.effective.settings
        if is_told and settings is not None and settings.event_trigger:
            self._wake.set()

    def _shard_changed(self, name: str, is_news: bool) -> None:
        # A changed status does not affect a plan.
        if is_news:
            self._dirty.add(name)
            self._wake.set()

    def _set_configuration(self, found: ConfigMap) -> None:
        self.reports.configured(self.effective, self.effective.take(found))
        self._wake.set()

    def _delete_configuration(self, _: ConfigMap) -> None:
        self.reports.configuration_gone(self.effective)
        self._wake.set()

    # ---- what is done

    def stop(self) -> None:
        """Make `lead` return after the current write."""
        self._stopping.set()
        self._wake.set()

    async def lead(self) -> None:
        """Plan and write until `stop` is called, or until cancelled. Requires `synced`."""
        # The previous leader no longer writes, so the next lists have all its writes.
        await self._informers.renew()
        self.reports.is_leading = True
        try:
            if self.effective.problem:
                self.reports.still_refused(self.effective)
            self._dirty.update(shard.name for shard in self._store)
            while not self._stopping.is_set():
                self._wake.clear()
                pause = await self._sync()
                await self._wait(pause)
        finally:
            self.reports.is_leading = False

    async def _wait(self, pause: float) -> None:
        """Wait for a change, at most `pause` seconds, and then for further changes during the debounce."""
        ends = self._timing.clock() + pause
        while not self._wake.is_set():
            left = ends - self._timing.clock()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(
                    min(left, self._settings.retry) if self._store.unwatched else left
                ):
                    await self._wake.wait()
            except TimeoutError:
                if await self._refresh_unwatched():
                    return
        if not self._stopping.is_set():
            await self._timing.sleep(self._settings.debounce)

    async def _refresh_unwatched(self) -> bool:
        """Read the shards that the watch may never deliver. Returns whether any of them has changed."""
        news = set()
        for shard in self._store.unwatched:
            await self._writer.look(shard)
            if self._store.get(shard.name) != shard:
                news.add(shard.name)
        self._dirty |= news
        return bool(news)

    async def _sync(self) -> float:
        """Plan, and write the differences. Returns the seconds until the next call if nothing changes."""
        settings = self.effective.settings
        if settings is None:
            return self._settings.flags.sync_period
        if self.is_kind_missing:
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
        is_done = await self._write(names, self.plan if names else None)
        is_waiting = await self._retire(frozenset(settings.plan.names))
        return (
            settings.sync_period
            if is_done and not is_waiting
            else min(self._settings.retry, settings.sync_period)
        )

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

    async def _write(self, names: tuple[str, ...], plan: ShardPlan | None) -> bool:
        """Write the shards. Returns whether all are as desired. Our shards that are not in `names` are emptied."""
        wanted: dict[str, frozenset[str]] = {}
        leaving = [shard.name for shard in self._store if shard.ours and shard.name not in names]
        # A shard whose creation may still be carried out is created empty; until it exists, or cannot, no shard gets
        # its nodes.
        unconfirmed = self._store.unconfirmed(self._timing.clock())
        leaving += [name for name in unconfirmed if self._store.get(name) is None and name not in names]
        for name in (*leaving, *names):
            nodes = _NOTHING
            if plan is not None and name in names:
                nodes = (
                    frozenset(plan.desired[name])
                    if name in plan.changed
                    else self._current.get(name, _NOTHING)
                )
            shard = self._store.get(name)
            if shard is None or (shard.desired is not nodes and shard.desired != nodes):
                wanted[name] = nodes
        is_done = True
        while wanted and not self._stopping.is_set():
            held = {shard.name: shard.desired for shard in self._store}
            step = next_step(wanted, held, unconfirmed)
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
                    del wanted[step.shard]
                continue
            is_done = False
            del wanted[step.shard]
            if written.is_absent:
                self.reports.kind_missing()
                return False
            if written.result is WriteOutcome.CONFLICT and self._store.get(step.shard) is not before:
                # Plan again immediately, from the current state. If it cannot be read, there is nothing to plan from.
                self._dirty.add(step.shard)
                self._wake.set()
        return is_done

    async def _retire(self, configured: frozenset[str]) -> bool:
        """Delete our shards that the configuration no longer has, when this is safe. Returns whether any is left."""
        going = [shard for shard in self._store if shard.ours and shard.name not in configured]
        self._retirement.only(going)
        left = False
        for shard in going:
            waits = shard.desired or self._stopping.is_set() or self._writer.may_come_again(shard.name)
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
