"""The writes that the resource claims of decided pods need (resource.k8s.io), and those that take them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from agent_scheduler.engine.dra.catalogue import version_of
from agent_scheduler.engine.dra.demand import Demand
from agent_scheduler.engine.dra.records import ClaimInfo, ClaimKey
from agent_scheduler.engine.dra.reservation import (
    Due,
    Lost,
    Part,
    Reservation,
    Write,
    deallocated,
    due,
    is_overtaken,
    taken_back,
    to_deallocate,
)
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.patch import CALLED_OFF, Patched
from agent_scheduler.kube.paths import segment

from .resource_claims import GROUP, ResourceClaims, pod_ref

#: So often a claim that others change meanwhile is written before its pod is put off.
_TRIES: Final = 8
#: Seconds between two looks at what no change of a claim tells.
_LOOK_AGAIN: Final = 1.0


class PatchCall(Protocol):
    """Makes one change; `wanted` is asked before each request. Never raises for what network or server do."""

    async def __call__(
        self, path: str, body: bytes, *, wanted: Callable[[], bool], strategic: bool = False
    ) -> Patched: ...


class ClaimWriter:
    """Writes claims, each by one of ours at a time: pods that share one would only refuse one another's writes."""

    def __init__(self, claims: ResourceClaims, patch: PatchCall) -> None:
        self._devices = claims.devices
        self._changes = claims.changes
        self._patch = patch
        #: Those who write a claim or wait to, with the version that the last write of them made.
        self._turns: dict[ClaimKey, _Turn] = {}
        #: UIDs of pods for which a write was given up that may still be carried out, until `is_open` was asked.
        self._open: set[str] = set()

    async def write(self, reservation: Reservation, *, wanted: Callable[[], bool]) -> str:
        """Give the reserved claims their allocations, and the pod its place among those that they are reserved for.

        What went wrong; empty once all is written. `wanted` is asked before each request.
        """
        for part in reservation.parts:
            async with self._turn(part.claim) as turn:
                problem = await self._write(reservation, part, turn, wanted)
            if problem:
                return problem
        return ""

    async def _write(
        self, reservation: Reservation, part: Part, turn: _Turn, wanted: Callable[[], bool]
    ) -> str:
        failures = 0
        with self._changes.of((part.claim,)) as changed:
            while True:
                changed.clear()
                step = due(reservation, part, self._devices, self._newer(part.claim, turn.version))
                if step is Due.DONE:
                    return ""
                if isinstance(step, Lost):
                    return step.reason
                failure = None
                if isinstance(step, Write):
                    # A request that is put off may be overtaken meanwhile.
                    patched = await self._send(
                        step, lambda: wanted() and not is_overtaken(reservation, part, self._devices)
                    )
                    failure = patched.failure
                    if failure is None:
                        turn.version = patched.resource_version
                        if step.status:
                            self._devices.written(part.claim, reservation.pod.uid, patched.resource_version)
                            return ""
                        continue
                    if patched.is_open:
                        self._open.add(reservation.pod.uid)
                failures += failure is not None
                if failure is CALLED_OFF and isinstance(
                    why := due(reservation, part, self._devices, ""), Lost
                ):
                    return why.reason
                if failure is not None and (failure.kind is not FailureClass.CONFLICT or failures >= _TRIES):
                    return str(failure)
                # Somebody else has changed the claim: the watch is about to say how.
                turn.version = ""
                if not wanted():
                    return "the pod no longer waits"
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await changed.wait()

    def is_open(self, uid: str) -> bool:
        """Whether a write that was given up for the pod may still be carried out. Says so once."""
        if uid not in self._open:
            return False
        self._open.discard(uid)
        return True

    def _newer(self, key: ClaimKey, version: str) -> str:
        """`version`, unless the watch has shown it by now."""
        claim = self._devices.claim(key)
        if claim is None or not version:
            return ""
        return "" if version.isdigit() and version_of(claim) >= int(version) else version

    async def take_back(self, reservation: Reservation, *, wanted: Callable[[], bool]) -> None:
        """The pod does not use its claims: take it out of those that they are reserved for. A claim that is left to
        nobody is deallocated: no controller does that once there is no reservation to withdraw. Best effort: what stays
        is used by the pod's next attempt, or goes with the pod."""
        for part in reservation.parts:
            async with self._turn(part.claim) as turn:
                await self._take_back(reservation, part, turn, wanted)

    async def _take_back(
        self, reservation: Reservation, part: Part, turn: _Turn, wanted: Callable[[], bool]
    ) -> None:
        devices, pod = self._devices, reservation.pod
        with self._changes.of((part.claim,)) as changed:
            for _ in range(_TRIES):
                changed.clear()
                claim = devices.claim(part.claim)
                if claim is None or claim.uid != part.uid or not devices.has_reserved(part.claim, pod.uid):
                    return
                version = self._newer(part.claim, turn.version) or devices.latest_version(part.claim)
                is_last = devices.reserved_for(part.claim) == {pod.uid}
                write = (
                    deallocated(claim, version) if is_last else taken_back(part.claim, part.uid, pod, version)
                )
                patched = await self._send(write, wanted)
                turn.version = patched.resource_version
                if patched.failure is None:
                    devices.taken_back(part.claim, pod.uid, patched.resource_version)
                    if is_last:
                        devices.given_back(part.claim, patched.resource_version)
                    return
                if patched.failure.kind is not FailureClass.CONFLICT or not wanted():
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await changed.wait()

    async def deallocate(self, claim: ClaimInfo, *, wanted: Callable[[], bool]) -> Failure | None:
        """Take a claim's allocation away. None, or why not. Whoever is to write the claim waits until that is known."""
        async with self._turn(claim.key):
            patched = await self._send(deallocated(claim), wanted)
            if patched.failure is None:
                self._devices.given_back(claim.key, patched.resource_version)
            return patched.failure

    def to_deallocate(self, demand: Demand, pod: PodInfo) -> ClaimInfo | None:
        """A claim that keeps the pod from nodes and that nobody else uses or is about to change."""
        claim = to_deallocate(demand, self._devices, pod_ref(pod))
        return None if claim is not None and claim.key in self._turns else claim

    async def _send(self, write: Write, wanted: Callable[[], bool]) -> Patched:
        namespace, name = write.claim
        path = f"{GROUP}/namespaces/{segment(namespace)}/resourceclaims/{segment(name)}"
        return await self._patch(
            f"{path}/status" if write.status else path, write.body, wanted=wanted, strategic=write.strategic
        )

    def _turn(self, key: ClaimKey) -> _Turn:
        """To be entered at once."""
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = _Turn(key, self._turns)
        return turn


class _Turn:
    """One claim's writers, one at a time. Invariant: it is in the table as long as `users` hold it or wait for it."""

    __slots__ = ("_key", "_lock", "_table", "_users", "version")

    def __init__(self, key: ClaimKey, table: dict[ClaimKey, _Turn]) -> None:
        self._key = key
        self._table = table
        self._lock = asyncio.Lock()
        self._users = 0
        self.version = ""

    async def __aenter__(self) -> _Turn:
        self._users += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            del self._table[self._key]
