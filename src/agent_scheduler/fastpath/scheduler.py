"""The complete fast path: watches in, decisions, binds out.

    reflectors ──> Cluster ──> SchedulingQueue ──> Feed ──> N Workers ──> Binder ──> API server
                      └──────> Ledger <── snapshot ───┘         └─ FailureHandler ──> conditions, events

It has two independent parts: `watch` keeps the informer caches, also in a standby, so that a new leader starts warm;
`schedule` decides and writes, and runs only while this process may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

# np.unique and sometimes np.isin import it on first use, which would be in a cycle: 10 ms and more.
import numpy.ma  # noqa: F401

from agent_scheduler.binding.background import Background
from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.bound_pods import BoundPodExplainer
from agent_scheduler.binding.calls import Calls
from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.history import History
from agent_scheduler.binding.messages import Messages
from agent_scheduler.binding.plugin_writes import PluginWrites
from agent_scheduler.binding.prebind import PreBinder
from agent_scheduler.binding.preemption import Preemption, PreemptionCalls
from agent_scheduler.binding.queue_admission import ALWAYS, Election, Never, QueueAdmission
from agent_scheduler.binding.queue_gate import QueueGate
from agent_scheduler.binding.runtime import Runtime
from agent_scheduler.cluster.cluster import Cluster, KnownPods
from agent_scheduler.cluster.gang_choice import GangChoice
from agent_scheduler.cluster.groups import Groups, count_in
from agent_scheduler.cluster.resource_claims import ResourceClaims
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.cluster.storage import Storage
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.framework.plugin import PreEnqueue, Profile
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.queueing.record import NullRecorder, QueueRecorder
from agent_scheduler.engine.shards.claims import ShardingMode
from agent_scheduler.telemetry.observers import MetricsObserver
from kube_client.informers import Informers, Kind
from kube_client.retry import REAL, Timing
from kube_client.transport import Transport

from .checking import SelfCheck
from .explaining import Explainer
from .gang_waits import GangWaits
from .gangs import GangCycle
from .handlers import DecisionHandlers
from .listening import Left, PodChanges
from .outside import OutsideShard
from .rules import Rules
from .settings import FastPathSettings
from .shard import SchedulerShard
from .strangers import Strangers
from .watching import Watching
from .worker import DecisionRules, Feed, Worker, WorkerPool

#: The longest interval between flushes of the unschedulable pool, regardless of deadlines.
_FLUSH_SECONDS = 30.0
_SHORTEST_PAUSE = 0.005


def _unrecorded(uid: str, node_name: str) -> None:
    """Do nothing with a pod that no longer waits."""


class Receivers(NamedTuple):
    """The receivers of a scheduler's reports."""

    observer: MetricsObserver
    #: Receives the queue's reports.
    recorder: QueueRecorder = NullRecorder()
    #: Receives pods that no longer wait.
    left: Left = _unrecorded


