"""Keeps NodeShards as the plan of the cluster's nodes has them.

    watches ─> planner, store, settings ─> [something changed ─> a moment later, or the period has passed]
            ─> plan ─> writes, in an order that keeps every node in one shard at most ─> store

While it leads, it alone decides what its shards desire: what is written into them by hand is written over, and one
that is deleted is made again. What is planned from is what was written last, so a plan that is carried out stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent_scheduler.cluster.informers import Informers
from agent_scheduler.cluster.kinds import Kind
from agent_scheduler.engine.shards.plan import Plan
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.settings import PlanSettings
from agent_scheduler.kube.reflector import WatchTimes
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.kube.transport import Transport
from agent_scheduler.kube.watch_events import Change
from agent_scheduler.objects.config_map import ConfigMap, config_maps
from agent_scheduler.objects.shard import NODE_SHARDS
from agent_scheduler.shards.holders import Holders

from .configuration import Effective, ShardingSettings, without
from .reports import Reports, shard_reference
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
from .writes import Result, Writer, next_step

#: Seconds from a change to the plan that sees it, so that changes which come together cost one plan and one write.
DEBOUNCE = 0.2
#: Seconds until what could not be done is tried again, and until shards that are to go are looked at again.
RETRY = 5.0

#: Where the ConfigMap is by default, as Volcano has it.
NAMESPACE = "volcano-system"
CONFIG_MAP = "volcano-sharding-configmap"
#: The least that a lease of a scheduler is taken to be good for, in seconds.
LEASE_DURATION = 15.0

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """`flags` hold without a ConfigMap; the other names say where the ConfigMap is, and the schedulers' leases."""

    flags: ShardingSettings
    namespace: str = NAMESPACE
    config_map: str = CONFIG_MAP
    lease_namespace: str = "kube-system"
    #: Seconds for which a request may still be carried out that got no answer: our own, and those of the scheduler of a
    #: shard which is to go, after its lease has ended.
    fence: float = 60.0
    debounce: float = DEBOUNCE
    retry: float = RETRY
    watch_times: WatchTimes = field(default_factory=WatchTimes)


class ShardingController:
    """Run `watch` all the time, and `lead`, once, while this process may write."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        transport: Transport,
        reports: Reports,
        timing: Timing = REAL,
    ) -> None:
        self._settings = settings
        self.reports = reports
        self._timing = timing
        self.effective = Effective(settings.flags, namespace=settings.namespace, name=settings.config_map)
        self._planner = Planner(settings.flags.plan)
        self._store = ShardStore()
        self._writer = Writer(transport, self._store, fence=settings.fence, timing=timing)
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
        #: Whether the API server has no such kind as NodeShard.
        self.is_kind_missing = False
        self._informers = Informers(
            self._kinds(), transport=transport, times=settings.watch_times, timing=timing, observer=self
        )
        #: Shards whose state in the store the planner does not have yet.
        self._dirty: set[str] = set()
        #: What the planner takes to be in each shard of ours: what was found at the start, or written last.
        self._current: dict[str, frozenset[str]] = {}
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        #: What the last plan said; None before the first.
        self.plan: Plan | None = None

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
            # Without the kind there is nothing to wait for; `is_kind_missing` keeps us from making any.
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
        """Returns once all that existed at the start has been seen."""
        await self._informers.synced()
        if self.effective.start():
            self.reports.started(self.effective)

    @property
    def is_synced(self) -> bool:
        return self._informers.is_synced

    @property
    def stale(self) -> list[str]:
        """Kinds whose watch has received nothing from the API server for too long."""
        return self._informers.stale

    @property
    def missing(self) -> list[str]:
        """Kinds that it cannot do without, and that the API server does not have."""
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
        # Nodes must not be given by what is known without that change.
        raise error

    def _nodes_changed(self, is_told: bool) -> None:
        """Whether a plan can tell the difference."""
        settings = self.effective.settings
        if is_told and settings is not None and settings.event_trigger:
            self._wake.set()

    def _shard_changed(self, name: str, is_news: bool) -> None:
        # A changed status is no reason to plan.
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
        """`lead` returns after the write that is under way."""
        self._stopping.set()
        self._wake.set()

    async def lead(self) -> None:
        """Plan and write until `stop` was called, or until cancelled. Needs `synced`."""
        # The leader before this one writes no more, so what is listed from now on has all that it wrote.
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
        """Wait for a change, at most `pause` seconds, and then for those that come with it."""
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
        """Read shards that the watch may never deliver. Whether one of them has changed."""
        news = set()
        for shard in self._store.unwatched:
            await self._writer.look(shard)
            if self._store.get(shard.name) != shard:
                news.add(shard.name)
        self._dirty |= news
        return bool(news)

    async def _sync(self) -> float:
        """Plan, and write what is different. Gives the seconds after which to do so again without a change."""
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
        """Configured shards whose objects are not ours."""
        found = {
            shard.name: shard_reference(shard.name, shard.uid)
            for name in plan.names
            if (shard := self._store.get(name)) is not None and not shard.ours
        }
        self.reports.foreign(found)
        return frozenset(found)

    def _update_planner(self, configured: tuple[str, ...]) -> None:
        """What the store has come to know since the last time."""
        dirty, self._dirty = self._dirty, set()
        for name in sorted(dirty):
            shard = self._store.get(name)
            self._planner.set_foreign(name, shard.desired if shard is not None and not shard.ours else ())
            if shard is not None and shard.ours:
                # Later it is what we wrote that counts, not what another client has made of it.
                if name not in self._current:
                    self._set_current(name, shard.desired)
            elif shard is not None or name not in configured:
                self._set_current(name, None)

    def _set_current(self, name: str, nodes: frozenset[str] | None) -> None:
        """None: there is no such shard of ours."""
        if nodes is None:
            if self._current.pop(name, None) is not None:
                self._planner.set_current(name, ())
        else:
            self._current[name] = nodes
            self._planner.set_current(name, nodes)

    async def _write(self, names: tuple[str, ...], plan: Plan | None) -> bool:
        """Whether all is as it should be. Shards of ours that are not among `names` are emptied."""
        wanted: dict[str, frozenset[str]] = {}
        leaving = [shard.name for shard in self._store if shard.ours and shard.name not in names]
        # One that may still be made is made empty: until it is there, or cannot come, no shard gets its nodes.
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
                # The shard that has what they should get could not be written, or is not ours.
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
            if written.result is Result.CONFLICT and self._store.get(step.shard) is not before:
                # Decided anew at once, on what is there now. If that cannot be read, there is nothing to decide on.
                self._dirty.add(step.shard)
                self._wake.set()
        return is_done

    async def _retire(self, configured: frozenset[str]) -> bool:
        """Delete shards of ours that the configuration no longer has, when they may go. Whether any is left."""
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
