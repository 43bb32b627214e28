"""The writes that the resource claims of decided pods need (resource.k8s.io), and those that undo them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, Protocol

from agent_scheduler.cluster.changes import wait_for_change
from agent_scheduler.cluster.resource_claims import ResourceClaims, claim_path, pod_ref
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.records import ResourceClaimInfo
from agent_scheduler.engine.dra.reservation import (
    Due,
    Lost,
    ReservedClaim,
    ReservedClaims,
    Write,
    due,
    is_last,
    is_overtaken,
    to_deallocate,
    without_allocation,
    without_pod,
)
from agent_scheduler.engine.state.podclaims import ClaimDemand, ClaimKey, PodRef
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.records import version_of
from kube_client.errors import Failure, FailureClass, StoreWentBack
from kube_client.patch import CALLED_OFF, Patched
from kube_client.watch_events import is_older


class KeyLocks:
    """A lock per claim that is being written, because concurrent writes of one claim only conflict.

    Owner of the writer of each claim and of those that wait for it.
    """

    def __init__(self) -> None:
        self._locks: dict[ClaimKey, KeyLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self._locks)

    def of(self, key: ClaimKey) -> KeyLock:
        """Return the claim's lock. Enter it immediately with `async with`, which waits in the order of arrival."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = KeyLock(key, self._locks)
        return lock


