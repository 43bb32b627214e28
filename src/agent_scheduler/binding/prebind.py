"""From a chosen node to claims that are written: what happens to a pod with volumes or devices before its bind.

    judged ──> reserve, with the judging ──> nothing to write: the bind
                   └─> refused: next one        └─> else a task: write ──> wait ──> all there: the bind
                                                                            └─> failed: nothing stays reserved

A node is reserved on the books as they are, in the same step that assumes the pod. What has to be written, first of all
where the pod is about to go (`expectations`), is written a request at a time, outside the places that binds have.
What was written for volumes stays when an attempt fails; reservations of resource claims are
taken back.

Guarantees: a reservation ends with its task, or with the pod's bind; whoever waits for what it gives back is told; a
pod is bound only when the watch has shown its volume claims to be bound, the API server has its resource claims
reserved for it, and the devices of these are ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.resource_claims import ResourceClaims, pod_ref
from agent_scheduler.cluster.storage import Storage
from agent_scheduler.engine.decide.compiled import (
    CompiledFilter,
    compile_filters,
    first_refusing,
)
from agent_scheduler.engine.decide.decide import Candidate
from agent_scheduler.engine.dra.extended_claim import DELETED
from agent_scheduler.engine.dra.reservation import DEALLOCATED, STILL
from agent_scheduler.engine.dra.reservation import Reservation as ClaimReservation
from agent_scheduler.engine.framework.plugin import Depends, Profile, Reserve
from agent_scheduler.engine.state.podclaims import Demand
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.volumes.reservation import Reservation as VolumeReservation
from agent_scheduler.kube.bind import DEFAULT_POLICY
from agent_scheduler.kube.errors import FailureClass
from agent_scheduler.kube.retry import Timing
from agent_scheduler.objects.times import time_text

from .claim_writer import ClaimWriter, PatchCall
from .device_waits import DeviceWaits, WaitMessenger, WaitObserver
from .expectations import Expectations
from .extended_claims import CreateCall, DeleteCall, ExtendedClaims
from .result import ScheduleResult
from .volume_writer import VolumeWriter

#: Writes of claims and volumes under way at a time.
PREBIND_CONCURRENCY: Final = 32

#: Seconds until a claim that a refused pod has to lose is tried again.
_INSIST: Final = 5.0

#: Is told how it ended for a pod: what went wrong, or nothing.
Ended = Callable[[ScheduleResult, str, str], None]


class Asks(Protocol):
    async def is_pending(self, pod: PodInfo) -> bool | None:
        """Whether the API server has the pod without a node; None: it does not say."""


class ClaimCalls(Protocol):
    """Requests about claims and volumes, as their namesakes in `kube`."""

    @property
    def patch(self) -> PatchCall: ...
    @property
    def create(self) -> CreateCall: ...
    @property
    def delete(self) -> DeleteCall: ...

    @property
    def binds(self) -> Asks: ...


class Reserved(NamedTuple):
    """What was taken for a pod and has to be written before its bind."""

    volumes: VolumeReservation | None
    claims: ClaimReservation | None
    #: Seconds that the volumes may take to be bound.
    timeout: float


class Unavailable(NamedTuple):
    """The node has no longer what the pod needs; nothing is taken."""


UNAVAILABLE: Final = Unavailable()


@dataclass(frozen=True, slots=True)
class _Job:
    result: ScheduleResult
    node_name: str
    reserved: Reserved


class _Work(NamedTuple):
    """What is to be done beside, and what instead if it can no longer be."""

    run: Callable[[], Awaitable[None]]
    drop: Callable[[], None]


class PreBind:
    """Owner of the pods whose claims are being written."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        storage: Storage,
        claims: ResourceClaims,
        profile_of: Callable[[str], Profile],
        calls: ClaimCalls,
        messenger: WaitMessenger,
        observer: WaitObserver,
        timing: Timing,
    ) -> None:
        patch = calls.patch
        self._cluster = cluster
        self._storage = storage
        self._claims = claims
        self._writer = ClaimWriter(claims, patch)
        self._extended = ExtendedClaims(
            claims, writer=self._writer, patch=patch, create=calls.create, delete=calls.delete
        )
        self._profile_of = profile_of
        self._expectations = Expectations(cluster, patch)
        self._volumes = VolumeWriter(cluster=cluster, storage=storage, patch=patch, clock=timing.clock)
        self._waits = DeviceWaits(
            claims, messenger=messenger, observer=observer, clock=timing.clock, now=timing.now
        )
        self._now = timing.now
        self._is_pending = calls.binds.is_pending
        self._work: asyncio.Queue[_Work] = asyncio.Queue()
        self._ended: Ended | None = None
        self._writing_changed: Callable[[], None] = lambda: None
        #: UID of each pod that is bound with resource claims written for it -> these. Until its bind has ended.
        self._written: dict[str, ClaimReservation] = {}
        #: UIDs of the refused pods that wait for a claim of theirs to be given back.
        self._insisting: set[str] = set()
        #: Pods whose claims are being written, or taken back.
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
    ) -> Reserved | Unavailable | None:
        """Take what the pod needs of the candidate; None where there is nothing that has to be written."""
        node, pod = self._cluster.ledger.node(candidate.node_name), result.pod
        if node is None:
            return UNAVAILABLE
        volumes: VolumeReservation | None = None
        claims: ClaimReservation | None = None
        timeout, at = 0.0, time_text(self._now())
        for each in filters:
            if not isinstance(each.plugin, Reserve):
                continue
            taken = each.plugin.reserve(each.state, pod, node, at)
            if taken is None:
                if volumes is not None:
                    self._storage.give_back(pod.uid)
                if claims is not None:
                    self._claims.give_back(pod.uid)
                return UNAVAILABLE
            if isinstance(taken, VolumeReservation):
                volumes, timeout = taken, each.plugin.prebind_timeout
            else:
                claims = taken
        if volumes is not None and volumes.all_bound:
            volumes = None
        if claims is not None and not (claims.parts or claims.promise is not None or self._names(pod)):
            claims = None
        return None if volumes is None and claims is None else Reserved(volumes, claims, timeout)

    def give_back(self, pod: PodInfo) -> None:
        """What the pod still counts on is for others, but for what has been written."""
        self._storage.give_back(pod.uid)
        self._claims.give_back(pod.uid)

    def deallocate(self, pod: PodInfo, demand: Demand) -> str:
        """No node will do for a pod with resource claims: have one given back that keeps it from other nodes, if there
        is one (DynamicResources' PostFilter). What is to be said of that."""
        if demand.left_over:
            self._insist(pod, lambda: self._remove_left_over(pod))
            return DELETED
        claim = self._writer.to_deallocate(demand, pod)
        if claim is None:
            return STILL

        async def send() -> bool:
            begun = False

            def wanted() -> bool:
                """Not if an attempt has begun meanwhile, which may count on the claim. One that begins later waits for
                its turn to write it, so what came of this has to be known by then."""
                nonlocal begun
                begun = begun or pod.uid not in self._cluster.ledger.placements
                return begun and self._cluster.waits(pod.uid)

            failure = await self._writer.deallocate(claim, pod_ref(pod), wanted=wanted)
            # That it is gone the watch tells.
            return failure is None or failure.kind is FailureClass.NOT_FOUND

        said = DEALLOCATED if self._writer.is_last(claim, pod) else STILL
        self._insist(pod, send)
        return said

    def _insist(self, pod: PodInfo, send: Callable[[], Awaitable[bool]]) -> None:
        """Until it is done, or the pod needs nothing any more: no event would wake the pod if it were given up."""
        uid = pod.uid
        if uid in self._insisting:
            return

        async def repeat() -> None:
            try:
                while True:
                    pending = await self._is_pending(pod) if self._cluster.waits(uid) else False
                    # A pod that has a node, whatever the watch has shown, uses what would be given back.
                    if pending is False or (pending and await send()):
                        return
                    await asyncio.sleep(_INSIST)
            finally:
                self._insisting.discard(uid)

        self._insisting.add(uid)
        self._work.put_nowait(_Work(repeat, lambda: self._insisting.discard(uid)))

    # ---- beside

    def start(self, result: ScheduleResult, node_name: str, reserved: Reserved) -> None:
        """Have the claims written; the pod is assumed on the node already."""
        job = _Job(result, node_name, reserved)
        self._begin(reserved.volumes is None)
        self._work.put_nowait(_Work(lambda: self._carry_out(job), lambda: self._drop(job)))

    def _begin(self, writes: bool) -> None:
        self.under_way += 1
        self.writing += writes

    def _end(self, writes: bool) -> None:
        self.under_way -= 1
        self.writing -= writes

    def bound(self, pod: PodInfo) -> None:
        """The bind has ended in a way that leaves the pod its claims, or leaves them to others."""
        self._written.pop(pod.uid, None)
        self._extended.bound(pod.uid)

    def failed(self, result: ScheduleResult, node_name: str, problem: str) -> bool:
        """The bind was refused. Whether claims were written for it, which are taken back before it is told as ended."""
        reservation = self._written.pop(result.pod.uid, None)
        if reservation is None:
            return False

        async def undo() -> None:
            try:
                await self._take_back(result.pod, reservation)
            finally:
                self._end(True)
            self._tell(result, node_name, problem)

        self._begin(True)
        self._work.put_nowait(_Work(undo, lambda: self._end(True)))
        return True

    async def run(self, ended: Ended, writing_changed: Callable[[], None]) -> None:
        """Write claims until cancelled; what was reserved then is given back. `writing_changed` is told when a pod that
        was being written for waits for somebody else, and when it no longer does."""
        self._ended, self._writing_changed = ended, writing_changed
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    tasks.create_task(_run(await self._work.get()))
        finally:
            while not self._work.empty():
                self._work.get_nowait().drop()

    async def _carry_out(self, job: _Job) -> None:
        pod, claims = job.result.pod, job.reserved.claims
        try:
            await self._expectations.tell(pod, job.node_name, lambda: self._is_wanted(job))
            problem = await self._write_all(job)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        except asyncio.CancelledError:
            self._drop(job)
            raise
        if not problem:
            if claims is not None:
                self._written[pod.uid] = claims
            self._end(job.reserved.volumes is None)
            self._tell(job.result, job.node_name, "")
            return
        try:
            if claims is None:
                self._undo(pod)
            elif self._writer.is_open(pod.uid):
                self._undo_when_settled(pod, claims)
            else:
                self._undo(pod)
                await self._take_back(pod, claims)
        finally:
            self._end(job.reserved.volumes is None)
        self._tell(job.result, job.node_name, problem)

    def _undo_when_settled(self, pod: PodInfo, claims: ClaimReservation) -> None:
        """The room is for others at once, but devices are not as long as the claim may still be written to have them:
        a request that got no answer may be carried out after this process has turned to something else."""
        self._cluster.forget(pod)
        self._storage.give_back(pod.uid)
        assumed = self._cluster.devices.assumed
        before = {key: assumed.get(key) for key in assumed.held(pod.uid)}

        def is_open() -> bool:
            """What the watch has shown meanwhile is over, and a later attempt's is not touched."""
            return any(assumed.get(key) is each for key, each in before.items())

        async def undo() -> None:
            await asyncio.sleep(DEFAULT_POLICY.settles)
            # The pod's next attempt begins as soon as nothing is assumed: what this one wrote has to be gone by then.
            if is_open():
                await self._take_back(pod, claims)
            if is_open():
                self._claims.give_back(pod.uid)

        self._work.put_nowait(_Work(undo, lambda: self._claims.give_back(pod.uid)))

    def _drop(self, job: _Job) -> None:
        self._end(job.reserved.volumes is None)
        self._undo(job.result.pod)

    async def _write_all(self, job: _Job) -> str:
        """What went wrong; empty once all is written and there."""
        if job.reserved.volumes is not None:
            problem = await self._volumes.write(
                job.result.pod, job.reserved.volumes, timeout=job.reserved.timeout
            )
            if problem:
                return f'running PreBind plugin "VolumeBinding": {problem}'
        if job.reserved.claims is not None:
            pod = job.result.pod
            # What takes longest comes first: others may change the pod's own claims as long as it is not bound.
            problem = await self._extended.write(
                job.reserved.claims, names=self._names(pod), wanted=lambda: self._is_wanted(job)
            )
            problem = problem or await self._writer.write(
                job.reserved.claims, wanted=lambda: self._is_wanted(job)
            )
            problem = problem or await self._await_devices(job, job.reserved.claims)
            if problem:
                return f'running PreBind plugin "DynamicResources": {problem}'
        return ""

    async def _await_devices(self, job: _Job, claims: ClaimReservation) -> str:
        if not self._waits.concerns(claims):
            return ""
        pod = job.result.pod
        timeout = self._cluster.devices.binding_timeout(pod.scheduler_name)
        writes = job.reserved.volumes is None
        self.writing -= writes
        self._writing_changed()
        try:
            return await self._waits.wait(pod, claims, timeout=timeout, wanted=lambda: self._is_wanted(job))
        finally:
            self.writing += writes
            self._writing_changed()

    async def _take_back(self, pod: PodInfo, reservation: ClaimReservation) -> None:
        """Unless the pod has a node, which the watch may be slow to show: its claims are in use there."""
        if await self._is_pending(pod) is not True:
            return
        await self._writer.take_back(reservation, wanted=lambda: self._cluster.waits(pod.uid))
        if reservation.promise is not None:
            await self._remove_left_over(pod)

    async def _remove_left_over(self, pod: PodInfo) -> bool:
        return await self._extended.take_back(
            pod_ref(pod), names=self._names(pod), wanted=lambda: self._cluster.waits(pod.uid)
        )

    def _names(self, pod: PodInfo) -> str:
        """The claim for extended resources that the pod's status names as last seen."""
        seen = self._cluster.pods.get(pod.uid)
        return "" if seen is None else seen.extended_claim

    def _undo(self, pod: PodInfo) -> None:
        self._cluster.forget(pod)
        self.give_back(pod)

    def _tell(self, result: ScheduleResult, node_name: str, problem: str) -> None:
        assert self._ended is not None, "work is done in `run`"
        self._ended(result, node_name, problem)

    def _is_wanted(self, job: _Job) -> bool:
        pod = job.result.pod
        return self._cluster.waits(pod.uid) and self._cluster.pods[pod.uid].cls is pod.cls


async def _run(work: _Work) -> None:
    await work.run()
