"""Builds the deciding parts: the workers with their pool, preemption, gangs and the explainer."""

from __future__ import annotations

from collections.abc import Sequence

from agent_scheduler.binding.calls import Calls
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.plugin_writes import PluginWrites
from agent_scheduler.binding.preemption import Preemption
from agent_scheduler.kube.retry import Timing

from .explaining import Explainer
from .gangs import GangCycle
from .observer import FastPathObserver
from .shard import SchedulerShard
from .state import FastPathState
from .watching import Watching
from .worker import Views, Worker, WorkerPool
from .writing import Binding


def build_preemption(
    state: FastPathState,
    calls: Calls,
    writes: PluginWrites,
    watching: Watching,
    *,
    messenger: KubeMessenger,
    observer: FastPathObserver,
    timing: Timing,
) -> Preemption:
    return Preemption(
        cluster=state.cluster,
        snapshot=state.snapshot,
        pdbs=watching.pdbs,
        nominations=state.nominations,
        gate=state.rules.gate,
        evict=calls.evict,
        deallocate=writes.claims.deallocate,
        caught_up=lambda: watching.informers.catch_up("Pod"),
        messenger=messenger,
        observer=observer,
        timing=timing,
        profiles=state.rules.profiles,
    )


def build_gangs(
    state: FastPathState,
    binding: Binding,
    preemption: Preemption,
    views: Views,
    *,
    messenger: KubeMessenger,
    observer: FastPathObserver,
) -> GangCycle:
    return GangCycle(
        cluster=state.cluster,
        snapshot=state.snapshot,
        views=views[-1],
        writes=binding.writes,
        binder=binding.binder,
        failures=binding.failures,
        waits=state.gang_waits,
        preemption=preemption,
        messenger=messenger,
        observer=observer,
    )


def build_workers(
    state: FastPathState,
    binding: Binding,
    preemption: Preemption,
    shard: SchedulerShard | None,
    gangs: GangCycle,
    views: Views,
    *,
    observer: FastPathObserver,
    timing: Timing,
) -> list[Worker]:
    settings = state.rules.settings
    return [
        Worker(
            index,
            workers=settings.workers,
            cluster=state.cluster,
            snapshot=state.snapshot,
            views=views,
            binder=binding.binder,
            failures=binding.failures,
            candidates=settings.candidates,
            observer=observer,
            preemption=preemption,
            shard=shard,
            gangs=gangs,
            timing=timing,
        )
        for index in range(settings.workers)
    ]


def build_pool(
    workers: Sequence[Worker], state: FastPathState, binding: Binding, timing: Timing
) -> WorkerPool:
    return WorkerPool(
        workers,
        feed=state.feed,
        binder=binding.binder,
        clock=timing.clock,
        search=state.cluster.devices.budget,
    )


def build_explainer(state: FastPathState, timing: Timing) -> Explainer:
    rules = state.rules
    return Explainer(
        cluster=state.cluster,
        snapshot=state.snapshot,
        nominations=state.nominations,
        history=state.history,
        profiles=lambda: rules.profiles,
        patience=lambda: rules.settings.max_in_unschedulable,
        clock=timing.clock,
        now=timing.now,
    )
