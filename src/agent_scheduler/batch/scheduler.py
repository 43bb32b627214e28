"""Runs the sessions of the batch scheduler, in the process of the fast path, on the same cluster, ledger and binder.

    groups, queues, pods ──> due ──> a session, in slices ──> gangs to the binder, evictions
                                        └──> statuses, conditions, events

A session runs in slices of a quarter of a millisecond, or of two while the fast path has no pods, with turns of the
event loop between them in which pods of the fast path go first, so it never blocks the loop. The binder detects changes
made between slices when a gang is committed. Sessions are at least one period apart, and one runs only after an event
that may help a waiting pod.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.bound_pods import BoundPodExplainer
from agent_scheduler.binding.plugin_writes import PluginWrites
from agent_scheduler.binding.preemption import EvictCall
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.decide.trial import Trial
from agent_scheduler.engine.dra.demand import demand_of
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.preemption.pdbs import PDBs
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.queueing.record import NullRecorder
from agent_scheduler.engine.session.nodes import SessionNodes
from agent_scheduler.engine.session.ports import QueueAccount, SessionPorts
from agent_scheduler.engine.session.registry import REGISTRY
from agent_scheduler.engine.session.session import Session, Stage, Stamp
from agent_scheduler.engine.session.settled import SettledJob
from agent_scheduler.engine.shards.claims import Shared
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.telemetry.batch import BatchReports
from agent_scheduler.telemetry.logs import get_logger
from apimachinery.times import time_text
from kube_client.retry import Timing
from kube_client.transport import Transport

from .committing import BindReports, Evictions, GroupCommitter, Outcomes
from .conclusions import claimed_room, is_followed, kept_out_by_cluster, kept_out_by_quotas, left_alone, refusals_of
from .explaining import BatchExplainer
from .handling import GroupHandling
from .measuring import EndedSession, hold
from .messages import BatchMessages
from .picture import Pictures, PictureSources, waiting_kinds
from .settings import BatchSettings
from .waiting import BatchWaitingPods
from .wanting import WantingGroups

T = TypeVar("T")

_log = get_logger(__name__)

#: Seconds of a slice, so the time for which the watch event of a fast path's pod may have to wait. From this event to
#: the pod's bind there are about three turns of the event loop, so `_TURNS` of them follow each slice.
_SLICE: Final = 0.00025
#: Seconds of a slice while the fast path has had no pod for a second; then one turn follows each slice. A turn costs
#: some 20 us, and after a longer slice it handles more responses and events together.
_SLICE_ALONE: Final = 0.002
#: Turns of the event loop between two slices, and their maximum while the fast path has pods to decide on.
_TURNS: Final = 3
_TURNS_AT_MOST: Final = 8
#: Maximum seconds between two checks for leftovers in the unschedulable pool.
_FLUSH_SECONDS: Final = 30.0
_SHORTEST_PAUSE: Final = 0.005
#: Seconds for which an admitted group may lack members while others wait for the room that it was promised. Creating
#: the pods of a large Job takes seconds.
_MEMBERS_SECONDS: Final = 30.0


class _Stopped(Exception):
    """Raised in a session that must end because the scheduler stops."""


def _uid(rng: Callable[[], float]) -> str:
    return str(uuid.UUID(int=int(rng() * 2**64) << 64 | int(rng() * 2**64), version=4))


def _queue(
    settings: BatchSettings, profile: Profile, cluster: Cluster, timing: Timing, signals: QueueSignals
) -> SchedulingQueue:
    """Return the scheduling queue for the representatives of waiting pods."""
    return SchedulingQueue(
        clock=timing.clock,
        hint_maps={profile.scheduler_name: profile.hint_map()},
        pre_enqueue={},
        settings=settings.queue,
        signals=signals,
        recorder=NullRecorder(),
        is_pending=cluster.waits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPathParts:
    """The parts of the fast path that the batch scheduler shares."""

    cluster: Cluster
    binder: Binder
    bound_pods: BoundPodExplainer
    writes: PluginWrites
    evict: EvictCall
    pdbs: PDBs
    #: None if all nodes belong to this scheduler.
    shard: Shared | None
    #: As in `ClusterView`.
    shard_full: Callable[[Sequence[PodInfo]], str] | None


class BatchScheduler:
    """Runs sessions. Owner of the sessions, and of the snapshot and trial that they use."""

    def __init__(
        self,
        settings: BatchSettings,
        *,
        profile: Profile,
        groups: Groups,
        parts: FastPathParts,
        transport: Transport,
        observer: BatchReports,
        timing: Timing,
    ) -> None:
        """Assemble the scheduler; nothing runs before `schedule`.

        `profile` is that of the settings, adapted to this cluster; `groups` are from the watches of the fast path.
        """
        cluster, binder = parts.cluster, parts.binder
        self._shared = parts.shard
        self._shard_full = parts.shard_full
        self._settings = settings
        self._cluster = cluster
        self._profile = profile
        self._writes = parts.writes
        self._timing = timing
        self._observer = observer
        waiting = self.waiting = BatchWaitingPods(
            profile.scheduler_name, groups, cluster, partial(_queue, settings, profile, cluster, timing)
        )
        try_again = waiting.due.set
        self._messages = BatchMessages(
            settings,
            waiting,
            cluster.ledger.usage,
            transport=transport,
            observer=observer,
            timing=timing,
            pace=binder.pace,
        )
        messenger = self._messages.messenger
        queues_due = self._messages.queues.due.set
        waiting.seen.connect(messenger.seen)
        waiting.settled.connect(messenger.settled)
        waiting.group_gone.connect(messenger.group_gone)
        groups.signals.queue_changed.connect(lambda _name: queues_due())
        cluster.group_seen.connect(messenger.group_seen)
        cluster.ledger.usage.events.usage_changed.connect(queues_due)
        self._handling = GroupHandling(groups, observer.handling)
        self._wanting = WantingGroups(cluster.ledger.usage, waiting.pods, waiting.activate)
        self._evictions = Evictions(cluster, parts.evict, observer, try_again=try_again)
        self._binds = BindReports(groups, self._messages.tell_of_group, of_members=settings.member_events)
        self._committer = self._committing(binder)
        self._binder = binder
        self._pictures = Pictures(
            cluster,
            waiting.groups,
            scheduler_name=profile.scheduler_name,
            default_queue=settings.default_queue,
            sources=PictureSources(
                status_of=self._messages.statuses.of,
                condition_of=messenger.condition_of,
                said=self._messages.queues.said,
                is_leaving=self._evictions.is_leaving,
                malformed=observer.malformed,
                why_not=self._handling.why_not,
            ),
            pdbs=parts.pdbs,
        )
        self.explainer = self._explaining(parts.bound_pods)
        #: The configuration that the next session adopts, if it was changed.
        self._next: tuple[BatchSettings, Profile] | None = None
        self._let_in(settings)
        self._begin_anew()
        self._stopping = asyncio.Event()
        self._grace = 0.0
        #: The settled jobs of the last session.
        self._settled: Mapping[GroupKey, SettledJob] = {}
        #: The number of complete sessions, and the last of them.
        self.sessions = 0
        self.last: EndedSession | None = None

    def _committing(self, binder: Binder) -> GroupCommitter:
        messenger, try_again = self._messages.messenger, self.waiting.due.set
        return GroupCommitter(
            self._cluster,
            binder.commit_group,
            Outcomes(self._cluster, messenger, self._observer, self._binds, try_again=try_again),
            profile=self._profile,
            clock=self._timing.clock,
            try_again=try_again,
        )

    def _explaining(self, bound_pods: BoundPodExplainer) -> BatchExplainer:
        return BatchExplainer(
            self._cluster,
            self.waiting.groups,
            profile=lambda: self._profile,
            last=lambda: self.last,
            now=self._timing.now,
            bound_pods=bound_pods,
        )

    def _let_in(self, settings: BatchSettings) -> None:
        """Set whether sessions admit groups; without the action enqueue, all groups are admitted at once."""
        self._lets_in = "enqueue" in settings.sessions.actions
        promises, groups = self._cluster.ledger.usage.promises, self.waiting.groups
        promises.ask_for_groups(self._lets_in, groups.of_volcano())

    def _begin_anew(self) -> None:
        """Replace the snapshot, the views, the nominations and the trial by new ones."""
        ledger, name = self._cluster.ledger, self._profile.scheduler_name
        self._snapshot = Snapshot(ledger, self._cluster.handle)
        views, profile = ClassViews(self._profile, self._snapshot), self._profile
        nominator = self._cluster.queue.nominator
        self._nominations = Nominations(nominator, ledger, self._snapshot, lambda _name: profile)
        self._trial = Trial(ledger, self._snapshot, {name: views}, self._writes, self._cluster.events.muted)

    def reconfigure(self, settings: BatchSettings, profile: Profile) -> None:
        """Adopt actions, tiers with their arguments, the period and the rates before the next session.

        All other settings stay as they were at the start.
        """
        self._next = (settings, profile)
        self.waiting.due.set()

    def _adopt(self, settings: BatchSettings, profile: Profile) -> None:
        self._settings, self._profile = settings, profile
        self._messages.set_rates(settings)
        self._let_in(settings)
        self._committer.profile = profile
        self.waiting.queue.reconfigure(
            hint_maps={profile.scheduler_name: profile.hint_map()}, pre_enqueue={}, settings=settings.queue
        )
        self._begin_anew()
        self._settled = {}

    # ---- running

    async def schedule(self) -> None:
        """Run sessions until `stop` is called, or until cancelled. Requires a running binder."""
        # Statuses that were decided in an earlier term and not written are decided again.
        statuses = self._messages.statuses
        statuses.forget()
        # This must happen before any pod or group requests room of a queue.
        groups = statuses.restore(self._profile.scheduler_name) if self._lets_in else ()
        self._cluster.ledger.usage.promises.read_anew(groups)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in self._messages.writers]
            running.append(tasks.create_task(self._evictions.run()))
            running.append(tasks.create_task(self._flush()))
            self.waiting.due.set()
            await tasks.create_task(self._hold_sessions())
            # Binds that end now are reported, too.
            await self._binder.drained()
            statuses.write_deferred(statuses.deferred)
            for writer in self._messages.writers:
                await writer.drain(self._grace)
            for task in running:
                task.cancel()

    def stop(self, *, grace: float) -> None:
        """Begin no further session and abandon the current one; the binder continues committed members.

        `grace` is the time for the writers to drain, in seconds.
        """
        self._grace = grace
        self._stopping.set()
        self.waiting.due.set()

    async def _hold_sessions(self) -> None:
        # Before the binder has begun it refuses all groups, and the session would release the room that an earlier
        # process kept for them.
        await self._binder.has_begun()
        while True:
            await self.waiting.due.wait()
            if self._stopping.is_set():
                return
            try:
                await self._session()
            except Exception as error:
                # An error in a session must not end the fast path's process. The session's state was replaced.
                self._handling.failed(error)
                _log.error("session failed", problem=f"{type(error).__name__}: {error}", exc_info=error)
            # The period begins at the end of a session, as in Volcano. So however long sessions take, the fast path has
            # the loop to itself between them.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.schedule_period):
                    await self._stopping.wait()

    async def _session(self) -> None:
        if self._next is not None:
            self._adopt(*self._next)
            self._next = None
        timing, trial, usage = self._timing, self._trial, self._cluster.ledger.usage
        began = timing.clock()
        self._evictions.see()
        self._messages.statuses.see()
        self._wanting.begin()
        try:
            settled = await self._worked_off(self.waiting.open(self._settled))
            now = timing.now()
            trial.at = time_text(now)
            # Devices that need time to become ready are judged by this time.
            self._cluster.devices.now = now.timestamp()
            trial.reset()
            view = await self._worked_off(self._pictures.view(settled, now.timestamp()))
            if self._shared is not None:
                view = replace(view, unready=self._shared.unready, shard_full=self._shard_full)
            kinds = await self._worked_off(waiting_kinds(view))
            await self._worked_off(self.waiting.begin(kinds, view.settled))
            stamp = Stamp(_uid(timing.rng), trial.at)
            session = Session(
                self._settings.sessions,
                view,
                SessionNodes(
                    self._snapshot,
                    trial,
                    self._shared,
                    nominations=self._nominations,
                    scheduler_name=self._profile.scheduler_name,
                ),
                registry=REGISTRY,
                ports=SessionPorts(
                    self._committer.on(self._snapshot, trial, stamp.uid), self._evictions, self._handling.begins
                ),
                account=QueueAccount(usage.book, usage.promises if self._lets_in else None),
                stamp=stamp,
            )
            spent: dict[Stage, float] = {}
            steps = hold(session, usage, clock=timing.clock, spent=spent)
            result = await self._worked_off(steps)
            trial.reset()
            claims = self._keep_claims(session)
            refused_by = await self._worked_off(refusals_of(session))
            await self._worked_off(
                self.waiting.end(
                    refused_by, kept_out_by_quotas(session), waits_for_cluster=kept_out_by_cluster(session)
                )
            )
            self._settled = result.settled
            self.waiting.wait_until(min(result.turns_at, self._pictures.changes_at))
            await self._worked_off(self.waiting.decided(result.groups, result.held))
            await self._worked_off(self._wanting.see(session, result))
            usage.promises.outside.wanted = result.wanted
            self._deallocate(session)
            self._cluster.standing_by.left_alone(await self._worked_off(left_alone(session)))
            self.sessions += 1
            self._handling.succeeded()
            earlier, self.last = self.last, EndedSession(session, result, timing.now())
            await self._worked_off(self._messages.tell(result, self._cluster, claims=claims))
            if is_followed(session, result.groups):
                self.waiting.due.set()
            self._observer.session_ended(session, result, seconds=timing.clock() - began, spent=spent)
            if earlier is not None:
                await self._worked_off(earlier.session.retire(session))
        except _Stopped:
            self._observer.session_broken("given_up")
            trial.reset()
            self.waiting.give_up()
        except BaseException:
            self._observer.session_broken("failed")
            trial.abandon()
            self._begin_anew()
            self.waiting.give_up()
            raise

    def _deallocate(self, session: Session) -> None:
        """Deallocate claims of rejected members if that may make nodes feasible (PostFilter of DynamicResources).

        The fast path does the same for its pods. Nothing is deallocated while the feasible nodes are unknown, because
        a device search was incomplete or the shard is not ready.
        """
        cluster = self._cluster
        if session.nodes.is_partial:
            self.waiting.activate()
        if session.nodes.is_partial or session.view.unready:
            return
        for job in session.fresh:
            for uid, why in job.fit_errors.items():
                pod = job.tasks[uid].pod
                if why.plugins and (pod.claims or pod.cls.extended) and cluster.waits(uid):
                    demand = demand_of(pod, cluster.devices)
                    if demand is not None and uid not in cluster.ledger.placements:
                        self._writes.claims.deallocate(pod, demand)

    def _keep_claims(self, session: Session) -> Mapping[str, str]:
        """Nominate the pods that wait for terminating pods, so that the fast path leaves them the room.

        Nominations that an earlier session or another process made, and that this session does not confirm, are
        removed. Returns the node by UID.
        """
        claims = claimed_room(session)
        nominated, placed = self._cluster.queue.nominator.nominated, self._cluster.ledger.placements
        pods = self.waiting.pods
        self._cluster.ledger.usage.claim([pods[uid] for uid in claims if uid in pods])
        for uid in dict.fromkeys((*claims, *nominated, *self.waiting.nominated)):
            pod, node = pods.get(uid), claims.get(uid, "")
            if pod is None:
                continue
            if nominated.get(uid, "") != node:
                self._cluster.queue.nominate(pod, node)
            if pod.nominated_node_name and not node and uid not in placed:
                self._messages.messenger.nominated(pod, "")
        return claims

    async def _worked_off(self, steps: Generator[None, None, T]) -> T:
        """Run the steps in slices and return their result. Raises _Stopped if `stop` was called."""
        clock, cluster, trial = self._timing.clock, self._cluster, self._trial
        while True:
            alone = not (self._binder.pace.others_come or cluster.queue.has_ready)
            began = clock()
            ends = began + (_SLICE_ALONE if alone else _SLICE)
            self._handling.go_on()
            try:
                # Reservations of the trial are visible to all tasks, so no other task runs until they are settled.
                while clock() < ends or trial.holds_reservations:
                    next(steps)
            except StopIteration as end:
                found: T = end.value
                return found
            finally:
                self._observer.sliced(clock() - began)
                self._handling.pause()
            for turn in range(_TURNS_AT_MOST):
                await asyncio.sleep(0)
                if alone or (turn + 1 >= _TURNS and not (cluster.queue.has_ready and self._binder.has_room())):
                    break
            if self._stopping.is_set():
                raise _Stopped

    async def _flush(self) -> None:
        """Do what is due by time: make sessions due, process backlogs of events, retry leftovers, check statuses."""
        waiting, timing = self.waiting, self._timing
        queue, moved, promises = waiting.queue, waiting.deadline_moved, self._cluster.ledger.usage.promises
        while True:
            moved.clear()
            deadline = queue.next_deadline()
            pause = _FLUSH_SECONDS if deadline is None else deadline - timing.clock()
            pause = min(pause, waiting.due_at - timing.now().timestamp())
            pause = min(pause, promises.gives_way_at(timing.clock(), _MEMBERS_SECONDS) - timing.clock())
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(pause, _SHORTEST_PAUSE), _FLUSH_SECONDS)):
                    await moved.wait()
            waiting.time_passes(timing.now().timestamp())
            queue.flush_backoff()
            queue.flush_unschedulable_leftovers()
            queue.go_on()
            if promises.give_way(timing.clock(), _MEMBERS_SECONDS):
                # The session has to include the groups that gave way: their phase changes, or they are admitted again.
                self.waiting.activate()
            self._messages.statuses.look()
            self._messages.queues.due.set()
