"""What is made for a pod's extended resources and taken away again, with an API server that answers as it is told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agent_scheduler.binding.claim_writer import ClaimWriter
from agent_scheduler.binding.extended_claims import ExtendedClaims
from agent_scheduler.cluster.resource_claims import ResourceClaims
from agent_scheduler.engine.dra.allocation import Allocation
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.extended_claim import InMemoryClaim, manifest, name_of
from agent_scheduler.engine.dra.records import read_claim
from agent_scheduler.engine.dra.reservation import ReservedClaims
from agent_scheduler.engine.state.podclaims import PodRef
from kube_client.create import CreateResult
from kube_client.errors import Failure, FailureClass
from kube_client.patch import Patched

POD = PodRef("default", "p", "uid-p")
CONFLICT = Failure(FailureClass.CONFLICT)
FORBIDDEN = Failure(FailureClass.PERMANENT, 403)
SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
FIRST, SECOND = name_of(POD), name_of(POD, 1)
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
STATUS = "/api/v1/namespaces/default/pods/p/status"


def found(name: str, uid: str, *, owner: str = POD.uid) -> dict[str, Any]:
    """A claim as it is when it was made for the pod that `owner` is the UID of."""
    claim: dict[str, Any] = msgspec.json.decode(manifest(POD._replace(uid=owner), name, SPEC))
    claim["metadata"] |= {"uid": uid, "resourceVersion": "5"}
    return claim


def made(name: str, uid: str, *, owner: str = POD.uid) -> bytes:
    return msgspec.json.encode(found(name, uid, owner=owner))


async def caught_up(_version: str) -> None:
    """Nothing is missed here."""


class World:
    """`creates` are the answers to what is made; a request to a path in `fails` is answered so."""

    def __init__(self, *creates: CreateResult) -> None:
        self.creates = list(creates)
        self.fails: dict[str, Failure] = {}
        self.is_wanted = True
        #: What was asked for: verb and path.
        self.asked: list[tuple[str, str]] = []
        self.devices = Devices()
        self.claims = ResourceClaims(self.devices, cast(Any, SimpleNamespace(move_all=lambda *_event: None)))
        writer = ClaimWriter(self.claims, self.patch, caught_up)
        self.extended = ExtendedClaims(
            self.claims, writer=writer, patch=self.patch, create=self.create, delete=self.delete
        )
        self.in_memory = InMemoryClaim(SPEC, [], Allocation((), (), None))
        self.reservation = ReservedClaims(POD, "n1", (), self.in_memory)

    def _answer(self, verb: str, path: str) -> Failure | None:
        self.asked.append((verb, path))
        return self.fails.get(f"{verb} {path}")

    async def patch(
        self, path: str, body: bytes, *, wanted: Callable[[], bool], strategic: bool = False, after: Any = None
    ) -> Patched:
        return Patched("6", self._answer("PATCH", path))

    async def create(self, collection: str, name: str, body: bytes, *, wanted: Callable[[], bool]) -> CreateResult:
        self.asked.append(("POST", name))
        return self.creates.pop(0)

    async def delete(self, path: str, uid: str, *, wanted: Callable[[], bool]) -> Failure | None:
        return self._answer("DELETE", f"{path} {uid}")

    def show(self, claim: dict[str, Any]) -> None:
        """The watch does."""
        self.claims.kinds()[2].set(read_claim(msgspec.json.encode(claim)))

    async def write(self) -> str:
        return await self.extended.write(self.reservation, names="", wanted=lambda: self.is_wanted)

    async def take_back(self, names: str = "") -> bool:
        self.asked.clear()
        return await self.extended.take_back(POD, names=names, wanted=lambda: True)


async def made_and_not_seen() -> World:
    """An attempt has made a claim and ended before the watch has shown it."""
    world = World(CreateResult(made(FIRST, "uid-c")))
    world.is_wanted = False
    assert await world.write() == f"resourceclaim default/{FIRST} was made and not seen"
    return world


async def test_a_claim_that_was_made_and_not_seen_is_deleted_and_its_pods_status_names_none() -> None:
    world = await made_and_not_seen()
    assert await world.take_back()
    path = f"{CLAIMS}/{FIRST}"
    assert world.asked == [("PATCH", path), ("DELETE", f"{path} uid-c"), ("PATCH", STATUS)]
    # It is known to be gone.
    assert await world.take_back()
    assert world.asked == []


async def test_a_claim_that_is_seen_by_now_is_deleted_once() -> None:
    world = await made_and_not_seen()
    world.show(found(FIRST, "uid-c"))
    assert await world.take_back()
    assert [verb for verb, _ in world.asked] == ["PATCH", "DELETE", "PATCH"]


async def test_what_the_bind_has_given_to_the_pod_is_not_taken_back() -> None:
    world = await made_and_not_seen()
    world.extended.bound(POD.uid)
    assert await world.take_back()
    assert world.asked == []


async def test_a_status_that_names_a_claim_which_is_gone_is_put_right() -> None:
    world = World()
    assert await world.take_back(names="gone")
    assert world.asked == [("PATCH", STATUS)]


@pytest.mark.parametrize("number", [0, 1])
async def test_something_is_left_when_one_of_two_claims_cannot_be_deleted(number: int) -> None:
    world = World()
    names = (FIRST, SECOND)
    for name in names:
        world.show(found(name, f"uid-{name}"))
    world.fails[f"DELETE {CLAIMS}/{names[number]} uid-{names[number]}"] = FORBIDDEN
    assert not await world.take_back()
    assert len([verb for verb, _ in world.asked if verb == "DELETE"]) == 2


async def test_something_is_left_when_the_status_cannot_be_written() -> None:
    world = World()
    world.fails[f"PATCH {STATUS}"] = FORBIDDEN
    assert not await world.take_back(names="gone")


@pytest.mark.parametrize(("failure", "is_gone"), [(Failure(FailureClass.NOT_FOUND), True), (FORBIDDEN, False)])
async def test_a_claim_whose_protection_stays_on_is_not_deleted(failure: Failure, is_gone: bool) -> None:
    world = await made_and_not_seen()
    world.fails[f"PATCH {CLAIMS}/{FIRST}"] = failure
    assert await world.take_back() is is_gone
    assert [verb for verb, _ in world.asked] == ["PATCH", "PATCH"]


THEIRS = CreateResult(made(FIRST, "uid-theirs", owner="somebody"), CONFLICT)


@pytest.mark.parametrize(
    ("creates", "told", "asked", "deleted"),
    [
        ([THEIRS, CreateResult(made(SECOND, "uid-c"))], f"resourceclaim default/{SECOND} was made and", 2, SECOND),
        ([THEIRS] * 5, "create claim for extended resources: ", 4, ""),
        ([CreateResult(b"", FORBIDDEN)], "create claim for extended resources: ", 1, ""),
        # Its allocation may be for another node, so it is not used, and goes with this attempt.
        ([CreateResult(made(FIRST, "uid-c"), CONFLICT)], "create claim for extended resources: ", 1, FIRST),
    ],
    ids=["somebody else's", "somebody else's for ever", "forbidden", "of an attempt before"],
)
async def test_another_name_is_taken_where_somebody_elses_object_has_the_first(
    creates: list[CreateResult], told: str, asked: int, deleted: str
) -> None:
    world = World(*creates)
    world.is_wanted = False
    assert (await world.write()).startswith(told)
    assert world.asked == [("POST", name_of(POD, number)) for number in range(asked)]
    assert await world.take_back()
    paths = [path for verb, path in world.asked if verb == "DELETE"]
    assert paths == ([f"{CLAIMS}/{deleted} uid-c"] if deleted else [])
    assert bool(world.asked) is bool(deleted)


async def test_an_object_of_the_same_name_with_another_uid_is_not_the_claim_that_was_made() -> None:
    world = World(CreateResult(made(FIRST, "uid-c")))
    world.show(found(FIRST, "uid-older"))
    world.is_wanted = False
    assert await world.write() == f"resourceclaim default/{FIRST} was made and not seen"


async def test_a_pod_without_a_promise_has_no_claim_named_and_is_told_only_if_one_was() -> None:
    world = World()
    world.reservation = ReservedClaims(POD, "n1", ())
    assert await world.write() == "" and world.asked == []
    assert await world.extended.write(world.reservation, names="old", wanted=lambda: True) == ""
    assert world.asked == [("PATCH", STATUS)]
    world.fails[f"PATCH {STATUS}"] = FORBIDDEN
    assert await world.extended.write(world.reservation, names="old", wanted=lambda: True) == str(FORBIDDEN)


async def test_a_claim_that_is_seen_gets_what_was_promised_and_then_its_pod_is_told() -> None:
    world = World(CreateResult(made(FIRST, "uid-c")))
    world.show(found(FIRST, "uid-c"))
    assert world.devices.assume_in_memory(POD.uid, world.in_memory.claim_spec, world.in_memory.allocation)
    assert await world.write() == ""
    assert world.asked == [("POST", FIRST), ("PATCH", f"{CLAIMS}/{FIRST}/status"), ("PATCH", STATUS)]


async def test_a_claim_that_somebody_has_given_other_devices_is_not_written() -> None:
    world = World(CreateResult(made(FIRST, "uid-c")))
    assert world.devices.assume_in_memory(POD.uid, world.in_memory.claim_spec, world.in_memory.allocation)
    result = {"request": "r", "driver": "d", "pool": "n1", "device": "gpu-0"}
    world.show({**found(FIRST, "uid-c"), "status": {"allocation": {"devices": {"results": [result]}}}})
    assert await world.write() == f"resourceclaim default/{FIRST} has been changed by another client"
    assert world.asked == [("POST", FIRST)]


async def test_a_pod_is_not_told_of_a_claim_that_could_not_be_written() -> None:
    world = World(CreateResult(made(FIRST, "uid-c")))
    world.show(found(FIRST, "uid-c"))
    assert world.devices.assume_in_memory(POD.uid, world.in_memory.claim_spec, world.in_memory.allocation)
    world.fails[f"PATCH {CLAIMS}/{FIRST}/status"] = FORBIDDEN
    assert await world.write() == str(FORBIDDEN)
    assert ("PATCH", STATUS) not in world.asked
