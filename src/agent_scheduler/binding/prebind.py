"""Reserve, Permit and PreBind: the steps before a bind in which plugins reserve, wait or write.

    judged ──> reserve, with the judging ──> permit ──> nothing to write or to wait for: the bind
                   └─> refused: next one        └─> else a task: permitted ──> write ──> wait ──> all ready: the bind
                                                                    └───────────┴─────────┴─> failed: all undone

Reservations use the current state of the cluster, in the step that assumes the pod. Writes, the pod's nominated node
first, are sent one request at a time and do not count as concurrent binds. The plugins own what is written and what
happens to it if an attempt fails (`engine.framework.prebind`).

Guarantees: a reservation ends with its task, or with the pod's bind; those that wait for its resources are notified; a
pod is bound only if all plugins with a reservation for it have agreed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.decide.compiled import CompiledFilter, compile_filters, first_refusing
from agent_scheduler.engine.decide.decide import CandidateNode
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.reserving import Reservations, reserve
from agent_scheduler.engine.framework.plugin import Depends, Profile
from agent_scheduler.engine.framework.prebind import Attempt, PreBind, Reserve, Writes
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from apimachinery.times import time_text
from kube_client.bind import DEFAULT_POLICY
from kube_client.errors import StoreWentBack

from .background import Background
from .claim_writer import PatchCall
from .messenger import Expectations
from .result import ScheduleResult
from .runtime import Runtime
from .waiting_pods import PermitWaitingPod, WaitingPodsMap

#: Concurrent requests of PreBind plugins.
PREBIND_CONCURRENCY: Final = 32

#: Maximum seconds between two writes of the nominated node of a pod that stands by, until the pod shows it.
_LONGEST_PAUSE: Final = 60.0

#: Called when PreBind has ended for a pod, with the rejecting plugin, an error message, or "".
Ended = Callable[[ScheduleResult, str, Refusal | str], None]


class PreBindCalls(NamedTuple):
    """The callbacks of the binder, which it gives with each pod."""

    ended: Ended
    #: Called when a pod begins or ceases to wait for something other than the API server.
    writing_changed: Callable[[], None]


class Reserved(NamedTuple):
    """The reservations of plugins for a pod, which need a write."""

    parts: tuple[tuple[PreBind, Any], ...]
    #: The pod's wait for Permit plugins; None if they allow it.
    waiting: PermitWaitingPod | None = None

    @property
    def waits_for_others(self) -> bool:
        return any(plugin.waits_for_others for plugin, _ in self.parts)


class Unavailable(NamedTuple):
    """The result if the node no longer has what the pod needs; nothing is reserved."""


UNAVAILABLE: Final = Unavailable()
#: The result for a pod that waits only for its turn.
NOTHING: Final = Reserved(())


@dataclass(slots=True)
class _PreBindRun:
    result: ScheduleResult
    node_name: str
    reserved: Reserved
    calls: PreBindCalls
    #: The plugins whose PreBind has begun, with the reservations of each.
    begun: list[tuple[PreBind, Attempt]] = field(default_factory=list)

    @property
    def written(self) -> list[tuple[PreBind, Attempt]]:
        """The writes that are undone if the attempt fails."""
        return [(plugin, attempt) for plugin, attempt in self.begun if plugin.takes_back]


class PreBinder:
    """Owner of the pods whose PreBind is under way."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        *,
        profile_of: Callable[[str], Profile],
        writes: Writes,
        patch: PatchCall,
        background: Background,
    ) -> None:
        """Create the PreBinder; `profile_of` returns the current profile of a schedulerName."""
        self._cluster = cluster
        self._profile_of = profile_of
        self._expectations = Expectations(cluster, patch)
        self._clock, self._now = runtime.timing.clock, runtime.timing.now
        self._waiting_pods = WaitingPodsMap()
        self._background = background
        self._writes = writes
        #: UID of each pod with reservations -> the plugins that made them, since the profile may be gone by the pod's
        #: bind.
        self._taken: dict[str, list[Reserve]] = {}
        #: UID of each pod whose bind is under way -> the writes that are undone if the bind is refused.
        self._written: dict[str, list[tuple[PreBind, Attempt]]] = {}
        #: Pods whose PreBind is under way, or is being undone.
        self.under_way = 0
        #: Those of them that wait only for the API server.
        self.writing = 0

    # ---- in the step that judges

    def filters(self, result: ScheduleResult) -> Sequence[CompiledFilter] | None:
        """Return the filters of a pod with volumes, by the current storage; None if no node is feasible now."""
        if result.cls.volumes is None or self._cluster.catalogue.version == result.catalogue_version:
            return result.filters
        profile = self._profile_of(result.pod.scheduler_name)
        compiled, rejection = compile_filters(profile, result.cls, self._cluster.handle)
        return compiled if rejection is None else None

    def fitting(
        self, result: ScheduleResult, candidates: Sequence[CandidateNode], filters: Sequence[CompiledFilter]
    ) -> Sequence[CandidateNode]:
        """Return the candidates that pass `filters` on unchanged rows; all if `filters` are the decision's."""
        if filters is result.filters:
            return candidates
        ledger = self._cluster.ledger
        # Filters that depend on the cluster are checked for the row that is chosen.
        again = [each for each in filters if each.plugin.depends is not Depends.CLUSTER]
        return [
            each
            for each in candidates
            if ledger.rows.get(each.node_name) == each.row and first_refusing(again, ledger.columns, each.row) is None
        ]

    def reserve(
        self, result: ScheduleResult, candidate: CandidateNode, filters: Sequence[CompiledFilter]
    ) -> Reserved | Unavailable | None:
        """Reserve what the pod needs on the candidate; None if nothing needs a write."""
        node, pod = self._cluster.ledger.node(candidate.node_name), result.pod
        if node is None:
            return UNAVAILABLE
        profile, at = self._profile_of(pod.scheduler_name), time_text(self._now())
        reservations = reserve(profile, filters, pod, node, at=at, writes=self._writes)
        return UNAVAILABLE if reservations is None else self.take_over(pod, node, reservations)

    def cancel(self, pod: PodInfo) -> None:
        """Undo `reserve` in the same step, because the pod is not assumed."""
        self._waiting_pods.end(pod)
        self.give_back(pod)

    def take_over(self, pod: PodInfo, node: NodeInfo, reservations: Reservations) -> Reserved | None:
        """Make this binder the owner of reservations for the pod on the node. Returns None as `reserve` does."""
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
        """Release the pod's reservations, except for what has been written."""
        for plugin in self._taken.pop(pod.uid, ()):
            plugin.unreserve(pod, self._writes)

    def bound(self, pod: PodInfo) -> None:
        """Keep the pod's reservations and writes for it, since it is bound."""
        for plugin in self._taken.pop(pod.uid, ()):
            plugin.bound(pod, self._writes)

    # ---- beside

    def start(self, result: ScheduleResult, node_name: str, reserved: Reserved, calls: PreBindCalls) -> None:
        """Start the writes; the pod is assumed on the node already."""
        job = _PreBindRun(result, node_name, reserved, calls)
        self._begin(not reserved.waits_for_others)
        self._background.start(lambda: self._carry_out(job), lambda: self._drop(job))

    def _begin(self, writes: bool) -> None:
        self.under_way += 1
        self.writing += writes

    def _end(self, writes: bool) -> None:
        self.under_way -= 1
        self.writing -= writes

    def over(self, pod: PodInfo) -> None:
        """Keep the writes for the pod, since its bind has ended and needs no undo."""
        for plugin, attempt in self._written.pop(pod.uid, ()):
            plugin.keep(attempt)

    def failed(self, result: ScheduleResult, node_name: str, problem: str, ended: Ended) -> bool:
        """Undo the writes for a pod whose bind was refused, then call `ended`. Returns whether there are any."""
        written = self._written.pop(result.pod.uid, None)
        if not written:
            return False

        async def undo() -> None:
            try:
                await _take_back(written)
            finally:
                self._end(True)
            ended(result, node_name, problem)

        self._begin(True)
        self._background.start(undo, lambda: self._end(True))
        return True

    async def run(self) -> None:
        """Write until cancelled; reservations are released then."""
        await self._background.run()

    async def _carry_out(self, job: _PreBindRun) -> None:
        pod, writes = job.result.pod, not job.reserved.waits_for_others
        try:
            if not pod.stands_by:
                await self._expectations.tell(pod, job.node_name, lambda: self._is_wanted(job))
            problem = await self._permitted(job) or await self._until_its_turn(job) or await self._write_all(job)
        except (asyncio.CancelledError, StoreWentBack):
            self._drop(job)
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if not problem:
            if job.written:
                self._written[pod.uid] = job.written
            self._end(writes)
            job.calls.ended(job.result, job.node_name, "")
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
        job.calls.ended(job.result, job.node_name, problem)

    async def _permitted(self, job: _PreBindRun) -> Refusal | str:
        """Return the result of `PermitWaitingPod.settled`."""
        waiting = job.reserved.waiting
        if waiting is None:
            return ""
        with self._waiting(job):
            try:
                return await waiting.settled(self._clock, lambda: self._is_wanted(job))
            finally:
                self._waiting_pods.end(job.result.pod)

    async def _until_its_turn(self, job: _PreBindRun) -> str:
        """Wait until the standby pod may be bound. Returns an error message, or "".

        It fails if the pod no longer waits, has lost its node, or no pod that is to run before it is left. There is no
        time limit: the other pods of its Job may run for any time.
        """
        pod, cluster = job.result.pod, self._cluster
        if not pod.stands_by:
            return ""
        others, pause = cluster.standing_by, 0.5
        with self._waiting(job), others.waiting(pod.uid) as changed:
            while self._is_wanted(job) and cluster.pods[pod.uid].stands_by:
                if job.node_name not in cluster.ledger.rows:
                    return f"node {job.node_name} is gone"
                if others.is_alone(pod.uid):
                    return "no pod that is to run before it has room"
                changed.clear()
                await self._expectations.tell(pod, job.node_name, lambda: self._is_wanted(job))
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause := min(2 * pause, _LONGEST_PAUSE)):
                        await changed.wait()
        return "" if self._is_wanted(job) else "the pod no longer waits"

    async def _write_all(self, job: _PreBindRun) -> str:
        """Run PreBind of the plugins. Returns an error message, or ""."""
        for plugin, reservation in job.reserved.parts:
            attempt = Attempt(
                pod=job.result.pod,
                node_name=job.node_name,
                reservation=reservation,
                writes=self._writes,
                wanted=lambda: self._is_wanted(job),
                waiting=lambda: self._waiting(job),
            )
            job.begun.append((plugin, attempt))
            problem = await plugin.pre_bind(attempt)
            if problem:
                return f'running PreBind plugin "{plugin.name}": {problem}'
        return ""

    @contextmanager
    def _waiting(self, job: _PreBindRun) -> Iterator[None]:
        writes = not job.reserved.waits_for_others
        self.writing -= writes
        job.calls.writing_changed()
        try:
            yield
        finally:
            self.writing += writes
            job.calls.writing_changed()

    def _undo(self, pod: PodInfo) -> None:
        self._cluster.forget(pod)
        self.give_back(pod)

    def _undo_when_settled(self, job: _PreBindRun, is_held: Callable[[], bool]) -> None:
        """Free the capacity now, but keep reservations whose write may still take effect.

        A request without a response may be carried out even after this process has given it up.
        """
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
            # The pod's next attempt begins once nothing is assumed, so this attempt's writes must be gone by then.
            if is_held():
                await _take_back(written)
            if is_held():
                unreserve()

        self._background.start(undo, unreserve)

    def _drop(self, job: _PreBindRun) -> None:
        self._waiting_pods.end(job.result.pod)
        self._end(not job.reserved.waits_for_others)
        self._undo(job.result.pod)

    def _is_wanted(self, job: _PreBindRun) -> bool:
        pod = job.result.pod
        return self._cluster.waits(pod.uid) and self._cluster.pods[pod.uid].cls is pod.cls


async def _take_back(written: Sequence[tuple[PreBind, Attempt]]) -> None:
    for plugin, attempt in written:
        undo = plugin.take_back(attempt)
        if undo is not None:
            await undo