class FastPath:
    """One scheduler, from its watches to its binds. Its constructor lists all parts, each made after those it needs."""

    def __init__(
        self,
        settings: FastPathSettings,
        *,
        transport: Transport,
        receivers: Receivers,
        timing: Timing = REAL,
        groups: Groups | None = None,
        turn: Election = ALWAYS,
    ) -> None:
        """Build the fast path. `transport` is for all short requests; watches use their own connections in it.

        `groups` are kept from the same watches, if there is a batch scheduler. `turn` tells when gates of queues may be
        removed, if the settings allow it.
        """
        # Ways in and out: conditions and events have writers and limits of their own.
        self._messages = Messages(settings.messages, transport=transport, observer=receivers.observer, timing=timing)
        messenger = self._messages.messenger
        receivers.observer.handling.tell_by(self._messages.recorder)
        runtime = Runtime(transport=transport, timing=timing, observer=receivers.observer, messenger=messenger)

        # Books: what the cluster has, what pods take, and which pods wait.
        known = KnownPods()
        ledger = Ledger(settings.usage, GangChoice(known, groups))
        devices = Devices(ledger.touch)
        self.history = History(timing.clock)
        self._gang_waits = GangWaits(known, ledger, messenger, timing)
        rules = self._rules = Rules(settings, ledger, devices, known.groups, self._gang_waits)
        feed, self._deadline_moved = Feed(), asyncio.Event()
        queue: SchedulingQueue = SchedulingQueue(
            clock=timing.clock,
            hint_maps={name: profile.hint_map() for name, profile in rules.profiles.items()},
            pre_enqueue=rules.pre_enqueue(rules.profiles, None),
            settings=settings.queue,
            signals=QueueSignals(ready=feed.wake, deadline_moved=self._deadline_moved.set),
            recorder=receivers.recorder,
            is_pending=known.waits,
        )
        self._queue_gate = QueueGate(ledger.usage, queue, messenger, self._gang_waits.lacks)
        cluster = Cluster(
            known=known,
            ledger=ledger,
            devices=devices,
            queue=queue,
            listener=PodChanges(known, messenger, self.history, ledger.usage, receivers.left),
            observer=receivers.observer,
            counts_others=settings.sharding is not ShardingMode.NONE,
        )
        snapshot = Snapshot(ledger, cluster.handle)
        state = SharedState(
            cluster=cluster,
            snapshot=snapshot,
            nominations=Nominations(queue.nominator, ledger, snapshot, rules.profile),
            storage=Storage(cluster.catalogue, cluster.events),
            claims=ResourceClaims(devices, cluster.events),
        )
        self.ledger, self.cluster, self.queue, self.snapshot = ledger, cluster, queue, snapshot
        self.storage, self.claims = state.storage, state.claims

        # Watches.
        self._watching = Watching(runtime, state, rules, groups)
        informers = self._informers = self._watching.informers
        self.pdbs = self._watching.pdbs

        # The nodes that may be used: None for both unless nodes are shared, for `outside` by hard limits.
        self.shard = _shard(state, rules, informers)

        # Writes: binds, claims and evictions.
        self._calls = Calls(
            transport,
            rate=settings.binds,
            policy=settings.bind_policy,
            timing=timing,
            annotations=ledger.bound_with,
            may_bind_to=None if self.shard is None else self.shard.may_bind_to,
        )
        background = Background()
        self.evict = self._calls.evict
        self.writes = PluginWrites(
            runtime,
            state,
            calls=self._calls,
            background=background,
            caught_up=lambda version: informers.catch_up("ResourceClaim", version),
        )
        self.outside = _outside(state, rules, self.writes, timing)

        # What a decision leads to: a bind, another attempt, or evictions.
        failures = FailureHandler(
            queue=queue,
            messenger=messenger,
            observer=receivers.observer,
            history=self.history,
            usage=ledger.usage,
            outside=self.outside,
        )
        prebind = PreBinder(
            runtime,
            cluster,
            profile_of=rules.profile,
            writes=self.writes,
            patch=self._calls.patch,
            background=background,
        )
        self.binder = Binder(settings.binder, runtime, state, binds=self._calls.binds, prebind=prebind, wake=feed.wake)
        self.preemption = Preemption(
            runtime,
            state,
            calls=PreemptionCalls(
                evict=self._calls.evict,
                deallocate=self.writes.claims.deallocate,
                caught_up=lambda: informers.catch_up("Pod"),
            ),
            pdbs=self.pdbs,
            gate=rules.gate,
            profiles=rules.profiles,
        )
        handlers = DecisionHandlers(binder=self.binder, failures=failures, preemption=self.preemption)

        # Decisions.
        views = rules.views(rules.profiles, snapshot)
        self._gangs = GangCycle(
            views[-1], runtime, state, writes=self.writes, handlers=handlers, waits=self._gang_waits
        )
        decides = DecisionRules(views, settings.candidates, settings.workers)
        self._workers = [
            Worker(index, decides, runtime, state, handlers=handlers, gangs=self._gangs, shard=self.shard)
            for index in range(settings.workers)
        ]
        self._pool = WorkerPool(
            self._workers, queue=queue, feed=feed, binder=self.binder, clock=timing.clock, search=devices.budget
        )

        # Queues of capacity, whose changes wake pods and remove gates.
        ledger.usage.events.active_changed.connect(self._set_gates)
        ledger.usage.events.room.connect(queue.activate)
        if groups is not None:
            count_in(ledger.usage, groups)
        self._admission = QueueAdmission(
            settings.admission,
            runtime,
            cluster,
            cleanups=rules.cleanups,
            written=partial(informers.written, "Pod"),
            turn=turn if settings.removes_gates else Never(),
        )

        # Beside decisions: reports and answers to questions.
        self._timing = timing
        self._strangers = Strangers(cluster, messenger, timing)
        self.bound_pods = BoundPodExplainer(cluster, snapshot, self.binder.past, timing.text)
        self.explainer = Explainer(state, rules, self.history, self.bound_pods, timing)
        self.selfcheck = SelfCheck(
            runtime, state, informers=informers, binder=self.binder, views=lambda: self._workers[0].views
        )

    def profile(self, name: str) -> Profile:
        """Return the current profile of this name for this cluster; also of the other scheduler."""
        return self._rules.profile(name)

    @property
    def settings(self) -> FastPathSettings:
        """The current settings."""
        return self._rules.settings

    def reconfigure(self, settings: FastPathSettings) -> None:
        """Switch to other settings between cycles.

        These are profiles, candidates, conflict policy, backoff, urgent retries and rates; others stay as at the start.
        Pods with a decision are bound accordingly; rejected pods are tried again. Pods of removed profiles are
        released, those of new ones are accepted. If a plugin or setting raises, nothing has changed.
        """
        rules = self._rules
        # Everything that can fail comes first.
        profiles, beside = rules.seeing(settings.profiles), rules.seeing(settings.beside)
        hint_maps = {name: profile.hint_map() for name, profile in profiles.items()}
        pre_enqueue, views = self._pre_enqueue(profiles), rules.views(profiles, self.snapshot)
        self.queue.reconfigure(hint_maps=hint_maps, pre_enqueue=pre_enqueue, settings=settings.queue)
        self.cluster.release([name for name in rules.profiles if name not in profiles])
        self.cluster.take_on(profiles)
        self._gangs.reconfigure(views[-1])
        if self.outside is not None:
            self.outside.reconfigure({**beside, **profiles})
        for worker in self._workers:
            worker.reconfigure(DecisionRules(views, settings.candidates, len(self._workers)))
        self.binder.reconfigure(settings.policy, adapts=not settings.binds.qps)
        self._calls.set_rate(settings.binds)
        self._messages.set_rates(settings.status_writes, settings.events)
        self.preemption.reconfigure(profiles)
        rules.adopt(settings, profiles, beside)
        self._watching.read_for(profiles)

    def _set_gates(self) -> None:
        """Handle the first queue or the removal of the last one: gates are checked only in between."""
        rules = self._rules
        self.queue.reconfigure(
            hint_maps={name: profile.hint_map() for name, profile in rules.profiles.items()},
            pre_enqueue=self._pre_enqueue(rules.profiles),
            settings=rules.settings.queue,
        )

    def _pre_enqueue(self, profiles: Mapping[str, Profile]) -> Mapping[str, Sequence[PreEnqueue]]:
        return self._rules.pre_enqueue(profiles, self._queue_gate if self.ledger.usage.room.active else None)

    # ---- the informers

    async def watch(self) -> None:
        """Keep the caches until cancelled."""
        await self._informers.run()

    async def synced(self) -> None:
        """Return once everything that existed at the start has been seen. Raises InputsRefused: see `Informers`."""
        await self._informers.synced()
        # The first refresh copies and compares all nodes, which would delay the first pod in a large cluster.
        self.snapshot.refresh()
        _ = self.snapshot.capacity_classes

    async def renew(self) -> None:
        """Fill the caches again, except for the kinds in `behind` afterwards. Needs `watch`. Raises NotListed."""
        await self._informers.renew()

    @property
    def behind(self) -> Mapping[str, str]:
        """Kinds whose state is older than the last `renew`, with the reason."""
        return self._informers.behind

    @property
    def is_synced(self) -> bool:
        return self._informers.is_synced

    @property
    def absent(self) -> Sequence[Kind]:
        """Kinds that a plugin needs and the API server does not serve; the plugin sees no objects."""
        return self._informers.absent

    @property
    def problem(self) -> str:
        """The reason why kinds are not listed yet; empty if it is unknown."""
        return self._informers.problem

    @property
    def missing(self) -> Sequence[str]:
        """Kinds that are not listed yet."""
        return self._informers.missing

    @property
    def stale(self) -> Sequence[str]:
        """Kinds without news from the API server for too long."""
        return self._informers.stale

    # ---- decisions and writes

    async def schedule(self) -> None:
        """Decide and bind until `stop` is called, or until cancelled. Needs `synced`.

        Cancelling stops all writes immediately; unanswered requests are left to the next leader's watch.
        """
        async with asyncio.TaskGroup() as tasks:
            parts = [self.binder, self.preemption, self._admission, self._strangers, *self._messages.writers]
            running = [tasks.create_task(each.run()) for each in parts]
            running.append(tasks.create_task(self._gang_waits.run(self.queue)))
            running.append(tasks.create_task(self._flush()))
            if self.outside is not None:
                running.append(tasks.create_task(self.outside.run()))
            await tasks.create_task(self._pool.run())
            await self.binder.drained()
            for writer in self._messages.writers:
                await writer.drain(self._grace)
            for task in running:
                task.cancel()

    #: Seconds for writing conditions and events after the last bind; set by `stop`.
    _grace = 0.0

    def stop(self, *, grace: float) -> None:
        """Accept no new pod; `schedule` returns when all binds in progress have ended."""
        self._grace = grace
        self.queue.close()

    async def _flush(self) -> None:
        """Move pods out of backoff and the unschedulable pool in time, and wake pods for deferred events.

        It works in portions, so that other tasks run in between.
        """
        while True:
            self._deadline_moved.clear()
            deadline = self.queue.next_deadline()
            pause = _FLUSH_SECONDS if deadline is None else deadline - self._timing.clock()
            with suppress(TimeoutError):
                # The deadline may move forward meanwhile. The lower bound lets other tasks run when one is overdue.
                async with asyncio.timeout(min(max(pause, _SHORTEST_PAUSE), _FLUSH_SECONDS)):
                    await self._deadline_moved.wait()
            self.queue.flush_backoff()
            self.queue.flush_unschedulable_leftovers()
            self.queue.go_on()
            self.history.expire()
            self.binder.past.expire()


def _shard(state: SharedState, rules: Rules, informers: Informers) -> SchedulerShard | None:
    """Return the shard; None if nodes are not shared."""
    if rules.settings.sharding is ShardingMode.NONE:
        return None
    return SchedulerShard(
        rules.settings.sharding,
        rules.membership,
        ledger=state.cluster.ledger,
        events=state.cluster.events,
        caught_up=lambda version: informers.catch_up("Pod", version),
    )


def _outside(state: SharedState, rules: Rules, writes: PluginWrites, timing: Timing) -> OutsideShard | None:
    """Return the nodes outside the shard; None if all nodes may be used."""
    if rules.settings.sharding is not ShardingMode.HARD:
        return None
    return OutsideShard(
        state.cluster,
        {**rules.beside, **rules.profiles},
        rules.membership,
        shard=rules.settings.shard,
        writes=writes,
        timing=timing,
    )
