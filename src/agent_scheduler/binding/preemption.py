"""Preemption: evicts pods of lower priority for a pod that every node refused; chosen in the cycle, sent by tasks.

    refused ──> Evaluator: victims, node ──> pod gated and nominated ──> victims evicted, a task each
                   └─ none: reason in the message                           ├─ all sent: no longer gated
                                                                            └─ one failed: no nomination, backoff

A worker calls `attempt` in its cycle, on the snapshot that refused the pod, and continues; tasks of `run` send the
requests. Meanwhile the pod waits behind `PreemptionGate` (asynchronous preemption, KEP-4832), since a retry
would only find victims that are about to leave. The victims' end wakes it like any refused pod, and the nomination
reserves the room until then.

Guarantees: no pod is evicted for a pod that no longer waits for that node; a pod has at most one preemption under way;
victims whose eviction the watch has not yet delivered count as leaving, so no other pods are evicted in their place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.plugins.default_preemption import NAME, WAITING
from agent_scheduler.engine.preemption.dry_run import Candidate
from agent_scheduler.engine.preemption.evaluator import NO_CLAIMS, TERMINATING, Evaluator, with_preemption
from agent_scheduler.engine.preemption.nominated import NominatedPods
from agent_scheduler.engine.preemption.pdbs import PDBs
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.state.podclaims import ClaimDemand
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.errors import Failure
from kube_client.eviction import Evicted
from kube_client.retry import Backoff

from .background import Background
from .runtime import Runtime

#: Concurrent eviction requests.
EVICTION_CONCURRENCY = 8


#: Seconds within which the watch reports the deletion of a victim after the API server has confirmed its eviction.
_SEEN_WITHIN: Final = 30.0
#: The delay of a pod's next preemption after one of its evictions has failed.
_EVICTION_BACKOFF = Backoff(initial=1.0, cap=60.0)
#: Outcomes after which the watch is about to report the victim's deletion.
_LEAVES: Final = frozenset({Evicted.DELETED, Evicted.GONE})


class EvictCall(Protocol):
    """Evicts one pod; never raises for errors of the network or the server.

    `wanted` is called immediately before each request.
    """

    async def __call__(
        self, victim: PodInfo, *, message: str, wanted: Callable[[], bool]
    ) -> tuple[Evicted, Failure | None]: ...


class PreemptionGate:
    """Keeps pods out of activeQ while others are evicted for them. `Preemption` owns the set.

    It opens when the last request has been answered. The end of a victim does not open it, so events are not matched
    against gated pods: each end of a victim would be matched against all of them.
    """

    name = NAME
    activates = True

    def __init__(self) -> None:
        #: UIDs (kube-scheduler: `preempting`).
        self.gated: set[str] = set()

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        return WAITING if pod.uid in self.gated else None


class PreemptionCalls(NamedTuple):
    """The requests that preemption makes."""

    evict: EvictCall
    #: Called for a pod with resource claims that every node refused; returns the text for its message.
    deallocate: Callable[[PodInfo, ClaimDemand], str]
    #: Waits until pods are known as of the call.
    caught_up: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _EvictionJob:
    pod: PodInfo
    candidate: Candidate
    nominates: bool


class PreemptionResult(NamedTuple):
    """The result of an attempt: `refusal` includes the preemption's message.

    `nominated` is the new nomination, "" to remove it, None to keep it.
    """

    refusal: Refusal
    nominated: str | None = None
    candidate: Candidate | None = None


class Preemption:
    """Owner of the preemptions under way."""

    def __init__(
        self,
        runtime: Runtime,
        state: SharedState,
        *,
        calls: PreemptionCalls,
        pdbs: PDBs,
        gate: PreemptionGate,
        profiles: Mapping[str, Profile],
    ) -> None:
        self._cluster = state.cluster
        self._columns = state.snapshot.columns
        self.nominations = state.nominations
        self._evaluator = Evaluator(state.cluster.ledger, state.snapshot.columns, pdbs, state.nominations)
        self._gate = gate
        self._evict, self.deallocate, self._caught_up = calls
        self._messenger = runtime.messenger
        self._observer = runtime.observer
        self._timing = runtime.timing
        self._profiles = profiles
        self._background = Background()
        #: UID of each victim that the watch does not yet report as leaving -> UIDs of the pods that it may leave for.
        self._leaving: dict[str, set[str]] = {}
        #: UID of each pod for which others are being evicted, and their node.
        self._under_way: dict[str, str] = {}
        #: UIDs of pods whose last preemption failed recently, and their numbers of consecutive failures.
        self._backing_off: set[str] = set()
        self._failed: dict[str, int] = {}

    def reconfigure(self, profiles: Mapping[str, Profile]) -> None:
        """Use these profiles from the next cycle on. Drops unsent evictions for pods that may no longer preempt."""
        self._profiles = profiles
        preempting = {name for name, profile in profiles.items() if profile.preemption is not None}
        for uid in list(self._under_way):
            pod = self._cluster.pods.get(uid)
            if pod is None or pod.scheduler_name not in preempting:
                del self._under_way[uid]

    # ---- in a worker's cycle

    def attempt(
        self, pod: PodInfo, view: ClassView, against: Mapping[int, NominatedPods], *, claims: str = NO_CLAIMS
    ) -> PreemptionResult:
        """Decide a preemption for a pod that every node refused. Changes nothing in the cluster; see `start`."""
        refused = self.nominations.refused(pod, view, self._columns, against)
        refusal = view.refusal(self._columns, refused)
        plugin = self._profiles[pod.scheduler_name].preemption
        nominated = self._cluster.queue.nominator.nominated.get(pod.uid, "")
        no_more = "" if nominated or pod.nominated_node_name else None
        if plugin is None or not refusal.plugins:
            # Its profile has no preemption, whatever an earlier profile has begun; or there is no node at all.
            return PreemptionResult(refusal, no_more)
        if pod.uid in self._backing_off:
            return PreemptionResult(refusal)
        self._observer.preemption_attempted()
        found = self._evaluator.preempt(
            pod,
            view,
            refused,
            wanted=plugin.wanted,
            offset=lambda nodes: int(self._timing.rng() * nodes),
            nominated=nominated,
            against=against,
            leaving=self._unseen(),
        )
        if found.candidate is not None:
            # Other pods may take room that was free beside the victims. Then the victims' end makes no pod fit, and
            # only the pod's next attempt removes the nomination.
            refusal = refusal._replace(plugins=refusal.plugins | {NAME})
            return PreemptionResult(refusal, found.candidate.node_name, found.candidate)
        refusal = refusal._replace(message=with_preemption(refusal.message, found.message, claims))
        if found.message == TERMINATING:
            refusal = refusal._replace(plugins=refusal.plugins | {NAME})
        return PreemptionResult(refusal, no_more if found.clear else None)

    def gate(self, pod: PodInfo) -> None:
        """Gate `pod` until its preemption has ended; to be called before the pod is requeued."""
        self._gate.gated.add(pod.uid)

    def start(self, pod: PodInfo, candidate: Candidate, *, waits: bool, nominates: bool = True) -> None:
        """Start the evictions. `waits` is whether the pod was requeued; otherwise it is gone.

        `nominates` is whether the room is reserved for it, as it has been nominated to the node.
        """
        if not waits:
            self._gate.gated.discard(pod.uid)
            return
        self._observer.preempted(len(candidate.victims))
        for victim in candidate.victims:
            self._leaving.setdefault(victim.uid, set()).add(pod.uid)
        self._under_way[pod.uid] = candidate.node_name
        if nominates:
            self._clear_lower_nominations(pod, candidate.node_name)
        job = _EvictionJob(pod, candidate, nominates)
        self._background.start(partial(self._guarded, job), lambda: None)

    def _unseen(self) -> Set[str]:
        pods, leaving = self._cluster.pods, self._leaving
        if leaving:
            seen = [uid for uid in leaving if uid not in pods or pods[uid].deleting]
            for uid in seen:
                del leaving[uid]
        return leaving.keys()

    def _not_leaving(self, victim: str, preemptor: PodInfo) -> None:
        """Record that the victim does not leave for this pod; it may leave for another one."""
        others = self._leaving.get(victim, set())
        others.discard(preemptor.uid)
        if not others:
            self._leaving.pop(victim, None)

    def _clear_lower_nominations(self, pod: PodInfo, node_name: str) -> None:
        """Remove lower-priority nominations to the node, since those pods may no longer fit, and retry the pods."""
        cluster = self._cluster
        displaced = {other.uid: other for other in self.nominations.below(node_name, pod)}
        for uid, node in self._under_way.items():
            # The nomination may be missing if the watch has just delivered an older state.
            other = cluster.pods.get(uid)
            if node == node_name and other is not None and other.priority < pod.priority:
                displaced[uid] = other
        for uid, other in displaced.items():
            self._under_way.pop(uid, None)
            self._clear_nomination(other)
        cluster.queue.activate(displaced)

    def _clear_nomination(self, pod: PodInfo) -> None:
        self._cluster.queue.nominate(pod, "")
        self._messenger.nominated(pod, "")

    # ---- beside

    async def run(self) -> None:
        """Carry out preemptions until cancelled; remaining evictions are not sent."""
        try:
            await self._background.run()
        finally:
            self._gate.gated.clear()
            for kept in (self._leaving, self._under_way, self._backing_off, self._failed):
                kept.clear()

    async def _guarded(self, job: _EvictionJob) -> None:
        """Carry out a preemption; an error in it concerns only its pod, which is retried."""
        try:
            await self._carry_out(job)
        except Exception as error:
            uid = job.pod.uid
            self._observer.eviction_failed(job.pod.key, f"{type(error).__name__}: {error}")
            self._under_way.pop(uid, None)
            self._gate.gated.discard(uid)
            for victim in job.candidate.victims:
                self._not_leaving(victim.uid, job.pod)
            if self._cluster.queue.where(uid) is Place.GATED:
                self._cluster.queue.activate((uid,))

    async def _carry_out(self, job: _EvictionJob) -> None:
        victims = [victim for victim in job.candidate.victims if not victim.deleting]
        async with asyncio.TaskGroup() as tasks:
            evictions = {victim.uid: tasks.create_task(self._evict_one(job, victim)) for victim in victims}
        ended = {uid: eviction.result() for uid, eviction in evictions.items()}
        outcomes = set(ended.values())
        queue, uid, wanted = self._cluster.queue, job.pod.uid, self._is_wanted(job)
        self._under_way.pop(uid, None)
        self._gate.gated.discard(uid)
        if outcomes - _LEAVES:
            # Other pods may wait for the end of victims that now stay.
            on_node = queue.nominator.pods_for(job.candidate.node_name)
            queue.activate([other.uid for other in on_node if other.uid != uid])
        if wanted and Evicted.FAILED in outcomes:
            await self._back_off(job.pod)
        else:
            self._ungated(job, wanted=wanted)
        await self._await_terminations(job.pod, [each for each, how in ended.items() if how in _LEAVES])

    def _ungated(self, job: _EvictionJob, *, wanted: bool) -> None:
        """Retry the pod whose gate is open now, because its requests have ended without a failure."""
        queue, uid = self._cluster.queue, job.pod.uid
        self._failed.pop(uid, None)
        kept = queue.nominator.nominated.get(uid, "")
        if wanted and job.nominates and kept != job.candidate.node_name:
            # The watch has delivered an older state of the pod meanwhile.
            queue.nominate(self._cluster.pods[uid], job.candidate.node_name)
        if queue.where(uid) is Place.GATED:
            # A victim left while the pod was gated, and there may be none whose end is still to come.
            queue.activate((uid,))

    async def _await_terminations(self, pod: PodInfo, victims: Collection[str]) -> None:
        """Verify victims whose deletion is not delivered for long, since the watch may be silent.

        Those that stay count as staying again, and the pod is retried.
        """
        if not self._unseen() & set(victims):
            return
        await self._timing.sleep(_SEEN_WITHIN)
        if self._unseen() & set(victims):
            await self._caught_up()
        unseen = self._unseen() & set(victims)
        for uid in unseen:
            self._not_leaving(uid, pod)
        if unseen and self._cluster.waits(pod.uid):
            self._cluster.queue.activate((pod.uid,))

    async def _back_off(self, pod: PodInfo) -> None:
        """Remove the nomination and delay the pod's next preemption, since a victim could not be evicted.

        Until then, the pod may be placed wherever there is room.
        """
        queue, uid = self._cluster.queue, pod.uid
        self._clear_nomination(pod)
        self._backing_off.add(uid)
        # No event reports pods that found room since their last failure.
        for other in [other for other in self._failed if not self._cluster.waits(other)]:
            del self._failed[other]
        failed = self._failed[uid] = self._failed.get(uid, 0) + 1
        if queue.where(uid) is Place.GATED:
            queue.activate((uid,))
        await self._timing.sleep(_EVICTION_BACKOFF.delay(failed, self._timing.rng))
        self._backing_off.discard(uid)
        if self._cluster.waits(uid):
            queue.activate((uid,))
        else:
            self._failed.pop(uid, None)

    async def _evict_one(self, job: _EvictionJob, victim: PodInfo) -> Evicted:
        message = f"{job.pod.scheduler_name}: preempting to accommodate a higher priority pod"

        def wanted() -> bool:
            return self._is_wanted(job)

        try:
            outcome, failure = await self._evict(victim, message=message, wanted=wanted)
            problem = str(failure)
        except Exception as error:
            # The error must not affect the other victims' tasks and the gated pod.
            outcome, problem = Evicted.FAILED, f"{type(error).__name__}: {error}"
        if outcome is Evicted.DELETED:
            self._messenger.preempted(victim, job.pod, job.candidate.node_name)
        elif outcome is not Evicted.GONE:
            self._not_leaving(victim.uid, job.pod)
        if outcome is Evicted.FAILED:
            self._observer.eviction_failed(f"{victim.namespace}/{victim.name}", problem)
        return outcome

    def _is_wanted(self, job: _EvictionJob) -> bool:
        """Return whether the pod still waits for that node."""
        cluster, uid = self._cluster, job.pod.uid
        return cluster.waits(uid) and self._under_way.get(uid) == job.candidate.node_name