class KeyLock:
    """A lock that admits one writer of a claim at a time, in the order of arrival.

    Invariant: it is in the table while it is held, and only then are there waiters.
    """

    __slots__ = ("_is_held", "_key", "_table", "_waiting", "version")

    def __init__(self, key: ClaimKey, table: dict[ClaimKey, KeyLock]) -> None:
        self._key = key
        self._table = table
        self._is_held = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: The claim's version after the last write of a holder; empty if outdated.
        self.version = ""

    def _release(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._is_held = False
        del self._table[self._key]

    async def __aenter__(self) -> KeyLock:
        if not self._is_held:
            self._is_held = True
            return self
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            # `_release` skips waiters that gave up. The lock may have been handed to this one in between.
            if not waiter.cancelled():
                self._release()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._release()


#: How often a claim that others change concurrently is written before its pod is requeued.
_TRIES: Final = 8
#: How many checks, at most a second apart, wait for the watch before the API server is asked.
_LOOKS: Final = 30


class PatchCall(Protocol):
    """See `kube_client.patch.patch_once`."""

    async def __call__(
        self, path: str, body: bytes, *, wanted: Callable[[], bool], strategic: bool = False, repeats: bool = True
    ) -> Patched: ...


class ClaimWriter:
    """Writes claims, one writer per claim at a time, because concurrent writes of one claim only conflict."""

    def __init__(self, claims: ResourceClaims, patch: PatchCall, caught_up: Callable[[str], Awaitable[None]]) -> None:
        """`caught_up` waits until the claims are at least as new as the server's at the call, and as this version."""
        self._devices = claims.devices
        self._changes = claims.changes
        self._patch = patch
        self._caught_up = caught_up
        self._locks = KeyLocks()
        #: UIDs of pods with an abandoned write that may still be carried out, until `is_open` was called for them.
        self._open: set[str] = set()

    def waits_for_others(self, reservation: ReservedClaims) -> bool:
        """Return whether other pods of its group are about to write allocations that it depends on."""
        return any(map(self._is_others_to_write, reservation.claims))

    async def written_by_others(self, reservation: ReservedClaims, *, wanted: Callable[[], bool]) -> None:
        """Wait until the other pods have written their allocations, or no longer will.

        Each pod depends only on pods that were decided before it, so there is no circular wait.
        """
        with self._changes.of([part.claim for part in reservation.claims]) as changed:
            while self.waits_for_others(reservation) and wanted():
                changed.clear()
                await wait_for_change(changed)

    def _is_others_to_write(self, part: ReservedClaim) -> bool:
        return part.allocation is None and self._devices.assumed.is_about_to_have(part.claim, part.allocated)

    async def write(self, reservation: ReservedClaims, *, wanted: Callable[[], bool]) -> str:
        """Write the allocations of the reserved claims, and add the pod to their `reservedFor`.

        Returns an error message; empty once all is written. `wanted` is called before each request. Raises
        StoreWentBack if the API server no longer has a write that it had confirmed.
        """
        for part in reservation.claims:
            async with self._locks.of(part.claim) as lock:
                problem = await self._write(reservation, part, lock, wanted)
            if problem:
                return problem
        return ""

    async def _write(
        self, reservation: ReservedClaims, part: ReservedClaim, lock: KeyLock, wanted: Callable[[], bool]
    ) -> str:
        failures = waited = 0
        with self._changes.of((part.claim,)) as changed:
            while True:
                changed.clear()
                step = due(reservation, part, self._devices, self._newer(part.claim, lock.version))
                waited = waited + 1 if step is Due.WAIT else 0
                if waited >= _LOOKS:
                    known = self._devices.latest_version(part.claim)
                    if waited > _LOOKS:
                        name, seen = "/".join(part.claim), self._devices.claims[part.claim].resource_version
                        if not is_older(seen, known):
                            # Nothing that was written is missing; the next attempt decides by what there is.
                            return f"resourceclaim {name} waits for another client"
                        raise StoreWentBack(f"claim {name}", listed=seen, known=known)
                    await self._caught_up(known)
                    continue
                if step is Due.DONE:
                    return ""
                if isinstance(step, Lost):
                    return step.reason
                failure = None
                if isinstance(step, Write):
                    # A request that is delayed may be outdated by the time it is sent.
                    patched = await self._send(
                        step, lambda: wanted() and not is_overtaken(reservation, part, self._devices)
                    )
                    failure = patched.failure
                    if failure is None:
                        lock.version = patched.resource_version
                        if not step.status:
                            continue
                        self._devices.written(part.claim, reservation.pod.uid, lock.version)
                        return ""
                    if patched.is_open:
                        self._open.add(reservation.pod.uid)
                failures += failure is not None
                if failure is CALLED_OFF and isinstance(why := due(reservation, part, self._devices, ""), Lost):
                    return why.reason
                if failure is not None and (failure.kind is not FailureClass.CONFLICT or failures >= _TRIES):
                    return str(failure)
                # Another client has changed the claim; the watch will deliver the change.
                lock.version = ""
                if not wanted():
                    return "the pod no longer waits"
                await wait_for_change(changed)

    def is_open(self, uid: str) -> bool:
        """Return whether an abandoned write for the pod may still be carried out, and forget it."""
        if uid not in self._open:
            return False
        self._open.discard(uid)
        return True

    def _newer(self, key: ClaimKey, version: str) -> str:
        """Return `version`, or "" if the watch has delivered it already."""
        claim = self._devices.claim(key)
        if claim is None or not version:
            return ""
        return "" if version.isdigit() and version_of(claim) >= int(version) else version

    async def take_back(self, reservation: ReservedClaims, *, wanted: Callable[[], bool]) -> None:
        """Remove the pod, which does not use its claims, from their `reservedFor`.

        A claim without other consumers is deallocated, since no controller does so when there is no reservation to
        remove. Best effort: a claim that keeps its reservation is used by the pod's next attempt, or is released with
        the pod.
        """
        for part in reservation.claims:
            async with self._locks.of(part.claim) as lock:
                await self._take_back(reservation, part, lock, wanted)

    async def _take_back(
        self, reservation: ReservedClaims, part: ReservedClaim, lock: KeyLock, wanted: Callable[[], bool]
    ) -> None:
        devices, pod = self._devices, reservation.pod
        with self._changes.of((part.claim,)) as changed:
            for _ in range(_TRIES):
                changed.clear()
                claim = devices.claim(part.claim)
                if claim is None or claim.uid != part.uid or not devices.has_reserved(part.claim, pod.uid):
                    return
                version = self._newer(part.claim, lock.version) or devices.latest_version(part.claim)
                is_last = devices.reserved_for(part.claim) == {pod.uid}
                write = (
                    without_allocation(claim, version) if is_last else without_pod(part.claim, part.uid, pod, version)
                )
                patched = await self._send(write, wanted)
                lock.version = patched.resource_version
                if patched.failure is None:
                    devices.unreserved(part.claim, pod.uid, patched.resource_version)
                    if is_last:
                        devices.deallocated(part.claim, patched.resource_version)
                    return
                if patched.failure.kind is not FailureClass.CONFLICT or not wanted():
                    return
                await wait_for_change(changed)

    async def leave(self, reservation: ReservedClaims) -> None:
        """Deallocate the claims of a deleted pod that were allocated for others of its group too and have no consumers.

        Best effort, as `take_back`.
        """
        devices = self._devices
        for part in reservation.claims:
            async with self._locks.of(part.claim) as lock:
                # The writes of the other pods are not remembered.
                await self._caught_up("")
                claim = devices.claim(part.claim)
                if claim is None or claim.uid != part.uid or claim.allocation is None:
                    continue
                unused = partial(_is_unused, devices, part.claim)
                patched = await self._send(without_allocation(claim), unused)
                lock.version = patched.resource_version
                if patched.failure is None:
                    devices.deallocated(part.claim, patched.resource_version)

    async def deallocate(self, claim: ResourceClaimInfo, pod: PodRef, *, wanted: Callable[[], bool]) -> Failure | None:
        """Remove a claim's allocation; if it has other consumers, remove only the pod from its `reservedFor`.

        Returns None on success, and if the claim has changed, which the watch reports; else the failure. The claim's
        other writers wait until the outcome is known.
        """
        failure: Failure | None = None
        async with self._locks.of(claim.key):
            with self._changes.of((claim.key,)) as changed:
                for _ in range(_TRIES):
                    changed.clear()
                    failure = await self._deallocate(claim, pod, wanted)
                    if failure is None or failure.kind is not FailureClass.CONFLICT or not wanted():
                        break
                    # If only other fields changed, the claim still blocks the pod, and no event would wake the pod.
                    await wait_for_change(changed)
        return failure

    async def _deallocate(self, claim: ResourceClaimInfo, pod: PodRef, wanted: Callable[[], bool]) -> Failure | None:
        devices = self._devices
        # The other consumers may have been removed by now, and the watch may have delivered that before.
        seen, alone = devices.claim(claim.key), is_last(claim, devices, pod)
        others_came = not alone and frozenset(claim.reserved_for) <= {pod.uid}
        if seen is None or _use(seen) != _use(claim) or others_came or devices.is_deallocated(claim.key):
            return None
        version = devices.latest_version(claim.key)
        write = without_allocation(seen, version) if alone else without_pod(claim.key, claim.uid, pod, version)
        patched = await self._send(write, wanted)
        if patched.failure is None and alone:
            devices.deallocated(claim.key, patched.resource_version)
        elif patched.failure is None:
            devices.unreserved(claim.key, pod.uid, patched.resource_version)
        return patched.failure

    def is_last(self, claim: ResourceClaimInfo, pod: PodInfo) -> bool:
        """Return whether the pod is the only consumer of the claim."""
        return is_last(claim, self._devices, pod_ref(pod))

    def to_deallocate(self, demand: ClaimDemand, pod: PodInfo) -> ResourceClaimInfo | None:
        """Return a claim that keeps the pod from nodes and that no other pod uses or can use; None if there is none.

        A claim that is being written counts too: the watch may have delivered the write before the decision, and no
        further event would wake the pod.
        """
        return to_deallocate(demand, self._devices, pod_ref(pod))

    async def _send(self, write: Write, wanted: Callable[[], bool]) -> Patched:
        path = claim_path(*write.claim)
        if write.status:
            path = f"{path}/status"
        return await self._patch(path, write.body, wanted=wanted, strategic=write.strategic)


def _use(claim: ResourceClaimInfo) -> tuple[object, ...]:
    """Return the properties of a claim on which its use depends."""
    return claim.uid, claim.allocation, claim.binding_conditions


def _is_unused(devices: Devices, key: ClaimKey) -> bool:
    return not devices.reserved_for(key)
