"""From a chosen node to claims that are bound there: what happens to a pod with volumes before its bind.

    judged ──> reserve, with the judging ──> all bound: the bind
                   └─> refused: next one        └─> else a task: write ──> wait ──> DONE: the bind
                                                                            └─> failed: nothing stays reserved

A node is reserved on the catalogue as it is, in the same step that assumes the pod. What has to be written is written a
request at a time, and then the volume controller and the provisioner are waited for: up to `bindTimeoutSeconds`, so
outside the places that binds have. What was written stays when an attempt fails, and the next one goes on from it.

Guarantees: a reservation ends with its task, or with the pod's bind; whoever waits for what it gives back is told; a
pod is bound only when the watch has shown its claims to be bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from agent_scheduler.engine.decide import Candidate, CompiledFilter, compile_filters, first_refusing
from agent_scheduler.engine.framework import Depends, Profile
from agent_scheduler.engine.plugins.volume_binding import VolumeBinding
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.volumes.claims import Refused
from agent_scheduler.engine.volumes.reservation import (
    DONE,
    Reservation,
    State,
    Write,
    due,
    progress,
    reserve,
    written,
)
from agent_scheduler.kube.merge_patch import Patched
from agent_scheduler.kube.paths import segment

from .cluster import Cluster
from .storage import Storage

if TYPE_CHECKING:
    from .binder import ScheduleResult

#: Writes of claims and volumes under way at a time.
PREBIND_CONCURRENCY: Final = 8

#: Seconds between two looks at what no change of a claim tells: the node, the pod and the time.
_LOOK_AGAIN: Final = 1.0


class PatchCall(Protocol):
    """Makes one change; `wanted` is asked before each request. Never raises for what network or server do."""

    async def __call__(self, path: str, body: bytes, *, wanted: Callable[[], bool]) -> Patched: ...


#: Is told how it ended for a pod: what went wrong, or nothing.
Ended = Callable[["ScheduleResult", str, str], None]


@dataclass(frozen=True, slots=True)
class _Job:
    result: ScheduleResult
    reservation: Reservation
    timeout: float


class PreBind:
    """Owner of the pods whose claims are being bound."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        storage: Storage,
        profile_of: Callable[[str], Profile],
        patch: PatchCall,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._storage = storage
        self._profile_of = profile_of
        self._patch = patch
        self._clock = clock
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        #: Pods whose claims are being bound.
        self.under_way = 0

    # ---- in the step that judges

    def filters(self, result: ScheduleResult) -> Sequence[CompiledFilter] | None:
        """The filters of a pod with volumes on storage as it is now; None if no node will do any more."""
        if self._cluster.catalogue.version == result.catalogue_version:
            return result.filters
        profile = self._profile_of(result.pod.scheduler_name)
        compiled, rejection = compile_filters(profile, result.cls, self._cluster.handle)
        return compiled if rejection is None else None

    def fitting(
        self, result: ScheduleResult, candidates: Sequence[Candidate], filters: Sequence[CompiledFilter]
    ) -> Sequence[Candidate]:
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
        self, result: ScheduleResult, candidate: Candidate, filters: Sequence[CompiledFilter]
    ) -> Reservation | Refused | None:
        """Take the candidate's volumes for the pod; None where there is nothing that has to be taken."""
        node, volumes = self._cluster.ledger.node(candidate.node_name), result.cls.volumes
        if _binding(filters) is None or node is None or volumes is None:
            return None
        taken = reserve(volumes, self._cluster.catalogue, node, result.pod.uid)
        return None if isinstance(taken, Reservation) and taken.all_bound else taken

    def give_back(self, pod: PodInfo) -> None:
        """What the pod still counts on is for others, but for what has been written."""
        self._storage.give_back(pod.uid)

    # ---- beside

    def start(
        self, result: ScheduleResult, reservation: Reservation, filters: Sequence[CompiledFilter]
    ) -> None:
        """Have the claims bound; the pod is assumed on the node already."""
        plugin = _binding(filters)
        assert plugin is not None, "nothing is reserved without the plugin"
        self.under_way += 1
        self._jobs.put_nowait(_Job(result, reservation, plugin.bind_timeout))

    async def run(self, ended: Ended) -> None:
        """Bind claims until cancelled; what was reserved then is given back."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    tasks.create_task(self._carry_out(await self._jobs.get(), ended))
        finally:
            while not self._jobs.empty():
                self._undo(self._jobs.get_nowait())

    async def _carry_out(self, job: _Job, ended: Ended) -> None:
        try:
            problem = await self._bind_claims(job)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        except asyncio.CancelledError:
            self._undo(job)
            raise
        if problem:
            self._undo(job)
        else:
            self.under_way -= 1
        ended(job.result, job.reservation.node_name, problem)

    def _undo(self, job: _Job) -> None:
        self.under_way -= 1
        self._cluster.forget(job.result.pod)
        self.give_back(job.result.pod)

    async def _bind_claims(self, job: _Job) -> str:
        """What went wrong; empty once all claims are bound."""
        reservation, catalogue = job.reservation, self._cluster.catalogue
        ends = self._clock() + job.timeout
        claims = [each.claim for each in reservation.bindings]
        claims += [each.claim for each in reservation.provisions]
        with self._storage.changes_of(claims) as changed:
            while writes := due(reservation, catalogue):
                patched = await self._write(writes[0], job, ends)
                if patched.failure is not None:
                    return self._over(job, ends) or str(patched.failure)
                written(writes[0], catalogue, patched.resource_version)
            while True:
                changed.clear()
                node = self._cluster.ledger.node(reservation.node_name)
                found = progress(reservation, catalogue, node, pod_exists=self._waits(job))
                if found is DONE:
                    return ""
                if found.state is State.FAILED:
                    return f"binding volumes: {found.reason}"
                if problem := self._over(job, ends):
                    return problem
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_LOOK_AGAIN, max(0.0, ends - self._clock()))):
                        await changed.wait()

    async def _write(self, write: Write, job: _Job, ends: float) -> Patched:
        namespace = f"namespaces/{segment(write.namespace)}/" if write.namespace else ""
        path = f"/api/v1/{namespace}{write.resource}/{segment(write.name)}"
        return await self._patch(path, write.body, wanted=lambda: not self._over(job, ends))

    def _waits(self, job: _Job) -> bool:
        return self._cluster.waits(job.result.pod.uid)

    def _over(self, job: _Job, ends: float) -> str:
        """Why nothing more is to be done for a pod, if that is so."""
        pod = job.result.pod
        if not self._waits(job):
            return "binding volumes: pod does not exist any more"
        if self._cluster.pods[pod.uid].cls is not pod.cls:
            return "binding volumes: the pod has changed since its node was chosen"
        return "binding volumes: context deadline exceeded" if self._clock() >= ends else ""


def _binding(filters: Sequence[CompiledFilter]) -> VolumeBinding | None:
    for each in filters:
        if isinstance(each.plugin, VolumeBinding):
            return each.plugin
    return None
