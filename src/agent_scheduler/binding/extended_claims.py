"""The claims that are made for the extended resources of decided pods, and what their pods are told of them.

    make ──> wait until the watch shows it ──> allocate and reserve, as any claim ──> tell the pod

Guarantees: of a pod there is one such claim at most, also if a request's answer is lost or the process ends in between
(`dra.extended_claim`); one attempt or removal at a time writes for it; it is bound only with the claim and the mapping
that belong to its node; what an attempt made is deleted when it fails, and what could not be deleted is, before the
next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

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
from agent_scheduler.kube.create import Made
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.transport import pod_path

from .claim_writer import ClaimWriter, KeyLocks, PatchCall

#: Names that are tried for a claim, where objects of others have the first ones.
_NAMES: Final = 4
#: So many looks, a second apart at most, a new claim is waited for.
_LOOKS: Final = 30


class CreateCall(Protocol):
    """Makes one object. As `kube.create.create_once`."""

    async def __call__(
        self, collection: str, name: str, body: bytes, *, wanted: Callable[[], bool]
    ) -> Made: ...


class DeleteCall(Protocol):
    """Deletes one object. As `kube.create.delete_once`."""

    async def __call__(self, path: str, uid: str, *, wanted: Callable[[], bool]) -> Failure | None: ...


class ExtendedClaims:
    """Owner of what the attempts under way have made. `wanted` is asked before each request."""

    def __init__(
        self,
        claims: ResourceClaims,
        *,
        writer: ClaimWriter,
        patch: PatchCall,
        create: CreateCall,
        delete: DeleteCall,
    ) -> None:
        self._devices = claims.devices
        self._changes = claims.changes
        self._writer = writer
        self._patch = patch
        self._create = create
        self._delete = delete
        #: UID of each pod whose attempt has made a claim, until its bind or until that is deleted.
        self._made: dict[str, MadeClaim] = {}
        #: Of pods, by namespace and UID: what a removal still says of one must not undo what its next attempt has said.
        self._locks = KeyLocks()

    async def write(self, reservation: ReservedClaims, *, names: str, wanted: Callable[[], bool]) -> str:
        """Make the claim that is assumed for the pod in memory, and tell it. `names`: the claim that the pod's status
        has now; without one in memory it is to have none.

        What went wrong; empty once all is written.
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
            return f"resourceclaim {made.namespace}/{made.name} has been changed by somebody else"
        part = ReservedClaim(key, made.uid, in_memory.allocation, in_memory.allocation.allocated)
        one = ReservedClaims(pod, reservation.node_name, (part,), at=reservation.at)
        problem = await self._writer.write(one, wanted=wanted)
        return problem or await self._tell(pod, status_patch(pod, made.name, in_memory.mappings), wanted)

    def bound(self, uid: str) -> None:
        """What was made is the pod's."""
        self._made.pop(uid, None)

    async def take_back(self, pod: PodRef, *, names: str, wanted: Callable[[], bool]) -> bool:
        """The pod does not go where its claim was made for: delete what there is of such claims, and have its status
        name none. `names`: the claim that it has now. False if anything stays; the next attempt finds it."""
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

    async def _make(
        self, pod: PodRef, in_memory: InMemoryClaim, wanted: Callable[[], bool]
    ) -> MadeClaim | str:
        """The claim, or what went wrong."""
        collection = claims_path(pod.namespace)
        failure: Failure | None = None
        for number in range(_NAMES):
            name = name_of(pod, number)
            answer = await self._create(collection, name, manifest(pod, name, in_memory.spec), wanted=wanted)
            failure, found = answer.failure, answer.found
            if failure is not None and failure.kind is not FailureClass.CONFLICT:
                break
            uid = str((found.get("metadata") or {}).get("uid", ""))
            made = MadeClaim(pod.namespace, name, uid)
            if failure is None:
                return made
            if owner_of(found) == pod.uid:
                # Of an attempt before this one; it goes with this one.
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
        """What went wrong; empty once the pod's status says so."""
        patched = await self._patch(f"{pod_path(pod)}/status", status, wanted=wanted)
        return "" if patched.failure is None else str(patched.failure)
