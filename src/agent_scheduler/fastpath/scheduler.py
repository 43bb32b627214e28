"""The fast path assembled: watches in, decisions, binds out.

    reflectors ──> Cluster ──> SchedulingQueue ──> Feed ──> N Workers ──> Binder ──> API server
                      └──────> Ledger <── snapshot ───┘         └─ FailureHandler ──> conditions, events

Two halves with lives of their own: `watch` keeps the informer caches and runs in a standby too, so that a
new leader starts warm; `schedule` decides and writes, and runs only while this process may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

# np.unique and, at times, np.isin load it at their first use, which would be within a cycle: 10 ms and more.
import numpy.ma  # noqa: F401

from agent_scheduler.binding.queue_admission import Always, Turn
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

#: How often leftovers in the unschedulable pool are looked for at least, whatever the deadlines say.
_FLUSH_SECONDS = 30.0
_SHORTEST_PAUSE = 0.005


class FastPath:
    """One scheduler. `transport` for everything short; watches use connections of their own inside it."""

    def __init__(
        self,
        settings: FastPathSettings,
        *,
        transport: Transport,
        observer: FastPathObserver,
        recorder: QueueRecorder | None = None,
        timing: Timing = REAL,
        groups: Groups | None = None,
        gates: Turn | None = None,
        left: Left | None = None,
    ) -> None:
        """`groups` are kept from the same watches, where there is a batch scheduler beside. `gates`: when those of
        queues' capacity may be removed; by default always. `left` is told of pods that wait no more."""
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
        #: None where all nodes are this scheduler's.
        self.shard = build_shard(state, self._informers)
        self._calls = build_calls(state, self.shard, transport=transport, timing=timing)
        binding = build_binding(
            state, self._calls, self._watching, messenger=messenger, observer=observer, timing=timing
        )
        self.binder, self.writes, self.evict = binding.binder, binding.writes, self._calls.evict
        #: None where all nodes may be used.
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
            turn=gates or Always(),
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
        """The profile of this name as it is in force, on this cluster; also of a scheduler beside."""
        return self._rules.profile(name)

    @property
    def settings(self) -> FastPathSettings:
        """Those in force."""
        return self._rules.settings

    def reconfigure(self, settings: FastPathSettings) -> None:
        """Go on with other settings, between cycles: profiles, candidates, conflict policy, backoff, urgent retries
        and rates. All else stays as it was at the start.

        Pods that were decided already are bound as they were decided; pods that were refused are tried again. Pods of
        a profile that is no longer there are let go, those of a new one taken on. Raises what plugins and settings
        raise, having changed nothing.
        """
        rules = self._rules
        # Whatever can fail comes first.
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
        """The first queue has come, or the last one has gone: only in between pods are asked for theirs."""
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
        """Returns once all that existed at the start has been seen. Raises InputsRefused: see `Informers`."""
        await self._informers.synced()
        # The first time all nodes are copied and compared: in a large cluster that would be a stall for the first pod.
        self.snapshot.refresh()
        _ = self.snapshot.capacity_classes

    async def renew(self) -> None:
        """Fill the caches anew, but for what `behind` names then. Needs `watch`. Raises NotListed: see `Informers`."""
        await self._informers.renew()

    @property
    def behind(self) -> Mapping[str, str]:
        """Kinds that are decided by as they were before the last `renew`, and why."""
        return self._informers.behind

    @property
    def is_synced(self) -> bool:
        return self._informers.is_synced

    @property
    def absent(self) -> Sequence[Kind]:
        """Kinds that some plugin reads and the API server does not serve: to that plugin there are none."""
        return self._informers.absent

    @property
    def missing(self) -> Sequence[str]:
        """Kinds that have not been listed yet."""
        return self._informers.missing

    @property
    def stale(self) -> Sequence[str]:
        """Kinds of which the API server has not been heard for too long."""
        return self._informers.stale

    # ---- decisions and writes

    async def schedule(self) -> None:
        """Decide and bind until `stop` has been called, or until cancelled. Needs `synced`.

        Cancelling stops all writes at once; what was sent and not answered is left to the next leader's watch.
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

    #: Seconds that conditions and events get to be written after the last bind; set by `stop`.
    _grace = 0.0

    def stop(self, *, grace: float) -> None:
        """Take no new pod; `schedule` returns when all binds under way have ended."""
        self._grace = grace
        self.queue.close()

    async def _flush(self) -> None:
        """Move what has backed off, or waited too long, when its time comes, and what events have left to be woken: a
        portion at a time, and others have their turn in between."""
        while True:
            self._deadline_moved.clear()
            deadline = self.queue.next_deadline()
            pause = _FLUSH_SECONDS if deadline is None else deadline - self._timing.clock()
            with suppress(TimeoutError):
                # An earlier deadline may come up meanwhile. The lower bound lets others run when one is overdue.
                async with asyncio.timeout(min(max(pause, _SHORTEST_PAUSE), _FLUSH_SECONDS)):
                    await self._deadline_moved.wait()
            self.queue.flush_backoff()
            self.queue.flush_unschedulable_leftovers()
            self.queue.go_on()
            self.history.expire()
