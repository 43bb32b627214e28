"""Room for a pod that every node refused, by evicting pods of lower priority: chosen at once, carried out beside.

    refused ──> Evaluator: victims, node ──> pod gated and nominated ──> victims evicted, a task each
                   └─ nobody: why not, in the message                       ├─ all sent: no longer gated
                                                                            └─ one failed: no nomination, backoff

A worker asks `attempt` within its cycle, on the very snapshot that refused the pod, and goes on; the requests are sent
by tasks of `run`. Meanwhile the pod waits behind `gate` (kube-scheduler's asynchronous preemption, KEP-4832), since a
try would only find victims that are about to leave. It is woken by their end like any refused pod, and the nomination
keeps others from the room until then.

Guarantees: nobody is evicted for a pod that no longer waits for that node; a pod has one preemption under way; victims
that were evicted and are not yet seen to be count as leaving, so nobody else is evicted in their place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.plugins.default_preemption import NAME, WAITING
from agent_scheduler.engine.preemption.dry_run import Candidate
from agent_scheduler.engine.preemption.evaluator import NO_CLAIMS, TERMINATING, Evaluator, with_preemption
from agent_scheduler.engine.preemption.nominated import NominatedPods, Nominations
from agent_scheduler.engine.preemption.pdbs import PDBs
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.state.podclaims import Demand
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.errors import Failure
from agent_scheduler.kube.eviction import Evicted
from agent_scheduler.kube.retry import Backoff, Timing

#: Requests of evictions under way at a time.
EVICTION_CONCURRENCY = 8


#: Seconds in which the watch shows that a victim is leaving after the API server has said so.
_SEEN_WITHIN: Final = 30.0
#: How long a pod has nobody evicted after an eviction for it has failed.
_EVICTION_BACKOFF = Backoff(initial=1.0, cap=60.0)
#: What becomes of a victim that is about to be seen to leave.
_LEAVES: Final = frozenset({Evicted.DELETED, Evicted.GONE})


class EvictCall(Protocol):
    """Evicts one pod; `wanted` is asked at the moment of sending each request. Never raises for what network
    or server do."""

    async def __call__(
        self, victim: PodInfo, *, message: str, wanted: Callable[[], bool]
    ) -> tuple[Evicted, Failure | None]: ...


class PreemptionMessenger(Protocol):
    """Tells the API server. Returns at once."""

    def nominated(self, pod: PodInfo, node_name: str) -> None:
        """status.nominatedNodeName is `node_name` from now on, or, where that is empty, nothing."""

    def preempted(self, victim: PodInfo, preemptor: PodInfo, node_name: str) -> None:
        """A Preempted event on the victim."""


class PreemptionObserver(Protocol):
    def preemption_attempted(self) -> None:
        """It was looked for victims, found or not."""

    def preempted(self, victims: int) -> None:
        """So many pods are to be evicted for one."""

    def eviction_failed(self, victim: str, problem: str) -> None:
        """`victim` (namespace/name) could not be evicted."""


class Gate:
    """Keeps pods out of activeQ while others are evicted for them. Owner of who they are: `Preemption`.

    It opens when the last request has been answered, and no sooner if a victim has left, so no event is put to whom it
    holds back: each end of a victim would be put to all who wait here for others.
    """

    name = NAME
    activates = True

    def __init__(self) -> None:
        #: UIDs (kube-scheduler: `preempting`).
        self.gated: set[str] = set()

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        return WAITING if pod.uid in self.gated else None


@dataclass(frozen=True, slots=True)
class _Job:
    pod: PodInfo
    candidate: Candidate
    nominates: bool


class Attempt(NamedTuple):
    """`refusal` with what preemption has to say. `nominated`: where to, "" for nowhere any more, None for as before."""

    refusal: Refusal
    nominated: str | None = None
    candidate: Candidate | None = None


class Preemption:
    """Owner of the preemptions under way."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        snapshot: Snapshot,
        pdbs: PDBs,
        nominations: Nominations,
        gate: Gate,
        evict: EvictCall,
        deallocate: Callable[[PodInfo, Demand], str],
        caught_up: Callable[[], Awaitable[None]],
        messenger: PreemptionMessenger,
        observer: PreemptionObserver,
        timing: Timing,
        profiles: Mapping[str, Profile],
    ) -> None:
        """`deallocate` is called for a pod with resource claims that every node refused, and returns what the message
        says of that. `caught_up` returns once all is known of pods that was true when it was called."""
        self._cluster = cluster
        self._columns = snapshot.columns
        self.nominations = nominations
        self._evaluator = Evaluator(cluster.ledger, snapshot.columns, pdbs, nominations)
        self._gate = gate
        self._evict = evict
        self.deallocate = deallocate
        self._caught_up = caught_up
        self._messenger = messenger
        self._observer = observer
        self._timing = timing
        self._profiles = profiles
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        #: UID of each pod that was chosen as a victim and is not yet seen to be leaving, and of those it may leave for.
        self._leaving: dict[str, set[str]] = {}
        #: UID of each pod for which others are being evicted, and the node that they leave.
        self._under_way: dict[str, str] = {}
        #: UIDs of pods whose last preemption failed a moment ago, and how many failed in a row.
        self._backing_off: set[str] = set()
        self._failed: dict[str, int] = {}

    def reconfigure(self, profiles: Mapping[str, Profile]) -> None:
        """From the next cycle on choose by these. What is not yet sent for a pod that may no longer preempt is not."""
        self._profiles = profiles
        preempting = {name for name, profile in profiles.items() if profile.preemption is not None}
        for uid in list(self._under_way):
            pod = self._cluster.pods.get(uid)
            if pod is None or pod.scheduler_name not in preempting:
                del self._under_way[uid]

    # ---- in a worker's cycle

    def attempt(
        self, pod: PodInfo, view: ClassView, against: Mapping[int, NominatedPods], *, claims: str = NO_CLAIMS
    ) -> Attempt:
        """What to tell and do of a pod that every node refused. Changes nothing of the cluster; see `start`."""
        refused = self.nominations.refused(pod, view, self._columns, against)
        refusal = view.refusal(self._columns, refused)
        plugin = self._profiles[pod.scheduler_name].preemption
        nominated = self._cluster.queue.nominator.nominated.get(pod.uid, "")
        no_more = "" if nominated or pod.nominated_node_name else None
        if plugin is None or not refusal.plugins:
            # Nobody is evicted for it by this profile, whatever an earlier one has begun; or there is no node at all.
            return Attempt(refusal, no_more)
        if pod.uid in self._backing_off:
            return Attempt(refusal)
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
            # Somebody may take room that was free beside the victims': their end then makes nobody fit, and only the
            # pod's next try takes the nomination back.
            refusal = refusal._replace(plugins=refusal.plugins | {NAME})
            return Attempt(refusal, found.candidate.node_name, found.candidate)
        refusal = refusal._replace(message=with_preemption(refusal.message, found.message, claims))
        if found.message == TERMINATING:
            refusal = refusal._replace(plugins=refusal.plugins | {NAME})
        return Attempt(refusal, no_more if found.clear else None)

    def gate(self, pod: PodInfo) -> None:
        """From now on `pod` waits for its preemption; before it is put back into the queue."""
        self._gate.gated.add(pod.uid)

    def start(self, pod: PodInfo, candidate: Candidate, *, waits: bool, nominates: bool = True) -> None:
        """Evict the victims, beside. `waits`: whether the pod has gone back to the queue; it is gone otherwise.
        `nominates`: whether their room is kept for it, as it has been nominated to the node."""
        if not waits:
            self._gate.gated.discard(pod.uid)
            return
        self._observer.preempted(len(candidate.victims))
        for victim in candidate.victims:
            self._leaving.setdefault(victim.uid, set()).add(pod.uid)
        self._under_way[pod.uid] = candidate.node_name
        if nominates:
            self._clear_lower_nominations(pod, candidate.node_name)
        self._jobs.put_nowait(_Job(pod, candidate, nominates))

    def _unseen(self) -> Set[str]:
        pods, leaving = self._cluster.pods, self._leaving
        if leaving:
            seen = [uid for uid in leaving if uid not in pods or pods[uid].deleting]
            for uid in seen:
                del leaving[uid]
        return leaving.keys()

    def _not_leaving(self, victim: str, preemptor: PodInfo) -> None:
        """The pod of this UID does not leave for this one; perhaps it does for another one."""
        others = self._leaving.get(victim, set())
        others.discard(preemptor.uid)
        if not others:
            self._leaving.pop(victim, None)

    def _clear_lower_nominations(self, pod: PodInfo, node_name: str) -> None:
        """Pods of lower priority may not fit on the node any more; they look for another one now."""
        cluster = self._cluster
        displaced = {other.uid: other for other in self.nominations.below(node_name, pod)}
        for uid, node in self._under_way.items():
            # The nomination may be hidden, if the watch has just shown an older one.
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
        """Carry preemptions out until cancelled. What was not evicted by then is not."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    job = await self._jobs.get()
                    tasks.create_task(self._carry_out(job))
        finally:
            self._gate.gated.clear()
            for kept in (self._leaving, self._under_way, self._backing_off, self._failed):
                kept.clear()

    async def _carry_out(self, job: _Job) -> None:
        victims = [victim for victim in job.candidate.victims if not victim.deleting]
        async with asyncio.TaskGroup() as tasks:
            evictions = {victim.uid: tasks.create_task(self._evict_one(job, victim)) for victim in victims}
        ended = {uid: eviction.result() for uid, eviction in evictions.items()}
        outcomes = set(ended.values())
        queue, uid, wanted = self._cluster.queue, job.pod.uid, self._is_wanted(job)
        self._under_way.pop(uid, None)
        self._gate.gated.discard(uid)
        if outcomes - _LEAVES:
            # Others may wait for the end of victims that stay now.
            on_node = queue.nominator.pods_for(job.candidate.node_name)
            queue.activate([other.uid for other in on_node if other.uid != uid])
        if wanted and Evicted.FAILED in outcomes:
            await self._back_off(job.pod)
        else:
            self._ungated(job, wanted=wanted)
        await self._await_terminations(job.pod, [each for each, how in ended.items() if how in _LEAVES])

    def _ungated(self, job: _Job, *, wanted: bool) -> None:
        """No request for the pod is under way any more, and none has failed."""
        queue, uid = self._cluster.queue, job.pod.uid
        self._failed.pop(uid, None)
        kept = queue.nominator.nominated.get(uid, "")
        if wanted and job.nominates and kept != job.candidate.node_name:
            # The watch has shown an older state of the pod meanwhile.
            queue.nominate(self._cluster.pods[uid], job.candidate.node_name)
        if queue.where(uid) is Place.GATED:
            # A victim left while the pod was gated, and perhaps there is none whose end is still to come.
            queue.activate((uid,))

    async def _await_terminations(self, pod: PodInfo, victims: Collection[str]) -> None:
        """Who is to leave and is not seen to for long is looked for, as it may be the watch that is silent. Who stays
        counts as staying again, and the pod is decided on anew."""
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
        """Somebody could not be evicted, and perhaps cannot be for long. Until it is tried again, the pod may go where
        there is room."""
        queue, uid = self._cluster.queue, pod.uid
        self._clear_nomination(pod)
        self._backing_off.add(uid)
        # Of those that found room since their last failure nobody tells.
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

    async def _evict_one(self, job: _Job, victim: PodInfo) -> Evicted:
        message = f"{job.pod.scheduler_name}: preempting to accommodate a higher priority pod"

        def wanted() -> bool:
            return self._is_wanted(job)

        try:
            outcome, failure = await self._evict(victim, message=message, wanted=wanted)
            problem = str(failure)
        except Exception as error:
            # Whatever broke, the other victims' tasks and the pod behind the gate must not suffer for it.
            outcome, problem = Evicted.FAILED, f"{type(error).__name__}: {error}"
        if outcome is Evicted.DELETED:
            self._messenger.preempted(victim, job.pod, job.candidate.node_name)
        elif outcome is not Evicted.GONE:
            self._not_leaving(victim.uid, job.pod)
        if outcome is Evicted.FAILED:
            self._observer.eviction_failed(f"{victim.namespace}/{victim.name}", problem)
        return outcome

    def _is_wanted(self, job: _Job) -> bool:
        """Whether the pod still waits, and for that node."""
        cluster, uid = self._cluster, job.pod.uid
        return cluster.waits(uid) and self._under_way.get(uid) == job.candidate.node_name
