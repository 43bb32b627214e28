"""Writes resource claims of decided and refused pods, for PreBind and PostFilter of DynamicResources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from agent_scheduler.cluster.resource_claims import pod_ref
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.dra.extended_claim import DELETED
from agent_scheduler.engine.dra.reservation import DEALLOCATED, STILL, ReservedClaims
from agent_scheduler.engine.framework.prebind import Attempt
from agent_scheduler.engine.state.podclaims import ClaimDemand
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.errors import FailureClass

from .background import Background
from .calls import Calls
from .claim_writer import ClaimWriter
from .device_waits import DeviceWaits
from .extended_claims import ExtendedClaims
from .runtime import Runtime

#: Seconds between attempts to deallocate a claim of a refused pod.
_RETRY: Final = 5.0


class PodClaims:
    """Implements `Claims` of `engine.framework.prebind`.

    Owner of the refused pods that wait until a claim is deallocated.
    """

    def __init__(
        self,
        runtime: Runtime,
        state: SharedState,
        *,
        calls: Calls,
        background: Background,
        caught_up: Callable[[str], Awaitable[None]],
    ) -> None:
        """Create the writers; `caught_up` is as for `ClaimWriter`."""
        self._cluster = state.cluster
        self._claims = state.claims
        self._waits = DeviceWaits(runtime, state.claims)
        self.writer = ClaimWriter(state.claims, calls.patch, caught_up)
        self.extended = ExtendedClaims(
            state.claims, writer=self.writer, patch=calls.patch, create=calls.create, delete=calls.delete
        )
        self._is_pending = calls.binds.is_pending
        self._beside = background.start
        #: UID of each refused pod that waits for a deallocation -> the request of its latest refusal.
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
        # The slowest step comes first: other clients may change the pod's own claims until it is bound.
        problem = await self.extended.write(reservation, names=self._names(pod), wanted=wanted)
        problem = problem or await self.writer.write(reservation, wanted=wanted)
        if problem or not self._waits.concerns(reservation):
            return problem
        with attempt.waiting():
            return await self._waits.wait(pod, reservation, timeout=timeout, wanted=wanted)

    async def take_back(self, attempt: Attempt) -> None:
        """Undo the writes for the pod, unless it has a node, where it uses its claims, or is being retried.

        The watch may be slow to deliver the node, so the API server is asked. A session may retry the pod before this
        ends; its claims then belong to the new attempt.
        """
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
        """Return a check whether a reservation of this attempt is still assumed; None if no write is open.

        Reservations that the watch has delivered by then, and those of later attempts, do not count.
        """
        uid = attempt.pod.uid
        if not self.writer.is_open(uid):
            return None
        assumed = self._cluster.devices.assumed
        before = {key: assumed.get(key) for key in assumed.held(uid)}
        return lambda: any(assumed.get(key) is each for key, each in before.items())

    # ---- PostFilter

    def deallocate(self, pod: PodInfo, demand: ClaimDemand) -> str:
        """Deallocate a claim that keeps a refused pod from nodes, if there is one. Returns the text for its message."""
        if demand.left_over:
            self._until_done(pod, lambda: self._remove_left_over(pod))
            return DELETED
        claim = self.writer.to_deallocate(demand, pod)
        if claim is None:
            return STILL

        async def send() -> bool:
            begun = False

            def wanted() -> bool:
                """Return whether the pod waits and no attempt, which may depend on the claim, has begun since.

                An attempt that begins later waits for the claim's lock before it writes, so the outcome is known by
                then.
                """
                nonlocal begun
                begun = begun or pod.uid not in self._cluster.ledger.placements
                return begun and self._cluster.waits(pod.uid)

            failure = await self.writer.deallocate(claim, pod_ref(pod), wanted=wanted)
            # The watch reports the end of the claim.
            return failure is None or failure.kind is FailureClass.NOT_FOUND

        said = DEALLOCATED if self.writer.is_last(claim, pod) else STILL
        self._until_done(pod, send)
        return said

    def _until_done(self, pod: PodInfo, send: Callable[[], Awaitable[bool]]) -> None:
        """Repeat `send` until it is done or the pod no longer needs it, since no event would wake the pod.

        A later refusal replaces an earlier one, as its claim may differ.
        """
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
                    # A pod that has a node uses what would be deallocated, even if the watch has not delivered the
                    # node.
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
        """Remove the claims of earlier attempts. Returns whether none is left.

        Once an attempt is under way, the earlier claims are gone and the existing ones belong to it.
        """
        uid, attempts = pod.uid, self._cluster.ledger.placements
        if uid in attempts:
            return True
        return await self.extended.take_back(
            pod_ref(pod), names=self._names(pod), wanted=lambda: uid not in attempts and self._cluster.waits(uid)
        )

    def _names(self, pod: PodInfo) -> str:
        """Return the claim for extended resources in the pod's last observed status."""
        seen = self._cluster.pods.get(pod.uid)
        return "" if seen is None else seen.extended_claim
