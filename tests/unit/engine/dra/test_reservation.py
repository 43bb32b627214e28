"""What is taken for a pod's claims at once, and which of them may be given back for it."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.dra.allocator import CannotAllocate
from agent_scheduler.engine.dra.demand import PodClaim, PodRef, demand
from agent_scheduler.engine.dra.reservation import Due, Lost, ReservedClaims, due, reserve, to_deallocate
from agent_scheduler.engine.state.batchinfo import GroupKey
from tests.support.devices import N0, allocated_to, books, claim_of, device, key, slice_of, wanted

POD = PodRef("default", "p", "uid-p")


def users(*uids: str) -> dict[str, Any]:
    return {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]}


@pytest.mark.promise("L10")
@pytest.mark.parametrize(
    ("reserved_for", "may"),
    [((), True), (("uid-p",), True), (("other",), False), (("uid-p", "other"), False)],
)
def test_no_claim_is_given_back_that_another_pod_uses(reserved_for: tuple[str, ...], may: bool) -> None:
    status = {**allocated_to("a"), **users(*reserved_for)}
    devices = books(slice_of("s", device("a")), claim_of("c", status=status))
    found = to_deallocate(wanted(devices, "c"), devices, POD)
    assert (found is not None and found.key == key("c")) is may


def test_where_one_claim_cannot_be_had_nothing_of_the_others_is_taken() -> None:
    devices = books(
        slice_of("s", device("a"), device("b")), claim_of("free"), claim_of("held", status=allocated_to("b"))
    )
    demand = wanted(devices, "free", "held")
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    devices.set_claim(claim_of("held", version=2, status=allocated_to("b"), metadata=gone))
    claims = [PodClaim(name, key(name)) for name in ("free", "held")]
    assert isinstance(reserve(claims, demand, devices, N0, POD), CannotAllocate)
    assert not devices.is_pending(key("free")) and len(devices.assumed) == 0
    assert devices.check() == []


GROUP = GroupKey("default", "g")
SHARED = [PodClaim("c", key("c"))]


def test_a_claim_that_is_about_to_be_allocated_counts_as_allocated_for_members_of_its_group_alone() -> None:
    devices = books(slice_of("s", device("a")), claim_of("c"))
    first = reserve(SHARED, wanted(devices, "c"), devices, N0, POD, group=GROUP)
    assert isinstance(first, ReservedClaims)
    others = [demand(SHARED, devices, group=group) for group in (None, GroupKey("default", "other"))]
    assert {each.problem for each in others} == {
        "resource claim default/c is in the process of being allocated"
    }
    (shared,) = demand(SHARED, devices, group=GROUP).allocated
    assert shared.key == key("c") and shared.reach is not None


def test_a_member_that_counts_on_the_allocation_for_another_waits_until_it_is_written_and_loses_it_with_it() -> (
    None
):
    devices = books(slice_of("s", device("a")), claim_of("c"))
    other = PodRef("default", "q", "uid-q")
    reserve(SHARED, wanted(devices, "c"), devices, N0, POD, group=GROUP)
    second = reserve(SHARED, demand(SHARED, devices, group=GROUP), devices, N0, other, group=GROUP)
    assert isinstance(second, ReservedClaims)
    assert due(second, second.claims[0], devices, "") is Due.WAIT
    devices.forget(POD.uid)
    assert isinstance(due(second, second.claims[0], devices, ""), Lost)
    devices.forget(other.uid)
    assert devices.check() == [] and len(devices.assumed) == 0
