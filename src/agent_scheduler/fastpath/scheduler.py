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

# np.unique and sometimes np.isin import it on first use, which would be in a cycle: 10 ms and more.
import numpy.ma  # noqa: F401

from agent_scheduler.binding.queue_admission import AlwaysElected, Election
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.cluster.kinds import Kind
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.queueing.record import QueueRecorder
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.kube.transport import Transport

from .checking import SelfCheck
from .deciding import build_explainer, build_gangs, build_pool, build_preemption, build_workers
from .observer import FastPathObserver
from .settings import FastPathSettings
from .state import Left, build_state
from .strangers import Strangers
from .watching import Watching, build_shard
from .writing import build_admission, build_binding, build_calls, build_messages

#: The longest interval between flushes of the unschedulable pool, regardless of deadlines.
_FLUSH_SECONDS = 30.0
_SHORTEST_PAUSE = 0.005


class FastPath:
    """One scheduler. `transport` is for all short requests; watches use their own connections in it."""

    def __init__(
        self,
        settings: FastPathSettings,
        *,
        transport: Transport,
        observer: FastPathObserver,
        recorder: QueueRecorder | None = None,
        timing: Timing = REAL,
        groups: Groups | None = None,
        gates: Election | None = None,
        left: Left | None = None,
    ) -> None:
        """Build the fast path. `groups` are kept from the same watches, if there is a batch scheduler.

        `gates` tells when gates of queues may be removed, by default always. `left` receives pods that no longer
        wait.
        """
        self._timing = timing
        self._messages = build_messages(settings, transport=transport, observer=observer, timing=timing)
        messenger = self._messages.messenger
        state = build_state(
            settings, messenger=messenger, observer=observer, recorder=recorder, timing=timing, left=left
        )
        self._rules, self._deadline_moved, self.history = state.rules, state.deadline_moved, state.history
        self._gang_waits = state.gang_waits
        self._strangers = Strangers(state.cluster, messenger, timing)
        self.ledger, self.cluster, self.queue = state.ledger, state.cluster, state.queue
        usage = state.ledger.usage
        usage.on_active, usage.on_room = self._set_gates, state.queue.activate
        if groups is not None:
            groups.count_in(usage)
        self.storage, self.claims, self.snapshot = state.storage, state.claims, state.snapshot
        self._watching = Watching(state, transport=transport, observer=observer, timing=timing, groups=groups)
        self._informers, self.pdbs = self._watching.informers, self._watching.pdbs
        #: None if nodes are not shared.
        self.shard = build_shard(state, self._informers)
        self._calls = build_calls(state, self.shard, transport=transport, timing=timing)
        binding = build_binding(
            state, self._calls, self._watching, messenger=messenger, observer=observer, timing=timing
        )
        self.binder, self.writes, self.evict = binding.binder, binding.writes, self._calls.evict
        #: None if all nodes may be used.
        self.outside = binding.outside
        self.preemption = build_preemption(
            state,
            self._calls,
            binding.writes,
            self._watching,
            messenger=messenger,
            observer=observer,
            timing=timing,
        )
        views = state.rules.views(state.rules.profiles, state.snapshot)
        self._gangs = build_gangs(
            state, binding, self.preemption, views, messenger=messenger, observer=observer
        )
        self._workers = build_workers(
            state, binding, self.preemption, self.shard, self._gangs, views, observer=observer, timing=timing
        )
        self._admission = build_admission(
            state,
            settings,
            groups,
            turn=gates or AlwaysElected(),
            transport=transport,
            messenger=messenger,
            observer=observer,
            timing=timing,
        )
        self._pool = build_pool(self._workers, state, binding, timing)
        self.explainer = build_explainer(state, timing)
        self.selfcheck = SelfCheck(
            informers=self._informers,
            cluster=self.cluster,
            snapshot=self.snapshot,
            binder=self.binder,
            views=lambda: self._workers[0].views,
            transport=transport,
            timing=timing,
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
        pre_enqueue, views = rules.pre_enqueue(profiles), rules.views(profiles, self.snapshot)
        self.queue.reconfigure(
            hint_maps=hint_maps,
            pre_enqueue=pre_enqueue,
            settings=settings.queue,
        )
        self.cluster.release([name for name in rules.profiles if name not in profiles])
        self.cluster.take_on(profiles)
        self._gangs.reconfigure(views[-1])
        if self.outside is not None:
            self.outside.reconfigure({**beside, **profiles})
        for worker in self._workers:
            worker.reconfigure(views=views, candidates=settings.candidates)
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
            pre_enqueue=rules.pre_enqueue(rules.profiles),
            settings=rules.settings.queue,
        )

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
            parts = [self.binder, self.preemption, self._admission, self._gang_waits, *self._messages.writers]
            running = [tasks.create_task(each.run()) for each in (*parts, self._strangers)]
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
