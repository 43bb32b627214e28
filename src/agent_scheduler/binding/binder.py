"""The conflict-aware binder: accepts the workers' results, resolves conflicts between them, and binds.

    result ──> judge each candidate on the live ledger ──> assume ──> POST binding ──> confirm
                  └─ none left: urgent retry                             └─ refused: forget, handle the outcome

Judging, Reserve and assuming happen in one step without an await, in the order of the results, so of two pods that need
the last capacity exactly one gets it. PreBind follows for the pods that need it (`prebind`). The number of concurrent
binds is limited, and workers stop popping pods while too many results wait for a bind, so that a pod of high priority
does not queue behind thousands of decided ones. Most binds are one request that succeeds, for which no task is created;
the others continue in a task (`open_binds`).

Invariant: every submitted result ends in exactly one of: bound, requeued, dropped because the pod no longer waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.decide.compiled import CompiledFilter
from agent_scheduler.engine.decide.decide import CandidateNode, ConflictPolicy, judge
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.telemetry.handling import subject_of
from kube_client.adaptive import AdaptiveConcurrency
from kube_client.bind import BindOutcome, BindResult, Binds
from kube_client.driver import AlreadySent
from kube_client.errors import StoreWentBack
from kube_client.pace import Pace

from .groups import Admission, GroupBinds, GroupJudge, Member
from .open_binds import OpenBinds, UnseenBinds
from .outcomes import OtherOutcomes
from .past_decisions import PastDecision, PastDecisions
from .prebind import PreBindCalls, PreBinder, Reserved, Unavailable
from .result import ScheduleResult
from .runtime import Runtime

#: The results that may wait to be sent, per concurrent bind.
_WAITING_PER_SLOT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BindSettings:
    """The policy for conflicts, and the number of concurrent binds."""

    policy: ConflictPolicy
    #: The number; if the binder `adapts` to the server's speed, the maximum.
    concurrency: int
    adapts: bool


class Binder:
    """Owner of the results that are not yet bound, the binds under way, the pace of writes for groups, and `past`."""

    def __init__(
        self,
        settings: BindSettings,
        runtime: Runtime,
        state: SharedState,
        *,
        binds: Binds,
        prebind: PreBinder,
        wake: Callable[[], None],
    ) -> None:
        """Create the binder; `wake` is called when it has room for further results."""
        cluster, timing = state.cluster, runtime.timing
        self._cluster = cluster
        self._wake = wake
        self._messenger = runtime.messenger
        self._begin = binds.send_bind
        self._policy = settings.policy
        self._concurrency = settings.concurrency
        self._adapts = settings.adapts
        self._limit = _limit(settings.concurrency, adapts=settings.adapts)
        self._clock = timing.clock
        self._observer = runtime.observer
        self._handling = runtime.observer.handling
        self._open = OpenBinds(cluster, binds.bind, runtime.observer, timing, answered=self._answered)
        self._unseen = UnseenBinds(cluster, self._open, timing)
        self._others = OtherOutcomes(cluster, prebind, scheduled=self._scheduled, tried_again=self._pre_bound)
        self._nominations = state.nominations
        self.past = PastDecisions(timing.clock)
        self._prebind = prebind
        self._pre_bind_calls = PreBindCalls(ended=self._pre_bound, writing_changed=self._review_idle)
        self._groups = GroupJudge(cluster, prebind, state.nominations)
        self._results: deque[ScheduleResult] = deque()
        #: Whether results may date from an earlier turn of the event loop than the one in which they are judged.
        self._have_waited = True
        #: The accepted results whose bind is not under way, with their nodes.
        self._accepted: deque[tuple[ScheduleResult, str]] = deque()
        #: The same for members of groups whose whole minimum is assumed.
        self._of_groups: deque[tuple[ScheduleResult, str]] = deque()
        #: Binds under way. Invariant: while fewer than the limit are under way, no accepted result of the fast path
        #: waits. Groups may use only their share, so there is always room.
        self._sending = 0
        self.pace = Pace(timing.clock)
        self._group_binds = GroupBinds(self.pace, go_on=self.send)
        #: The group in which `run` runs binds; None while it does not run.
        self._tasks: asyncio.TaskGroup | None = None
        #: Binds that were answered in this turn of the event loop and are not finished; they count as under way.
        self._answers: list[tuple[ScheduleResult, str, BindResult]] = []
        self._idle = asyncio.Event()
        self._idle.set()
        #: Set while `run` runs.
        self._running = asyncio.Event()
        #: Results whose bind may still be carried out, although no further request is sent for them.
        self._in_doubt = 0

    def reconfigure(self, policy: ConflictPolicy, *, adapts: bool) -> None:
        """Judge by this policy from the next result on."""
        self._policy = policy
        if adapts != self._adapts:
            self._adapts = adapts
            self._limit = _limit(self._concurrency, adapts=adapts)
            self.send()

    @property
    def concurrency(self) -> int:
        """The current limit of concurrent binds."""
        return self._limit.now

    def submit(self, result: ScheduleResult) -> None:
        """Accept a worker's result. It waits for `judge`, and then for `send`."""
        self._results.append(result)
        self._idle.clear()

    def has_room(self) -> bool:
        """Return whether another result may be submitted. When this becomes true again, `wake` is called."""
        return len(self._results) + len(self._accepted) < _WAITING_PER_SLOT * self._limit.now

    @property
    def in_flight(self) -> int:
        """The number of results that are not yet bound, refused or requeued."""
        waiting = len(self._results) + len(self._accepted) + len(self._of_groups)
        return waiting + self._sending + self._in_doubt + self._prebind.under_way

    async def drained(self) -> None:
        """Wait until the binder has no work left except passive waits.

        These are binds of unknown outcome, for up to a minute, and pods whose Permit or PreBind waits for something
        other than the API server.
        """
        await self._idle.wait()

    async def run(self) -> None:
        """Judge and bind until cancelled. A cancelled bind stays assumed, because its outcome is unknown."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._running.set()
            try:
                tasks.create_task(self._prebind.run())
                tasks.create_task(self._unseen.run())
                self.judge()
                self.send()
                # Results that ended have made room without a bind being sent.
                self._wake()
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None
                self._running.clear()

    async def has_begun(self) -> None:
        """Wait until `run` runs; before that, `commit_group` refuses all groups."""
        await self._running.wait()

    # ---- groups

    def commit_group(self, members: Sequence[Member], minimum: int, admission: Admission) -> Mapping[str, str]:
        """Assume and bind the members that can still have their nodes, if they are at least `minimum`; else none.

        Returns the reasons of the members that are not assumed, by UID; their owners are not notified.

        Each assumed member ends as any result does. If one is not bound in the end, the others, which may be bound
        already, stay as they are, and the group's owner reports what the group then lacks.
        """
        if self._tasks is None:
            return dict.fromkeys((each.result.pod.uid for each in members), "binds are not sent now")
        accepted, refused = self._groups.judge(members, minimum, admission)
        for result, node_name, reserved, version in accepted:
            pod, attempts = result.pod, result.entry.attempts
            self.past.add(
                PastDecision(result.started, pod.uid, node_name, result.placement, version, attempts, result.by)
            )
            if result.entry.attempts > 1:
                self._messenger.binding(result.pod)
            if reserved is not None:
                self._prebind.start(result, node_name, reserved, self._pre_bind_calls)
            else:
                self._of_groups.append((result, node_name))
        if accepted:
            self._idle.clear()
            self.send()
            # All of them may be waiting for something other than the API server.
            self._check_idle()
        return refused

    # ---- judging

    def judge(self) -> None:
        """Judge all submitted results in the turn of the event loop in which they were decided.

        While `run` does not run, the results wait for it.
        """
        if self._tasks is None:
            self._have_waited = True
            return
        is_alone = len(self._results) == 1
        while self._results:
            result = self._results.popleft()
            if not is_alone:
                # Otherwise the mark of its decision still stands.
                self._handling.mark_subject(subject_of("decision", "Pod", result.pod))
            try:
                self._settle(result)
            except Exception as error:
                self._broken(result, "", error)
        self._handling.clear()
        self._have_waited = False
        self._check_idle()

    def _settle(self, result: ScheduleResult) -> None:
        """Assume the first candidate that is still valid, or requeue the pod at the head of the queue."""
        entry, pod, cluster = result.entry, result.pod, self._cluster
        is_as_decided = (
            not self._have_waited
            and cluster.ledger.sequence == result.placement.seen
            and cluster.pods.get(pod.uid) is pod
            # A reservation for one pod may change the decision about the next one.
            and not result.reserves
        )
        stands = is_as_decided or self._others.stands(result)
        if not stands or (cluster.ledger.usage.room.active and not self._others.fits_its_queue(result)):
            return
        try:
            choice = self._choose(result)
        except Exception as error:
            # An error in a plugin fails this pod only: the results behind it must not wait forever.
            if result.reserves:
                self._prebind.give_back(pod)
            name = result.placement.candidates[0].node_name
            self._pre_bound(result, name, f"{type(error).__name__}: {error}")
            return
        if choice is None:
            result.owner.failures.outraced(entry, pod, started=result.started)
            return
        candidate, reserved = choice
        ledger = cluster.ledger
        ledger.assume(pod, candidate.row)
        name, version = candidate.node_name, ledger.sequence
        self.past.add(PastDecision(result.started, pod.uid, name, result.placement, version, entry.attempts, result.by))
        if entry.attempts > 1:
            # Only an earlier attempt can have left a report that waits to be sent.
            self._messenger.binding(pod)
        self._idle.clear()
        if reserved is not None:
            self._prebind.start(result, candidate.node_name, reserved, self._pre_bind_calls)
        else:
            self._accepted.append((result, candidate.node_name))

    def _broken(self, result: ScheduleResult, node_name: str, error: Exception) -> None:
        """Requeue the pod after an error in the handling of its result, which concerns no other pod.

        A pod whose bind was sent stays assumed until the watch has settled that.
        """
        pod, problem = result.pod, f"{type(error).__name__}: {error}"
        self._handling.failed(subject_of("decision", "Pod", pod), error)
        self._observer.bind_failed(pod, node_name, problem)
        if not node_name:
            with suppress(Exception):
                self._cluster.forget(pod)
        result.owner.failures.broken(result.entry, pod, problem, started=result.started)

    def _choose(self, result: ScheduleResult) -> tuple[CandidateNode, Reserved | None] | None:
        """Return the first candidate that is still valid, and its reservations that need a write before the bind.

        The caller assumes it in the same step.
        """
        candidates: Sequence[CandidateNode] = result.placement.candidates
        if self._cluster.queue.nominator.nominated:
            candidates = self._nominations.free(result.pod, result.cls, result.filters, candidates)
        filters: Sequence[CompiledFilter] | None = result.filters
        prebind = self._prebind if result.reserves else None
        if prebind is not None:
            filters = prebind.filters(result)
            candidates = prebind.fitting(result, candidates, filters) if filters is not None else ()
        while True:
            verdict = judge(self._cluster.ledger, candidates, filters or (), self._policy, seen=result.placement.seen)
            candidate = verdict.candidate
            reserved = None
            if candidate is not None and filters is not None and prebind is not None:
                reserved = prebind.reserve(result, candidate, filters)
            if isinstance(reserved, Unavailable):
                candidates = candidates[verdict.conflicts + 1 :]
                continue
            self._observer.judged(verdict.conflicts, verdict.revalidated, verdict.outdated, candidate is not None)
            return None if candidate is None else (candidate, reserved)

    def _pre_bound(self, result: ScheduleResult, node_name: str, problem: Refusal | str) -> None:
        """Queue the pod for its bind if PreBind succeeded; else report the problem; nothing is reserved for it then."""
        if not problem:
            if result.pod.stands_by:
                # A report from the time of its wait is outdated.
                self._messenger.binding(result.pod)
            self._idle.clear()
            (self._of_groups if result.in_group else self._accepted).append((result, node_name))
            self.send()
            return
        failures = result.owner.failures
        if isinstance(problem, Refusal):
            failures.unschedulable(result.entry, result.pod, problem, started=result.started)
        else:
            self._observer.bind_failed(result.pod, node_name, problem)
            failures.error(result.entry, result.pod, problem, started=result.started)
        self._check_idle()

    # ---- binding

    def send(self) -> None:
        """Start as many binds as the limit allows, of results that have a node. Each end makes room for the next."""
        if self._tasks is None or not (self._accepted or self._of_groups):
            return
        while self._sending < self._limit.now:
            if self._accepted:
                result, node_name = self._accepted.popleft()
                self.pace.others_at = self._clock()
            elif self._of_groups and self._group_binds.may_begin(self._limit.now, len(self._of_groups)):
                result, node_name = self._of_groups.popleft()
                self._group_binds.under_way += 1
            else:
                break
            self._sending += 1
            if not self._sent_at_once(result, node_name):
                self._tasks.create_task(self._carry_out(result, node_name, None))
        self._wake()

    def _sent_at_once(self, result: ScheduleResult, node_name: str) -> bool:
        ended = partial(self._ended, result, node_name, self._clock())
        try:
            return self._begin(result.pod, node_name, ended)
        except Exception as error:
            # Nothing was sent. The slow path fails in the same way and reports it.
            self._observer.bind_failed(result.pod, node_name, f"{type(error).__name__}: {error}")
            return False

    def _ended(self, result: ScheduleResult, node_name: str, began: float, answer: BindResult | AlreadySent) -> None:
        """Handle a request's end: a final result, or `AlreadySent` if a task must retry. The event loop calls it."""
        if self._tasks is None:
            # When `run` was cancelled, everything was left in its state.
            self._sending -= 1
            self._group_binds.under_way -= result.in_group
        elif isinstance(answer, AlreadySent):
            if answer.failure.throttles:
                self._limit.refused()
            self._tasks.create_task(self._carry_out(result, node_name, answer))
        else:
            took = self._clock() - began
            self._answered(took)
            self._observer.bound(answer.outcome, took, result.pod, node_name)
            if not self._answers:
                asyncio.get_running_loop().call_soon(self._finish_answered)
            self._answers.append((result, node_name, answer))

    def _finish_answered(self) -> None:
        """Finish together the binds that were answered in one turn of the event loop (docs/decisions/0014)."""
        answers, self._answers = self._answers, []
        for result, node_name, answer in answers:
            if self._tasks is not None:
                try:
                    self._finish(result, node_name, answer)
                except Exception as error:
                    self._broken(result, node_name, error)
        self._over(len(answers), sum([result.in_group for result, _, _ in answers]))

    async def _carry_out(self, result: ScheduleResult, node_name: str, already_sent: AlreadySent | None) -> None:
        try:
            answer = await self._open.bind_while_it_helps(result.pod, node_name, already_sent)
            if self._open.is_open(result.pod, answer) and self._tasks is not None:
                self._in_doubt += 1
                self._tasks.create_task(self._wait_for_outcome(result, node_name, answer))
            else:
                self._finish(result, node_name, answer)
        except StoreWentBack:
            raise
        except Exception as error:
            self._broken(result, node_name, error)
        except asyncio.CancelledError:
            # `run` is cancelled too: binds that end from now on must not start others.
            self._tasks = None
            raise
        finally:
            self._over(1, int(result.in_group))

    def _over(self, binds: int, of_groups: int) -> None:
        self._sending -= binds
        self._group_binds.under_way -= of_groups
        self.send()
        self._check_idle()

    def _review_idle(self) -> None:
        self._idle.clear()
        self._check_idle()

    def _check_idle(self) -> None:
        waiting = self._results or self._accepted or self._of_groups
        if not (waiting or self._sending or self._prebind.writing):
            self._idle.set()

    def _answered(self, took: float) -> None:
        self._limit.answered(took, under_way=self._sending)

    async def _wait_for_outcome(self, result: ScheduleResult, node_name: str, answer: BindResult) -> None:
        try:
            self._finish(result, node_name, await self._open.settled(result.pod, node_name, answer))
        except StoreWentBack:
            raise
        except Exception as error:
            self._broken(result, node_name, error)
        finally:
            self._in_doubt -= 1

    def _finish(self, result: ScheduleResult, node_name: str, answer: BindResult) -> None:
        """Act on the outcome of a bind; `docs/bind-outcomes.md` has the table."""
        pod, prebind = result.pod, self._prebind if result.reserves else None
        if answer.outcome is BindOutcome.BOUND:
            if prebind is not None:
                prebind.bound(pod)
            self._cluster.ledger.confirm(pod.uid)
            self._unseen.answered.append((self._clock(), pod, node_name))
            self._scheduled(result, node_name)
        elif self._others.settle(result, node_name, answer):
            return
        if prebind is not None:
            prebind.over(pod)

    def _scheduled(self, result: ScheduleResult, node_name: str) -> None:
        entry, pod, owner = result.entry, result.pod, result.owner
        owner.attempts.scheduled(entry)
        owner.attempts.done(pod.uid)
        self._observer.pod_scheduled(pod, node_name, result.started)
        if entry.attempts > 1:
            owner.failures.overcome(pod, node_name, started=result.started)
        if not result.is_reported:
            self._messenger.scheduled(pod, node_name)


def _limit(most: int, *, adapts: bool) -> AdaptiveConcurrency:
    return AdaptiveConcurrency(most) if adapts else AdaptiveConcurrency(most, least=most)
