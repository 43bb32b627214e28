"""The claims that are created for the extended resources of decided pods, and the pod status that refers to them.

    create ──> wait until the watch delivers it ──> allocate and reserve, as any claim ──> update the pod's status

Guarantees: a pod has at most one such claim, even if a response is lost or the process ends in between
(`dra.extended_claim`); at most one attempt or removal writes for a pod at a time; a pod is bound only with the claim
and the mapping that belong to its node; the claim of a failed attempt is deleted, at the latest before the next
attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from agent_scheduler.cluster.changes import wait_for_change
from agent_scheduler.cluster.resource_claims import ResourceClaims, claim_path, claims_path
from agent_scheduler.engine.dra.extended_claim import (
    InMemoryClaim,
    MadeClaim,
    manifest,
    name_of,
    owner_of,
    status_patch,
    unprotected,
)
from agent_scheduler.engine.dra.reservation import ReservedClaim, ReservedClaims
from agent_scheduler.engine.state.podclaims import PodRef
from kube_client.create import CreateResult
from kube_client.errors import Failure, FailureClass
from kube_client.transport import pod_path

from .claim_writer import ClaimWriter, KeyLocks, PatchCall

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
#: The number of names that are tried for a claim if other objects have the first ones.
_NAMES: Final = 4
#: How many checks, at most a second apart, wait for a new claim in the watch.
_LOOKS: Final = 30


class CreateCall(Protocol):
    """Creates one object; see `kube_client.create.create_once`."""

    async def __call__(
        self, collection: str, name: str, body: bytes, *, wanted: Callable[[], bool]
    ) -> CreateResult: ...


class DeleteCall(Protocol):
    """Deletes one object; see `kube_client.create.delete_once`."""

    async def __call__(self, path: str, uid: str, *, wanted: Callable[[], bool]) -> Failure | None: ...


class ExtendedClaims:
    """Owner of the claims that current attempts have created. `wanted` is called before each request."""

    def __init__(
        self, claims: ResourceClaims, *, writer: ClaimWriter, patch: PatchCall, create: CreateCall, delete: DeleteCall
    ) -> None:
        self._devices = claims.devices
        self._changes = claims.changes
        self._writer = writer
        self._patch = patch
        self._create = create
        self._delete = delete
        #: UID of a pod -> the claim that its attempt has created, until the pod is bound or the claim is deleted.
        self._made: dict[str, MadeClaim] = {}
        #: Locks by pod (namespace and UID), so that a removal does not overwrite the status of the pod's next attempt.
        self._locks = KeyLocks()

    async def write(self, reservation: ReservedClaims, *, names: str, wanted: Callable[[], bool]) -> str:
        """Create the claim that is assumed for the pod in memory, and write it to the pod's status.

        `names` is the claim in the pod's status, which is removed if there is none in memory. Returns an error message;
        empty once all is written.
        """
        async with self._locks.of((reservation.pod.namespace, reservation.pod.uid)):
            return await self._write(reservation, names, wanted)

    async def _write(self, reservation: ReservedClaims, names: str, wanted: Callable[[], bool]) -> str:
        pod, in_memory = reservation.pod, reservation.in_memory
        if in_memory is None:
            return await self._tell(pod, status_patch(pod), wanted) if names else ""
        made = await self._make(pod, in_memory, wanted)
        if isinstance(made, str):
            return made
        self._made[pod.uid] = made
        key = made.namespace, made.name
        if not await self._seen(made, wanted):
            return f"resourceclaim {made.namespace}/{made.name} was made and not seen"
        if not self._devices.replace_in_memory(key, in_memory.allocation, pod.uid):
            return f"resourceclaim {made.namespace}/{made.name} has been changed by another client"
        part = ReservedClaim(key, made.uid, in_memory.allocation, in_memory.allocation.allocated)
        one = ReservedClaims(pod, reservation.node_name, (part,), at=reservation.at)
        problem = await self._writer.write(one, wanted=wanted)
        return problem or await self._tell(pod, status_patch(pod, made.name, in_memory.mappings), wanted)

    def bound(self, uid: str) -> None:
        """Keep the claim, since the pod is bound with it."""
        self._made.pop(uid, None)

    async def take_back(self, pod: PodRef, *, names: str, wanted: Callable[[], bool]) -> bool:
        """Delete the claims that were created for the pod, and remove them from its status.

        `names` is the claim in its status. Returns False if a claim or the status remains; the next attempt finds it.
        """
        async with self._locks.of((pod.namespace, pod.uid)):
            return await self._take_back(pod, names, wanted)

    async def _take_back(self, pod: PodRef, names: str, wanted: Callable[[], bool]) -> bool:
        claims = [MadeClaim(each.namespace, each.name, each.uid) for each in self._devices.made_for(pod.uid)]
        made = self._made.pop(pod.uid, None)
        if made is not None and made not in claims:
            claims.append(made)
        gone = [await self._remove(each, wanted) for each in claims]
        problem = await self._tell(pod, status_patch(pod), wanted) if names or made is not None else ""
        return all(gone) and not problem

    async def _make(self, pod: PodRef, in_memory: InMemoryClaim, wanted: Callable[[], bool]) -> MadeClaim | str:
        """Return the claim, or an error message."""
        collection = claims_path(pod.namespace)
        failure: Failure | None = None
        for number in range(_NAMES):
            name = name_of(pod, number)
            answer = await self._create(collection, name, manifest(pod, name, in_memory.spec), wanted=wanted)
            failure = answer.failure
            if failure is not None and failure.kind is not FailureClass.CONFLICT:
                break
            found = _decode(answer.found)
            uid = str((found.get("metadata") or {}).get("uid", ""))
            made = MadeClaim(pod.namespace, name, uid)
            if failure is None:
                return made
            if owner_of(found) == pod.uid:
                # An earlier attempt created it; it is deleted with this attempt.
                self._made[pod.uid] = made
                break
        return f"create claim for extended resources: {failure}"

    async def _seen(self, made: MadeClaim, wanted: Callable[[], bool]) -> bool:
        key = made.namespace, made.name
        with self._changes.of((key,)) as changed:
            for _ in range(_LOOKS):
                changed.clear()
                claim = self._devices.claim(key)
                if claim is not None and claim.uid == made.uid:
                    return True
                if not wanted():
                    return False
                await wait_for_change(changed)
        return False

    async def _remove(self, claim: MadeClaim, wanted: Callable[[], bool]) -> bool:
        path = claim_path(claim.namespace, claim.name)
        patched = await self._patch(path, unprotected(claim.uid), wanted=wanted, strategic=True)
        if patched.failure is not None:
            return patched.failure.kind is FailureClass.NOT_FOUND
        return await self._delete(path, claim.uid, wanted=wanted) is None

    async def _tell(self, pod: PodRef, status: bytes, wanted: Callable[[], bool]) -> str:
        """Write the pod's status. Returns an error message, or ""."""
        patched = await self._patch(f"{pod_path(pod)}/status", status, wanted=wanted)
        return "" if patched.failure is None else str(patched.failure)
