"""Reserve, Permit and PreBind: what happens to a pod before its bind if a plugin reserves, awaits or writes anything.

    judged ──> reserve, with the judging ──> permit ──> nothing to write or to wait for: the bind
                   └─> refused: next one        └─> else a task: permitted ──> write ──> wait ──> all there: the bind
                                                                    └───────────┴─────────┴─> failed: nothing stays

A node is reserved as the cluster is known, in the same step that assumes the pod. What has to be written, first of all
where the pod is about to go, is written a request at a time, outside the places that binds have. What is written, and
what becomes of that when an attempt fails, is the plugins' (`engine.framework.prebind`).

Guarantees: a reservation ends with its task, or with the pod's bind; whoever waits for what it gives back is notified;
a pod is bound only when all plugins with a reservation for it have said so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.decide.compiled import (
    CompiledFilter,
    compile_filters,
    first_refusing,
)
from agent_scheduler.engine.decide.decide import CandidateNode
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.reserving import Reservations, reserve
from agent_scheduler.engine.framework.plugin import Depends, Profile
from agent_scheduler.engine.framework.prebind import Attempt, PreBind, Reserve, Writes
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.bind import DEFAULT_POLICY
from agent_scheduler.kube.errors import StoreWentBack
from agent_scheduler.kube.retry import Timing
from apimachinery.times import time_text

from .claim_writer import PatchCall
from .messenger import Expectations
from .plugin_writes import Background
from .result import ScheduleResult
from .waiting_pods import Waiting, WaitingPods

#: Requests of PreBind plugins under way at a time.
PREBIND_CONCURRENCY: Final = 32

#: Called with how it ended for a pod: which plugin rejected it, what went wrong, or an empty text.
Ended = Callable[[ScheduleResult, str, Refusal | str], None]


class Reserved(NamedTuple):
    """What plugins have taken for a pod and have something to write for."""

    parts: tuple[tuple[PreBind, Any], ...]
    #: What Permit plugins have the pod wait for; None: they allow it.
    waiting: Waiting | None = None

    @property
    def waits_for_others(self) -> bool:
        return any(plugin.waits_for_others for plugin, _ in self.parts)


class Unavailable(NamedTuple):
    """The node has no longer what the pod needs; nothing is taken."""


UNAVAILABLE: Final = Unavailable()
#: For a pod that has nothing to wait for but its turn.
NOTHING: Final = Reserved(())


@dataclass(slots=True)
class _Job:
    result: ScheduleResult
    node_name: str
    reserved: Reserved
    #: Those plugins whose PreBind has begun, with the reservations of each.
    begun: list[tuple[PreBind, Attempt]] = field(default_factory=list)

    @property
    def written(self) -> list[tuple[PreBind, Attempt]]:
        """Whose writes are taken back if the attempt fails."""
        return [(plugin, attempt) for plugin, attempt in self.begun if plugin.takes_back]


class PreBinder:
    """Owner of the pods whose PreBind is under way."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        profile_of: Callable[[str], Profile],
        writes: Writes,
        patch: PatchCall,
        background: Background,
        timing: Timing,
    ) -> None:
        self._cluster = cluster
        self._profile_of = profile_of
        self._expectations = Expectations(cluster, patch)
        self._clock, self._now = timing.clock, timing.now
        self._waiting_pods = WaitingPods()
        self._background = background
        self._writes = writes
        #: UID of each pod that something is reserved for -> the plugins that have done so: the profile may be gone by
        #: the pod's bind.
        self._taken: dict[str, list[Reserve]] = {}
        self._ended: Ended | None = None
        self._writing_changed: Callable[[], None] = lambda: None
        #: UID of each pod that is bound with something written for it that is taken back if its bind is refused.
        self._written: dict[str, list[tuple[PreBind, Attempt]]] = {}
        #: Pods whose PreBind is under way, or being undone.
        self.under_way = 0
        #: Those of them that wait for nobody but the API server.
        self.writing = 0

    # ---- in the step that judges

    def filters(self, result: ScheduleResult) -> Sequence[CompiledFilter] | None:
        """The filters of a pod with volumes on storage as it is now; None if no node will do any more."""
        if result.cls.volumes is None or self._cluster.catalogue.version == result.catalogue_version:
            return result.filters
        profile = self._profile_of(result.pod.scheduler_name)
        compiled, rejection = compile_filters(profile, result.cls, self._cluster.handle)
        return compiled if rejection is None else None

    def fitting(
        self, result: ScheduleResult, candidates: Sequence[CandidateNode], filters: Sequence[CompiledFilter]
    ) -> Sequence[CandidateNode]:
        """The candidates on which `filters` agree with those of the decision, rows being as they were."""
        if filters is result.filters:
            return candidates
        ledger = self._cluster.ledger
        # What depends on the cluster is asked of whichever row is taken.
        again = [each for each in filters if each.plugin.depends is not Depends.CLUSTER]
        return [
            each
            for each in candidates
            if ledger.rows.get(each.node_name) == each.row
            and first_refusing(again, ledger.columns, each.row) is None
        ]

    def reserve(
        self, result: ScheduleResult, candidate: CandidateNode, filters: Sequence[CompiledFilter]
    ) -> Reserved | Unavailable | None:
        """Take what the pod needs of the candidate; None where there is nothing that has to be written."""
        node, pod = self._cluster.ledger.node(candidate.node_name), result.pod
        if node is None:
            return UNAVAILABLE
        profile, at = self._profile_of(pod.scheduler_name), time_text(self._now())
        reservations = reserve(profile, filters, pod, node, at=at, writes=self._writes)
        return UNAVAILABLE if reservations is None else self.take_over(pod, node, reservations)

    def cancel(self, pod: PodInfo) -> None:
        """In the step of `reserve`: the pod is not assumed after all."""
        self._waiting_pods.end(pod)
        self.give_back(pod)

    def take_over(self, pod: PodInfo, node: NodeInfo, reservations: Reservations) -> Reserved | None:
        """What was reserved for the pod on the node is this binder's to give back. None as of `reserve`."""
        profile = self._profile_of(pod.scheduler_name)
        pre_binds = {plugin.name: plugin for plugin in profile.pre_binds}
        self._taken[pod.uid] = [plugin for plugin, _ in reservations]
        parts: list[tuple[PreBind, Any]] = []
        for plugin, reservation in reservations:
            pre_bind = pre_binds.get(plugin.name)
            if pre_bind is not None and pre_bind.is_due(pod, reservation, self._writes):
                parts.append((pre_bind, reservation))
        waiting = self._waiting_pods.ask(profile.permits, pod, node)
        return Reserved(tuple(parts), waiting) if parts or waiting is not None else None

    def give_back(self, pod: PodInfo) -> None:
        """What the pod still counts on is for others, but for what has been written."""
        for plugin in self._taken.pop(pod.uid, ()):
            plugin.unreserve(pod, self._writes)

    def bound(self, pod: PodInfo) -> None:
        """What was reserved and written for the pod is its own."""
        for plugin in self._taken.pop(pod.uid, ()):
            plugin.bound(pod, self._writes)

    # ---- beside

    def start(self, result: ScheduleResult, node_name: str, reserved: Reserved) -> None:
        """Have all written; the pod is assumed on the node already."""
        job = _Job(result, node_name, reserved)
        self._begin(not reserved.waits_for_others)
        self._background.start(lambda: self._carry_out(job), lambda: self._drop(job))

    def _begin(self, writes: bool) -> None:
        self.under_way += 1
        self.writing += writes

    def _end(self, writes: bool) -> None:
        self.under_way -= 1
        self.writing -= writes

    def over(self, pod: PodInfo) -> None:
        """The bind has ended in a way that leaves what was written for the pod to it, or to others."""
        for plugin, attempt in self._written.pop(pod.uid, ()):
            plugin.keep(attempt)

    def failed(self, result: ScheduleResult, node_name: str, problem: str) -> bool:
        """The bind was refused. Whether anything was written for it that is taken back before it is told as ended."""
        written = self._written.pop(result.pod.uid, None)
        if not written:
            return False

        async def undo() -> None:
            try:
                await _take_back(written)
            finally:
                self._end(True)
            self._tell(result, node_name, problem)

        self._begin(True)
        self._background.start(undo, lambda: self._end(True))
        return True

    async def run(self, ended: Ended, writing_changed: Callable[[], None]) -> None:
        """Write until cancelled; what was reserved then is given back. `writing_changed` is called when a pod that was
        being written for waits for somebody else, and when it no longer does."""
        self._ended, self._writing_changed = ended, writing_changed
        await self._background.run()

    async def _carry_out(self, job: _Job) -> None:
        pod, writes = job.result.pod, not job.reserved.waits_for_others
        try:
            await self._expectations.tell(pod, job.node_name, lambda: self._is_wanted(job))
            problem = (
                await self._permitted(job) or await self._until_its_turn(job) or await self._write_all(job)
            )
        except (asyncio.CancelledError, StoreWentBack):
            self._drop(job)
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if not problem:
            if job.written:
                self._written[pod.uid] = job.written
            self._end(writes)
            self._tell(job.result, job.node_name, "")
            return
        try:
            doubts = [plugin.in_doubt(attempt) for plugin, attempt in job.written]
            if still_held := [each for each in doubts if each is not None]:
                self._undo_when_settled(job, lambda: any(each() for each in still_held))
            else:
                self._undo(pod)
                await _take_back(job.written)
        finally:
            self._end(writes)
        self._tell(job.result, job.node_name, problem)

    async def _permitted(self, job: _Job) -> Refusal | str:
        """As `Waiting.settled`."""
        waiting = job.reserved.waiting
        if waiting is None:
            return ""
        with self._waiting(not job.reserved.waits_for_others):
            try:
                return await waiting.settled(self._clock, lambda: self._is_wanted(job))
            finally:
                self._waiting_pods.end(job.result.pod)

    async def _until_its_turn(self, job: _Job) -> str:
        """Returns once the pod may be bound that stands by; or why it is not to be, if it waits no more, has lost its
        node, or nobody is left who is to run before it. There is no limit: others of its Job run for as long as they
        do."""
        pod, cluster = job.result.pod, self._cluster
        if not pod.stands_by:
            return ""
        writes, others = not job.reserved.waits_for_others, cluster.standing_by
        with self._waiting(writes), others.waiting(pod.uid) as changed:
            while self._is_wanted(job) and cluster.pods[pod.uid].stands_by:
                if job.node_name not in cluster.ledger.rows:
                    return f"node {job.node_name} is gone"
                if others.is_alone(pod.uid):
                    return "no pod that is to run before it has room any more"
                changed.clear()
                await changed.wait()
        return "" if self._is_wanted(job) else "the pod no longer waits"

    async def _write_all(self, job: _Job) -> str:
        """What went wrong; empty once all is written and there."""
        for plugin, reservation in job.reserved.parts:
            attempt = Attempt(
                pod=job.result.pod,
                node_name=job.node_name,
                reservation=reservation,
                writes=self._writes,
                wanted=lambda: self._is_wanted(job),
                waiting=lambda: self._waiting(not job.reserved.waits_for_others),
            )
            job.begun.append((plugin, attempt))
            problem = await plugin.pre_bind(attempt)
            if problem:
                return f'running PreBind plugin "{plugin.name}": {problem}'
        return ""

    @contextmanager
    def _waiting(self, writes: bool) -> Iterator[None]:
        self.writing -= writes
        self._writing_changed()
        try:
            yield
        finally:
            self.writing += writes
            self._writing_changed()

    def _undo(self, pod: PodInfo) -> None:
        self._cluster.forget(pod)
        self.give_back(pod)

    def _undo_when_settled(self, job: _Job, is_held: Callable[[], bool]) -> None:
        """The capacity is for others at once, but what was written for is not as long as it may still be carried out: a
        request that got no answer may be after this process has turned to something else."""
        pod, written = job.result.pod, job.written
        self._cluster.forget(pod)
        kept = {plugin.name for plugin, _ in written}
        reserves = self._taken.pop(pod.uid, [])
        for plugin in reserves:
            if plugin.name not in kept:
                plugin.unreserve(pod, self._writes)

        def unreserve() -> None:
            for plugin in reserves:
                if plugin.name in kept:
                    plugin.unreserve(pod, self._writes)

        async def undo() -> None:
            await asyncio.sleep(DEFAULT_POLICY.settles)
            # The pod's next attempt begins as soon as nothing is assumed: what this one wrote has to be gone by then.
            if is_held():
                await _take_back(written)
            if is_held():
                unreserve()

        self._background.start(undo, unreserve)

    def _drop(self, job: _Job) -> None:
        self._waiting_pods.end(job.result.pod)
        self._end(not job.reserved.waits_for_others)
        self._undo(job.result.pod)

    def _tell(self, result: ScheduleResult, node_name: str, problem: Refusal | str) -> None:
        assert self._ended is not None, "work is done in `run`"
        self._ended(result, node_name, problem)

    def _is_wanted(self, job: _Job) -> bool:
        pod = job.result.pod
        return self._cluster.waits(pod.uid) and self._cluster.pods[pod.uid].cls is pod.cls


async def _take_back(written: Sequence[tuple[PreBind, Attempt]]) -> None:
    for plugin, attempt in written:
        undo = plugin.take_back(attempt)
        if undo is not None:
            await undo
