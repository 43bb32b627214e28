"""The wait of decided pods until their devices are prepared: binding conditions (KEP-5007, PreBind).

It ends when the claims' status reports success, when a failure condition is True, on timeout, or when the pod or an
allocation is gone. The caller handles a failure: it removes the pod's reservations and deallocates claims without
consumers, so that the next attempt can choose other devices. After a restart the pod is decided again, finds its claims
allocated and reserved, and waits for the rest of the timeout.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_scheduler.cluster.changes import wait_for_change
from agent_scheduler.cluster.resource_claims import ResourceClaims
from agent_scheduler.engine.dra.binding_conditions import BindingConditions, failed, late
from agent_scheduler.engine.dra.reservation import ReservedClaim, ReservedClaims
from agent_scheduler.engine.state.podinfo import PodInfo

from .runtime import Runtime

SUCCESS = "success"
FAILURE = "failure"
TIMEOUT = "timeout"


class DeviceWaits:
    """Waits for binding conditions; stateless."""

    def __init__(self, runtime: Runtime, claims: ResourceClaims) -> None:
        self._devices = claims.devices
        self._changes = claims.changes
        self._messenger = runtime.messenger
        self._observer = runtime.observer
        self._clock = runtime.timing.clock
        self._now = runtime.timing.now

    def concerns(self, reservation: ReservedClaims) -> bool:
        """Return whether a wait may be needed.

        It is True for a claim that others allocate until the watch delivers the allocation.
        """
        in_memory = reservation.in_memory
        return bool(self._awaited(reservation)) or (
            in_memory is not None and bool(in_memory.allocation.drivers_to_wait_for)
        )

    async def wait(
        self,
        pod: PodInfo,
        reservation: ReservedClaims,
        *,
        timeout: float,  # noqa: ASYNC109 - `bindingTimeout`
        wanted: Callable[[], bool],
    ) -> str:
        """Wait until all devices are ready; the claims are written already. Returns an error message, or "".

        `wanted` returns whether the pod is still to be bound to its node.
        """
        parts = (*self._awaited(reservation), *self._made(pod))
        started = self._clock()
        reported = False
        with self._changes.of([part.claim for part in parts]) as changed:
            while True:
                changed.clear()
                self._devices.now = self._now().timestamp()
                seen = [self._seen(part) for part in parts]
                bindings = [each for each in seen if isinstance(each, BindingConditions)]
                if bindings and not reported:
                    reported = True
                    self._messenger.waits_for_devices(pod, reservation.node_name)
                is_late = self._clock() - started >= timeout
                status, problem = self._outcome(parts, seen, is_late, timeout)
                if status:
                    for driver in sorted(frozenset().union(*(each.drivers for each in bindings))):
                        self._observer.devices_awaited(pod.scheduler_name, driver, status, self._clock() - started)
                    return problem
                if problem:
                    return problem
                if not wanted():
                    return "the pod no longer waits"
                await wait_for_change(changed, within=timeout - (self._clock() - started))

    def _outcome(
        self,
        parts: tuple[ReservedClaim, ...],
        seen: list[BindingConditions | bool | str],
        is_late: bool,
        timeout: float,
    ) -> tuple[str, str]:
        """Return the status of the wait, "" if it has not ended, and an error message, "" if there is none."""
        is_ready = True
        for part, found in zip(parts, seen, strict=True):
            name = part.claim[1]
            if isinstance(found, str):
                return "", found
            if isinstance(found, BindingConditions):
                if found.failure:
                    return FAILURE, failed(name, found.failure)
                is_late = is_late or found.timed_out(self._devices.now, timeout)
                is_ready = is_ready and found.is_ready
                if not found.is_ready and is_late:
                    return TIMEOUT, late(name)
            elif not found:
                is_ready = False
                if is_late:
                    return TIMEOUT, late(name)
        return (SUCCESS if is_ready else ""), ""

    def _seen(self, part: ReservedClaim) -> BindingConditions | bool | str:
        """Return the claim's binding conditions, True if there are none to wait for, or an error message.

        The result is False until the watch has delivered the allocation.
        """
        claim = self._devices.claim(part.claim)
        name = f"{part.claim[0]}/{part.claim[1]}"
        if claim is None or claim.uid != part.uid:
            return f"resourceclaim {name} does not exist any more"
        if self._devices.allocation(part.claim) != part.allocated:
            return f"resourceclaim {name} was deallocated"
        if claim.allocation is None:
            return False
        return True if claim.binding_conditions is None else claim.binding_conditions

    def _awaited(self, reservation: ReservedClaims) -> tuple[ReservedClaim, ...]:
        found = []
        for part in reservation.claims:
            if part.allocation is not None:
                waits = bool(part.allocation.drivers_to_wait_for)
            else:
                claim = self._devices.claim(part.claim)
                waits = claim is None or claim.allocation is None or claim.binding_conditions is not None
            if waits:
                found.append(part)
        return tuple(found)

    def _made(self, pod: PodInfo) -> tuple[ReservedClaim, ...]:
        """Return the claim that was created for the pod's extended resources, if any."""
        return tuple(
            ReservedClaim(claim.key, claim.uid, None, allocated)
            for claim in self._devices.made_for(pod.uid)
            if (allocated := self._devices.allocation(claim.key)) is not None
        )
