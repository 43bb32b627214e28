"""The fast path assembled: watches in, decisions, binds out.

    reflectors ──> Cluster ──> SchedulingQueue ──> Feed ──> N Workers ──> Binder ──> API server
                      └──────> Ledger <── snapshot ───┘         └─ FailureHandler ──> conditions, events

Two halves with lives of their own: `watch` keeps the picture of the cluster and runs in a standby too, so that a
new leader starts warm; `schedule` decides and writes, and runs only while this process may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

# np.unique and, at times, np.isin load it at their first use, which would be within a cycle: 10 ms and more.
import numpy.ma  # noqa: F401

from agent_scheduler.binding.binder import Binder, BinderObserver
from agent_scheduler.binding.calls import Calls, RateLimit
from agent_scheduler.binding.device_waits import WaitObserver
from agent_scheduler.binding.failure import AttemptObserver, FailureHandler
from agent_scheduler.binding.history import History
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.prebind import PreBind
from agent_scheduler.binding.preemption import Gate, Preemption, PreemptionObserver
from agent_scheduler.cluster import informers as picture
from agent_scheduler.cluster.cluster import Cluster, ClusterObserver
from agent_scheduler.cluster.resource_claims import ResourceClaims
from agent_scheduler.cluster.storage import Storage
from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.framework.plugin import PreEnqueue, Profile, Reads
from agent_scheduler.engine.plugins.dynamic_resources import take_timeouts
from agent_scheduler.engine.preemption.budgets import Budgets
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.queueing.backoff import BackoffSettings
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.queueing.record import QueueRecorder
from agent_scheduler.engine.shards.membership import Membership, ShardingMode
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.podclass import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.recorder import EventRecorder
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.kube.status import StatusWriter
from agent_scheduler.kube.transport import Transport

from .checking import SelfCheck
from .explaining import Explainer
from .feed import Feed
from .settings import FastPathSettings
from .shard import Shard, within
from .worker import Views, Worker, WorkerObserver
from .worker_pool import WorkerPool

#: How often leftovers in the unschedulable pool are looked for at least, whatever the deadlines say.
_FLUSH_SECONDS = 30.0
_SHORTEST_PAUSE = 0.005


class FastPathObserver(
    WorkerObserver,
    BinderObserver,
    AttemptObserver,
    ClusterObserver,
    PreemptionObserver,
    picture.PictureObserver,
    WaitObserver,
    Protocol,
):
    """Everything that the fast path reports about itself."""

    def status_write(self, what: str) -> None:
        """See `StatusWriter`."""

    def event_write(self, what: str) -> None:
        """See `EventRecorder`."""


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
    ) -> None:
        self.settings = settings
        self._calls = Calls(
            transport,
            rate=settings.binds,
            policy=lambda: self.settings.bind_policy,
            timing=timing,
            may_bind_to=lambda node_name: self.shard is None or self.shard.may_bind_to(node_name),
        )
        self._observer = observer
        self._timing = timing
        self._status_budget = _budget(settings.status_writes, timing)
        self._event_budget = None if settings.events is None else _budget(settings.events, timing)
        self._status = StatusWriter(
            transport,
            budget=self._status_budget,
            concurrency=settings.status_writes.concurrency,
            timing=timing,
            now=timing.now,
            count=observer.status_write,
        )
        self._events = (
            EventRecorder(
                transport,
                controller=settings.name,
                instance=settings.identity,
                budget=self._event_budget,
                concurrency=settings.events.concurrency,
                capacity=settings.event_buffer,
                timing=timing,
                now=timing.now,
                count=observer.event_write,
            )
            if settings.events is not None and self._event_budget is not None
            else None
        )
        messenger = self._messenger = KubeMessenger(status=self._status, recorder=self._events)
        self.history = History(timing.clock)
        self._gate = Gate()
        self.ledger = Ledger()
        devices = self._devices = Devices(self.ledger.touch)
        #: Which nodes may be used, where they are shared.
        self._membership = Membership()
        profiles = self._seeing(settings.profiles)
        self._profiles: Mapping[str, Profile] = profiles
        self._feed = Feed()
        self._deadline_moved = asyncio.Event()
        self.queue: SchedulingQueue[PodInfo] = SchedulingQueue(
            clock=timing.clock,
            hint_maps={name: profile.hint_map() for name, profile in profiles.items()},
            pre_enqueue=self._pre_enqueue(profiles),
            backoff=_backoff(settings),
            max_in_unschedulable=settings.max_in_unschedulable,
            max_urgent_retries=settings.max_urgent_retries,
            pre_queueing_hints=settings.pre_queueing_hints,
            on_ready=self._feed.wake,
            on_deadline=self._deadline_moved.set,
            recorder=recorder,
            is_pending=self._waits,
        )
        self._feed.attach(self.queue)
        self.cluster = Cluster(
            ledger=self.ledger,
            devices=devices,
            queue=self.queue,
            profiles=profiles,
            observer=observer,
            settled=self._settled,
        )
        failures = FailureHandler(
            queue=self.queue,
            messenger=messenger,
            observer=observer,
            history=self.history,
        )
        self.storage = Storage(self.cluster.catalogue, self.queue)
        self.claims = ResourceClaims(devices, self.queue)
        self.snapshot = Snapshot(self.ledger, self.cluster.handle)
        nominations = Nominations(self.queue.nominator, self.ledger, self.snapshot, self._profile)
        self._disruption_budgets = Budgets()
        self.preemption = Preemption(
            cluster=self.cluster,
            snapshot=self.snapshot,
            budgets=self._disruption_budgets,
            nominations=nominations,
            gate=self._gate,
            evict=self._calls.evict,
            messenger=messenger,
            observer=observer,
            timing=timing,
            profiles=profiles,
        )
        self.explainer = Explainer(
            cluster=self.cluster,
            snapshot=self.snapshot,
            nominations=nominations,
            history=self.history,
            profiles=lambda: self._profiles,
            patience=lambda: self.settings.max_in_unschedulable,
            clock=timing.clock,
            now=timing.now,
        )
        prebind = PreBind(
            cluster=self.cluster,
            storage=self.storage,
            claims=self.claims,
            profile_of=self._profile,
            patch=self._calls.patch,
            begin=self._calls.begin_patch,
            create=self._calls.create,
            delete=self._calls.delete,
            is_pending=self._calls.is_pending,
            messenger=messenger,
            observer=observer,
            clock=timing.clock,
            now=timing.now,
        )
        self.binder = Binder(
            cluster=self.cluster,
            wake=self._feed.wake,
            failures=failures,
            messenger=messenger,
            bind=self._calls.bind,
            begin=self._calls.begin_bind,
            policy=settings.policy,
            concurrency=settings.binds.concurrency,
            adapts=not settings.binds.qps,
            clock=timing.clock,
            sleep=timing.sleep,
            observer=observer,
            nominations=nominations,
            prebind=prebind,
        )
        #: None where all nodes are this scheduler's.
        self.shard = (
            None
            if settings.sharding is ShardingMode.NONE
            else Shard(
                settings.sharding,
                self._membership,
                ledger=self.ledger,
                queue=self.queue,
                caught_up=lambda version: self._picture.catch_up("Pod", version),
            )
        )
        views = self._views(profiles)
        self._workers = [
            Worker(
                index,
                workers=settings.workers,
                cluster=self.cluster,
                snapshot=self.snapshot,
                views=views,
                binder=self.binder,
                failures=failures,
                candidates=settings.candidates,
                clock=timing.clock,
                observer=observer,
                preemption=self.preemption,
                deallocate=prebind.deallocate,
                shard=self.shard,
                now=timing.now,
            )
            for index in range(settings.workers)
        ]
        self._pool = WorkerPool(
            self._workers,
            feed=self._feed,
            binder=self.binder,
            clock=timing.clock,
            refill=devices.refill,
        )
        self._classes = PodClasses()
        kinds = [
            picture.nodes(self.cluster, self._classes),
            picture.pods(self.cluster, self._classes),
            picture.namespaces(self.cluster),
            picture.budgets(self._disruption_budgets),
            *self.storage.kinds(),
            *self.claims.kinds(),
        ]
        self._picture = picture.Picture(
            kinds,
            transport=transport,
            times=settings.watch_times,
            timing=timing,
            observer=observer,
            burst=self.queue.burst,
        )
        self.selfcheck = SelfCheck(
            picture=self._picture,
            cluster=self.cluster,
            snapshot=self.snapshot,
            binder=self.binder,
            views=lambda: self._workers[0].views,
            transport=transport,
            timing=timing,
        )
        self._read_for(profiles)

    def _read_for(self, profiles: Mapping[str, Profile]) -> None:
        """See that what the plugins of these profiles read is there, now or soon."""

        def reading(what: Reads) -> frozenset[str]:
            return frozenset(name for name, profile in profiles.items() if what in profile.reads)

        images, before = reading(Reads.IMAGES), self._classes.images_for
        self._classes.images_for = images
        if images != before:
            self._picture.read_again("Pod")
        if bool(images) != bool(before):
            self._picture.read_again("Node")
        take_timeouts(profiles, self.cluster.devices)
        self.cluster.owners.schedulers = reading(Reads.OWNERS)
        if self.cluster.owners.schedulers:
            self._picture.also(picture.owners(self.cluster))

    def _views(self, profiles: Mapping[str, Profile]) -> Views:
        """Those of the shard first, where other nodes are the second choice."""
        chosen = [profiles]
        if self.settings.sharding is ShardingMode.SOFT:
            chosen.insert(0, within(self._membership, profiles))
        return tuple(
            {name: ClassViews(profile, self.snapshot) for name, profile in each.items()} for each in chosen
        )

    def _profile(self, name: str) -> Profile:
        return self._profiles[name]

    def _seeing(self, profiles: Iterable[Profile]) -> dict[str, Profile]:
        """By their names, looking at this scheduler's picture, and at no more than its shard if that binds it."""
        seeing = {each.scheduler_name: each.seeing(self.ledger, self._devices) for each in profiles}
        return within(self._membership, seeing) if self.settings.sharding is ShardingMode.HARD else seeing

    def _pre_enqueue(self, profiles: Mapping[str, Profile]) -> dict[str, tuple[PreEnqueue | Gate, ...]]:
        """What keeps pods out of the queue, by profile."""
        return {
            name: (*profile.pre_enqueue, *((self._gate,) if profile.preemption is not None else ()))
            for name, profile in profiles.items()
        }

    def reconfigure(self, settings: FastPathSettings) -> None:
        """Go on with other settings, between cycles: profiles, candidates, conflict policy, backoff, urgent retries
        and rates. All else stays as it was at the start.

        Pods that were decided already are bound as they were decided; pods that were refused are tried again. Pods of
        a profile that is no longer there are let go, those of a new one taken on. Raises what plugins and settings
        raise, having changed nothing.
        """
        # Whatever can fail comes first.
        profiles = self._seeing(settings.profiles)
        hint_maps = {name: profile.hint_map() for name, profile in profiles.items()}
        pre_enqueue = self._pre_enqueue(profiles)
        backoff, views = _backoff(settings), self._views(profiles)
        self.queue.reconfigure(
            hint_maps=hint_maps,
            pre_enqueue=pre_enqueue,
            backoff=backoff,
            max_in_unschedulable=settings.max_in_unschedulable,
            max_urgent_retries=settings.max_urgent_retries,
        )
        self.cluster.release([name for name in self._profiles if name not in profiles])
        self.cluster.take_on(profiles)
        for worker in self._workers:
            worker.reconfigure(views=views, candidates=settings.candidates)
        self.binder.reconfigure(settings.policy, adapts=not settings.binds.qps)
        self._calls.set_rate(settings.binds)
        self._status_budget.set_rate(settings.status_writes.qps, settings.status_writes.burst)
        if settings.events is not None and self._event_budget is not None:
            self._event_budget.set_rate(settings.events.qps, settings.events.burst)
        self.preemption.reconfigure(profiles)
        self._read_for(profiles)
        self._profiles = profiles
        self.settings = settings

    # ---- the picture

    def _waits(self, uid: str) -> bool:
        return self.cluster.waits(uid)

    def _settled(self, pod: PodInfo) -> None:
        self._messenger.settled(pod)
        self.history.leaves(pod.uid, gone=pod.uid not in self.cluster.pods)

    async def watch(self) -> None:
        """Keep the picture of the cluster until cancelled."""
        await self._picture.run()

    async def synced(self) -> None:
        """Returns once all that existed at the start has been seen."""
        await self._picture.synced()
        # The first time all nodes are copied and compared: in a large cluster that would be a stall for the first pod.
        self.snapshot.refresh()
        _ = self.snapshot.alike

    async def renew(self) -> None:
        """Take the picture anew, but for what `behind` names then. Needs `watch`. Raises NotListed: see `Picture`."""
        await self._picture.renew()

    @property
    def behind(self) -> Mapping[str, str]:
        """Kinds that are decided by as they were before the last `renew`, and why."""
        return self._picture.behind

    @property
    def is_synced(self) -> bool:
        return self._picture.is_synced

    @property
    def missing(self) -> Sequence[str]:
        """Kinds that have not been listed yet."""
        return self._picture.missing

    @property
    def stale(self) -> Sequence[str]:
        """Kinds of which the API server has not been heard for too long."""
        return self._picture.stale

    # ---- decisions and writes

    async def schedule(self) -> None:
        """Decide and bind until `stop` has been called, or until cancelled. Needs `synced`.

        Cancelling stops all writes at once; what was sent and not answered is left to the next leader's watch.
        """
        async with asyncio.TaskGroup() as tasks:
            service = [
                tasks.create_task(self.binder.run()),
                tasks.create_task(self._status.run()),
                tasks.create_task(self.preemption.run()),
                tasks.create_task(self._flush()),
            ]
            if self._events is not None:
                service.append(tasks.create_task(self._events.run()))
            await tasks.create_task(self._pool.run())
            await self.binder.drained()
            await self._status.drain(self._grace)
            if self._events is not None:
                await self._events.drain(self._grace)
            for task in service:
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


def _backoff(settings: FastPathSettings) -> BackoffSettings:
    return BackoffSettings(
        initial=settings.initial_backoff,
        maximum=settings.max_backoff,
        pop_from_backoff=settings.pop_from_backoff,
    )


def _budget(limit: RateLimit, timing: Timing) -> Budget:
    """For calls of a dispatcher, which makes no more than `limit.concurrency` of them at a time."""
    return Budget(qps=limit.qps or None, burst=limit.burst, timing=timing)
