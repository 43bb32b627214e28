"""What is taken for a pod's claims at once, and which of them may be given back for it."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.dra.allocator import CannotAllocate
from agent_scheduler.engine.dra.demand import PodClaim, PodRef
from agent_scheduler.engine.dra.reservation import reserve, to_deallocate

from .objects import N0, allocated_to, books, claim_of, device, key, slice_of, wanted

POD = PodRef("default", "p", "uid-p")


def users(*uids: str) -> dict[str, Any]:
    return {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]}


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
