"""What PreBind and PostFilter of DynamicResources have done about the resource claims of decided and refused pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.resource_claims import ResourceClaims, pod_ref
from agent_scheduler.engine.dra.extended_claim import DELETED
from agent_scheduler.engine.dra.reservation import DEALLOCATED, STILL, ReservedClaims
from agent_scheduler.engine.framework.prebind import Attempt
from agent_scheduler.engine.state.podclaims import Demand
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.errors import FailureClass

from .claim_writer import ClaimWriter, PatchCall
from .device_waits import DeviceWaits
from .extended_claims import CreateCall, DeleteCall, ExtendedClaims

#: Seconds until a claim that a refused pod has to lose is tried again.
_RETRY: Final = 5.0

#: Runs a coroutine beside; the second is called if it can no longer be.
Beside = Callable[[Callable[[], Awaitable[None]], Callable[[], None]], None]


class PodClaims:
    """The `Claims` of `engine.framework.prebind`. Owner of the refused pods that wait for a claim to be deallocated."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        claims: ResourceClaims,
        waits: DeviceWaits,
        patch: PatchCall,
        create: CreateCall,
        delete: DeleteCall,
        is_pending: Callable[[PodInfo], Awaitable[bool | None]],
        caught_up: Callable[[str], Awaitable[None]],
        beside: Beside,
    ) -> None:
        """`is_pending`: whether the API server has the pod without a node; None: it does not say. `caught_up`:
        as of `ClaimWriter`."""
        self._cluster = cluster
        self._claims = claims
        self._waits = waits
        self.writer = ClaimWriter(claims, patch, caught_up)
        self.extended = ExtendedClaims(claims, writer=self.writer, patch=patch, create=create, delete=delete)
        self._is_pending = is_pending
        self._beside = beside
        #: UID of each refused pod that waits for a claim of its to be deallocated -> what its latest refusal asks for.
        self._asked: dict[str, Callable[[], Awaitable[bool]]] = {}

    # ---- Reserve and PreBind

    def give_back(self, uid: str) -> None:
        self._claims.give_back(uid)

    def is_due(self, pod: PodInfo, reservation: ReservedClaims) -> bool:
        return bool(reservation.claims or reservation.in_memory is not None or self._names(pod))

    async def write(self, attempt: Attempt, timeout: float) -> str:  # noqa: ASYNC109 - `bindingTimeout`
        pod, reservation, wanted = attempt.pod, attempt.reservation, attempt.wanted
        if self.writer.waits_for_others(reservation):
            with attempt.waiting():
                await self.writer.written_by_others(reservation, wanted=wanted)
        # What takes longest comes first: others may change the pod's own claims as long as it is not bound.
        problem = await self.extended.write(reservation, names=self._names(pod), wanted=wanted)
        problem = problem or await self.writer.write(reservation, wanted=wanted)
        if problem or not self._waits.concerns(reservation):
            return problem
        with attempt.waiting():
            return await self._waits.wait(pod, reservation, timeout=timeout, wanted=wanted)

    async def take_back(self, attempt: Attempt) -> None:
        """Unless the pod has a node, which the watch may be slow to show: its claims are in use there. Nor once it is
        tried again, as a session may before this has ended: what there is of its claims is that attempt's."""
        pod, uid, attempts = attempt.pod, attempt.pod.uid, self._cluster.ledger.placements
        pending = await self._is_pending(pod)
        if pending is None and uid not in self._cluster.pods:
            await self.writer.leave(attempt.reservation)
        if not pending:
            return
        await self.writer.take_back(
            attempt.reservation, wanted=lambda: uid not in attempts and self._cluster.waits(uid)
        )
        if attempt.reservation.in_memory is not None:
            await self._remove_left_over(pod)

    def keep(self, attempt: Attempt) -> None:
        self.extended.bound(attempt.pod.uid)

    def in_doubt(self, attempt: Attempt) -> Callable[[], bool] | None:
        """What the watch has shown by the time it is asked is over, and a later attempt's is not meant."""
        uid = attempt.pod.uid
        if not self.writer.is_open(uid):
            return None
        assumed = self._cluster.devices.assumed
        before = {key: assumed.get(key) for key in assumed.held(uid)}
        return lambda: any(assumed.get(key) is each for key, each in before.items())

    # ---- PostFilter

    def deallocate(self, pod: PodInfo, demand: Demand) -> str:
        """No node will do for a pod with resource claims: have one deallocated that keeps it from other nodes, if there
        is one. What is to be said of that."""
        if demand.left_over:
            self._until_done(pod, lambda: self._remove_left_over(pod))
            return DELETED
        claim = self.writer.to_deallocate(demand, pod)
        if claim is None:
            return STILL

        async def send() -> bool:
            begun = False

            def wanted() -> bool:
                """Not if an attempt has begun meanwhile, which may count on the claim. One that begins later waits for
                the key lock to write it, so what came of this has to be known by then."""
                nonlocal begun
                begun = begun or pod.uid not in self._cluster.ledger.placements
                return begun and self._cluster.waits(pod.uid)

            failure = await self.writer.deallocate(claim, pod_ref(pod), wanted=wanted)
            # That it is gone the watch tells.
            return failure is None or failure.kind is FailureClass.NOT_FOUND

        said = DEALLOCATED if self.writer.is_last(claim, pod) else STILL
        self._until_done(pod, send)
        return said

    def _until_done(self, pod: PodInfo, send: Callable[[], Awaitable[bool]]) -> None:
        """Until it is done, or the pod needs nothing any more: no event would wake the pod if it were given up. A later
        refusal takes the place of an earlier one, whose claim may be another by now."""
        uid = pod.uid
        is_under_way = uid in self._asked
        self._asked[uid] = send
        if is_under_way:
            return

        async def repeat() -> None:
            try:
                while True:
                    pending = await self._is_pending(pod) if self._cluster.waits(uid) else False
                    asked = self._asked[uid]
                    # A pod that has a node, whatever the watch has shown, uses what would be deallocated.
                    done = pending is False or (pending and await asked())
                    if self._asked[uid] is not asked:
                        continue
                    if done:
                        return
                    await asyncio.sleep(_RETRY)
            finally:
                end()

        def end() -> None:
            del self._asked[uid]

        self._beside(repeat, end)

    async def _remove_left_over(self, pod: PodInfo) -> bool:
        """Whether nothing is left. Once an attempt is under way, what was left before it is gone, and what there is of
        claims is that attempt's."""
        uid, attempts = pod.uid, self._cluster.ledger.placements
        if uid in attempts:
            return True
        return await self.extended.take_back(
            pod_ref(pod),
            names=self._names(pod),
            wanted=lambda: uid not in attempts and self._cluster.waits(uid),
        )

    def _names(self, pod: PodInfo) -> str:
        """The claim for extended resources that the pod's status names as last seen."""
        seen = self._cluster.pods.get(pod.uid)
        return "" if seen is None else seen.extended_claim
