"""Claims that are given back while the watch lags, or while others change them: old versions are not believed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agent_scheduler.binding import claim_writer
from agent_scheduler.binding.claim_writer import ClaimWriter, KeyLocks
from agent_scheduler.cluster.resource_claims import ResourceClaims
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.demand import demand
from agent_scheduler.engine.dra.records import FINALIZER, ResourceClaimInfo
from agent_scheduler.engine.dra.reservation import Due, Lost, ReservedClaim, ReservedClaims, Write, due
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.state.podclaims import PodClaim, PodRef
from kube_client.errors import Failure, FailureClass, StoreWentBack
from kube_client.patch import CALLED_OFF, Patched
from tests.support.devices import allocated_to, claim_of

POD = PodRef("default", "p", "uid-p")
KEY = ("default", "c")


def claim(version: int, *users: str, allocated: bool = True, **metadata: str) -> ResourceClaimInfo:
    """Allocated, and reserved for `users`."""
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    status = {**allocated_to("gpu-0", node_name="n1"), "reservedFor": reserved} if allocated else {}
    return claim_of("c", version=version, status=status, metadata={"finalizers": [FINALIZER], **metadata})


class Claims:
    """One claim that is allocated and reserved for the pod, and whoever writes it. `answers`: to patches."""

    def __init__(self, *answers: Patched) -> None:
        self.devices = Devices()
        self.answers = list(answers)
        self.sent: list[dict[str, Any]] = []
        #: What happens when a patch comes, and what the API server is found to have when it is asked.
        self.then: Callable[[], None] = lambda: None
        self.found: Callable[[], None] = lambda: None
        self.catch_ups: list[str] = []
        #: Events that pods which wait are told: (event, before, after).
        self.told: list[tuple[ClusterEvent, Any, Any]] = []
        queue = SimpleNamespace(move_all=lambda *event: self.told.append(event))
        self.claims = ResourceClaims(self.devices, cast(Any, queue))
        self.writer = ClaimWriter(self.claims, self.patch, self.catch_up)
        self.see(5, POD.uid)
        allocated = self.devices.allocation(KEY)
        assert allocated is not None
        self.reservation = ReservedClaims(POD, "n1", (ReservedClaim(KEY, "uid-c", None, allocated),))

    async def patch(self, path: str, body: bytes, *, wanted: Callable[[], bool], **_more: object) -> Patched:
        if not wanted():
            return Patched("", CALLED_OFF)
        self.sent.append(msgspec.json.decode(body))
        self.then()
        return self.answers.pop(0)

    def see(self, version: int, *users: str) -> None:
        self.devices.set_claim(claim(version, *users))
        self.claims.changes.wake(KEY)

    def change(self, raw: ResourceClaimInfo) -> None:
        """The watch shows the claim."""
        self.claims.kinds()[2].set(raw)

    def delete(self, raw: ResourceClaimInfo) -> None:
        self.claims.kinds()[2].delete(raw)

    async def catch_up(self, version: str) -> None:
        self.catch_ups.append(version)
        self.found()

    @property
    def seen(self) -> ResourceClaimInfo:
        found = self.devices.claim(KEY)
        assert found is not None
        return found

    def due(self) -> object:
        return due(self.reservation, self.reservation.claims[0], self.devices, "")

    async def take_back(self) -> None:
        await self.writer.take_back(self.reservation, wanted=lambda: True)

    async def write(self) -> str:
        return await self.writer.write(self.reservation, wanted=lambda: True)

    async def deallocate(self, pod: PodRef = POD, wanted: Callable[[], bool] = lambda: True) -> Failure | None:
        """The claim as it is seen now."""
        return await self.writer.deallocate(self.seen, pod, wanted=wanted)

    @property
    def versions(self) -> list[str]:
        """Those that patches were sent for."""
        return [each["metadata"]["resourceVersion"] for each in self.sent]

    def assume(self, user: str = POD.uid, version: str = "") -> None:
        """What is written, in `version` if that was answered, and not shown yet."""
        assert self.devices.assume(KEY, None, user)
        if version:
            self.devices.written(KEY, user, version)

    @property
    def is_settled(self) -> bool:
        return len(self.devices.assumed) == 0 and self.devices.check() == []


CONFLICT = Patched("", Failure(FailureClass.CONFLICT))
FREED = {"allocation": None, "reservedFor": None}


async def taken_back(*answers: Patched) -> Claims:
    """A claim that another pod has, too, from which the reservation was taken back in version 7."""
    world = Claims(Patched("7"), *answers)
    world.see(6, POD.uid, "another")
    assert world.due() is Due.DONE
    await world.take_back()
    return world


async def test_a_reservation_that_was_taken_back_is_not_believed_until_the_watch_shows_it() -> None:
    world = await taken_back()
    assert world.devices.reserved_for(KEY) == {"another"}
    assert world.due() is Due.WAIT
    world.see(6, POD.uid, "another")
    assert world.due() is Due.WAIT
    world.see(7, "another")
    write = world.due()
    assert isinstance(write, Write) and POD.uid.encode() in write.body
    assert world.is_settled


async def test_a_claim_whose_news_the_watch_keeps_back_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_writer, "_LOOKS", 2)
    world = await taken_back(Patched("8"))
    world.found = lambda: world.see(7, "another")
    assert await world.write() == ""
    assert world.catch_ups == ["7"] and world.answers == []


async def test_a_claim_that_lacks_what_was_written_though_all_is_known_tells_that_the_store_went_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_writer, "_LOOKS", 2)
    world = await taken_back()
    with pytest.raises(StoreWentBack, match="claim default/c is of version 6, and 7 was seen already"):
        await world.write()
    assert world.catch_ups == ["7"]


async def test_a_claim_that_waits_though_all_that_was_written_is_there_is_decided_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_writer, "_LOOKS", 2)
    monkeypatch.setattr(claim_writer, "due", lambda *_: Due.WAIT)
    world = Claims()
    world.see(6)
    assert await world.write() == "resourceclaim default/c waits for another client"
    assert len(world.catch_ups) == 1


async def test_what_the_next_attempt_reserves_outlives_the_news_of_the_last_ones_end() -> None:
    world = await taken_back()
    world.assume()
    world.see(6, POD.uid, "another")
    assert world.devices.reserved_for(KEY) == {POD.uid, "another"}
    world.see(7, "another")
    assert world.devices.reserved_for(KEY) == {POD.uid, "another"}
    world.devices.written(KEY, POD.uid, "8")
    world.see(8, POD.uid, "another")
    assert world.devices.reserved_for(KEY) == {POD.uid, "another"} and len(world.devices.assumed) == 0


@pytest.mark.promise("L10")
async def test_a_claim_that_is_taken_back_from_its_last_pod_is_deallocated() -> None:
    world = Claims(Patched("6"))
    await world.take_back()
    assert [each["status"] for each in world.sent] == [FREED] and world.versions == ["5"]
    assert world.devices.reserved_for(KEY) == frozenset() and world.devices.allocation(KEY) is None
    world.devices.set_claim(claim(6, allocated=False))
    assert world.is_settled


async def test_a_claim_that_was_allocated_for_a_pod_that_is_gone_is_deallocated_once_nobody_has_it() -> None:
    world = Claims(Patched("8"))
    await world.writer.leave(world.reservation)
    assert world.sent == [], "the API server has it as reserved, and a controller takes that back"
    world.see(7)
    world.assume("another")
    await world.writer.leave(world.reservation)
    assert world.sent == [], "another pod is about to have it"
    world.devices.forget("another")
    await world.writer.leave(world.reservation)
    assert [each["status"] for each in world.sent] == [FREED] and world.versions == ["7"]
    assert world.devices.allocation(KEY) is None


async def test_a_reservation_is_taken_out_of_no_version_but_the_newest_that_is_known() -> None:
    world = Claims(Patched("7"))
    world.assume("another", "6")
    await world.take_back()
    assert world.versions == ["6"]


async def test_a_reservation_is_taken_back_of_a_claim_that_others_change_meanwhile() -> None:
    world = Claims(CONFLICT, Patched("9"))
    world.then = lambda: world.see(8, POD.uid, "another")
    await world.take_back()
    assert world.versions == ["5", "8"]
    assert world.devices.reserved_for(KEY) == {"another"}


async def test_nothing_is_taken_back_of_a_claim_that_has_only_the_name() -> None:
    world = Claims()
    world.devices.delete_claim(KEY)
    await world.take_back()
    world.devices.set_claim(claim(9, POD.uid, uid="another"))
    await world.take_back()
    assert world.sent == []


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (claim(6, uid="another"), "does not exist any more"),
        (claim(6, deletionTimestamp="2026-01-01T00:00:00Z"), "is being deleted"),
        (claim(6, *(f"u{number}" for number in range(256))), "is reserved for 256 others"),
    ],
)
def test_a_claim_that_may_have_no_other_pod_is_not_written(shown: ResourceClaimInfo, reason: str) -> None:
    world = Claims()
    world.devices.set_claim(shown)
    lost = world.due()
    assert isinstance(lost, Lost) and lost.reason == f"resourceclaim default/c {reason}"


def test_a_claim_has_room_for_as_many_pods_as_the_api_server_takes() -> None:
    world = Claims()
    world.see(6, *(f"u{number}" for number in range(255)))
    assert isinstance(world.due(), Write)


async def test_a_claim_that_was_given_back_has_nothing_for_anybody_until_the_watch_shows_it() -> None:
    world = Claims(Patched("6"))
    devices = world.devices
    assert await world.deallocate() is None
    assert devices.allocation(KEY) is None
    lost = world.due()
    assert isinstance(lost, Lost) and lost.reason == "resourceclaim default/c was deallocated"
    told = demand([PodClaim("r", KEY)], devices, pod=POD).problem
    assert told == "resource claim default/c is in the process of being deallocated"
    assert not devices.assume(KEY, None, POD.uid)
    devices.set_claim(claim(6, allocated=False))
    assert demand([PodClaim("r", KEY)], devices, pod=POD).problem == ""
    assert world.is_settled


async def test_a_claim_is_deallocated_though_others_change_something_else_of_it_meanwhile() -> None:
    """What keeps its pod from nodes is as before, so no event would have the pod tried again."""
    world = Claims(CONFLICT, Patched("9"))
    world.then = lambda: world.see(8, POD.uid)
    assert await world.deallocate() is None
    assert world.versions == ["5", "8"]
    assert world.devices.allocation(KEY) is None


async def test_a_claim_that_is_another_by_now_is_left_alone() -> None:
    world = Claims(CONFLICT)
    world.then = lambda: world.devices.set_claim(claim(8, POD.uid, uid="another"))
    assert await world.deallocate() is None
    assert len(world.sent) == 1 and world.devices.allocation(KEY) is not None


async def test_a_claim_that_keeps_two_pods_from_nodes_is_deallocated_once() -> None:
    """The second has waited for the answer, which is there before the watch shows the claim."""
    world = Claims(Patched("7"))
    world.see(6)
    pods = (POD, PodRef("default", "q", "uid-q"))
    ended = await asyncio.gather(*(world.deallocate(pod) for pod in pods))
    assert ended == [None, None] and len(world.sent) == 1


async def test_a_claim_is_not_deallocated_for_a_pod_that_no_longer_asks_for_it() -> None:
    world = Claims(CONFLICT)
    failure = await world.deallocate(wanted=lambda: not world.sent)
    assert failure is not None and failure.kind is FailureClass.CONFLICT
    assert len(world.sent) == 1


async def test_a_write_that_waits_for_the_watch_ends_when_its_pod_goes() -> None:
    """What is waited for may never come: then nobody else would ever have the turn to write the claim."""
    world = await taken_back()
    assert world.due() is Due.WAIT
    waits = [True, False]
    writing = asyncio.create_task(world.writer.write(world.reservation, wanted=lambda: waits.pop(0)))
    await asyncio.sleep(0)
    assert waits == [False] and not writing.done()
    world.see(6, POD.uid, "another")
    assert await asyncio.wait_for(writing, 10) == "the pod no longer waits"
    assert len(world.sent) == 1
    # The turn is free.
    assert KEY not in world.writer._locks


def test_what_was_assumed_of_a_claim_and_is_over_is_told_though_the_watch_shows_nothing_new() -> None:
    world = Claims()
    world.see(5)
    world.assume(version="6")
    assert world.told == []
    world.change(claim(9))
    ((event, before, after),) = world.told
    assert event.resource is Resource.RESOURCE_CLAIM and event.action is ActionType.UPDATE
    assert before.reserved_for == (POD.uid,) and after.reserved_for == ()


def test_what_was_assumed_of_a_claim_that_goes_is_told_with_it() -> None:
    world = Claims()
    world.see(5)
    world.assume()
    world.delete(claim(6))
    assert (POD.uid,) in [before.reserved_for for _, before, after in world.told if after is None]


def test_a_reservation_that_the_watch_shows_as_it_was_assumed_is_told_once() -> None:
    world = Claims()
    world.see(5)
    world.assume(version="6")
    world.change(claim(6, POD.uid))
    assert len(world.told) == 1


# ---- one writer of a claim at a time, in the order of their coming, whoever gives up meanwhile


async def test_writers_hold_the_lock_in_the_order_of_their_coming() -> None:
    locks, order = KeyLocks(), []

    async def write(name: str) -> None:
        async with locks.of(KEY) as lock:
            order.append(f"{name} after {lock.version}")
            await asyncio.sleep(0)
            lock.version = name

    await asyncio.gather(*(write(name) for name in "abc"))
    assert order == ["a after ", "b after a", "c after b"]
    assert not locks and KEY not in locks


@pytest.mark.parametrize("seed", range(100))
async def test_whoever_gives_up_is_passed_over_and_nobody_waits_for_ever(seed: int) -> None:
    chance = random.Random(seed)
    locks, inside, done = KeyLocks(), 0, 0

    async def write() -> None:
        nonlocal inside, done
        async with locks.of(KEY):
            inside += 1
            try:
                assert inside == 1
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
                done += 1
            finally:
                inside -= 1

    tasks = []
    for _ in range(12):
        tasks.append(asyncio.create_task(write()))
        if chance.random() < 0.5:
            # It waits, the lock has just been handed to it, or it holds it.
            chance.choice(tasks).cancel()
        if chance.random() < 0.7:
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert done == sum(each is None for each in ended)
    assert all(each is None or isinstance(each, asyncio.CancelledError) for each in ended)
    assert not locks and KEY not in locks
