"""The allocator against a search that tries everything, and what a budget of steps makes of searches that are long."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_scheduler.engine.dra import search
from agent_scheduler.engine.dra.allocator import CANNOT_ALLOCATE, TIMED_OUT, CannotAllocate, Undecided, allocate, answer
from agent_scheduler.engine.dra.catalogue import PORTION, Devices, SearchBudget
from agent_scheduler.engine.dra.demand import demand
from agent_scheduler.engine.state.podclaims import ClaimDemand, PodClaim
from tests.decisions.devices.engine import NAMESPACE, DeviceEngine
from tests.decisions.devices.validity import Obj, problems
from tests.support.devices import (
    DRIVER,
    N0,
    allocated_to,
    attributes,
    books,
    claim_of,
    device,
    divided,
    exactly,
    part_of,
    read,
    slice_of,
    wanted,
)
from tests.support.engine import node
from tests.support.examples import examples
from tests.unit.engine.dra.clusters import Drawn, clusters, everything, is_small


def demand_of(engine: DeviceEngine, claims: tuple[Obj, ...]) -> ClaimDemand:
    names = [claim["metadata"]["name"] for claim in claims]
    return demand([PodClaim(name, (NAMESPACE, name)) for name in names], engine.devices)


@pytest.mark.promise("S17")
@examples(150)
@given(clusters(), st.booleans())
def test_an_allocation_is_found_exactly_where_there_is_one(drawn: Drawn, long: bool) -> None:
    """Also as a search goes on that has taken long."""
    assume(is_small(drawn))
    with mock.patch.object(search, "_SHORT", -1 if long else search._SHORT):
        _judge(drawn)


def _judge(drawn: Drawn) -> None:
    engine = DeviceEngine(drawn.cluster, drawn.claims)
    assert engine.devices.check() == []
    wanted = demand_of(engine, drawn.claims)
    for there in engine.ledger.columns.nodes[:2]:
        assert there is not None
        found = allocate(wanted, engine.devices, there)
        possible = next(everything(drawn.cluster, there.name, drawn.claims), None)
        if isinstance(found, CannotAllocate):
            # As kube-scheduler: an alternative that asks for all is not passed over while a pool is being updated.
            waits = "asks for all devices, but resource pool" in found.reason
            assert waits or possible is None, (there.name, found, possible)
            continue
        given = [each.status(claim["metadata"]["name"]) for each, claim in zip(found, drawn.claims, strict=True)]
        assert problems(drawn.cluster, there.name, drawn.claims, given) == [], (there.name, given)
        assert possible is not None


#: Profiles of a GPU that is divided: the memory that they take of 40, and how many devices there are of each.
PROFILES = {"1g": (5, 12), "2g": (10, 3), "3g": (20, 2), "4g": (20, 1), "7g": (40, 1)}


OPTIONS = [{"name": profile, **part_of(profile, count=number)} for profile, number in (("7g", 2), ("4g", 2), ("1g", 3))]
FULL = [node(f"full-{index:03}") for index in range(480)]
FREE = [node(f"zfree-{index}") for index in range(20)]


@pytest.fixture(scope="module")
def crowded() -> Devices:
    """480 full nodes of eight divided GPUs, each of which is somebody's as a whole, before twenty free ones."""
    whole = [f"{gpu}-7g-0" for gpu in range(8)]
    used = (allocated_to(*whole, pool=each.name, node_name=each.name) for each in FULL)
    return books(
        *(each for place in (*FULL, *FREE) for each in read(*divided(place.name, 8, PROFILES, 40))),
        *(claim_of(f"used-{index}", status=status) for index, status in enumerate(used)),
    )


@pytest.mark.wide
@pytest.mark.parametrize(
    ("requests", "number"),
    [
        ([{"name": "r", "exactly": part_of("7g")}], 1),
        ([{"name": "r0", "exactly": part_of("3g", count=2)}, {"name": "r1", "exactly": part_of("1g", count=4)}], 6),
        ([{"name": "r", "firstAvailable": OPTIONS}], 2),
    ],
    ids=["one", "several", "alternatives"],
)
def test_free_nodes_are_found_behind_many_that_are_full(requests: Any, number: int, crowded: Devices) -> None:
    crowded.set_claim(claim_of("c", *requests, metadata={"uid": f"uid-{number}"}))
    asked, left, found = wanted(crowded, "c"), [*FULL, *FREE], dict[str, Any]()
    for _ in range(12):
        budget = SearchBudget(PORTION)
        found |= {each.name: answer(asked, crowded, each, budget) for each in left}
        assert budget.left > -PORTION
        left = [each for each in left if isinstance(found[each.name], Undecided)]
    assert not left, "undecided after so many portions"
    assert {name for name, said in found.items() if not isinstance(said, CannotAllocate)} == {
        each.name for each in FREE
    }
    assert len(found[FREE[0].name][0].results) == number


def test_devices_that_do_not_match_cost_what_it_takes_to_ask_about_them_once() -> None:
    """Eleven thousand in a pool before the one that does; each is of its own kind."""
    many = [device(f"d{index:05}", attributes=attributes(index=index)) for index in range(11_000)]
    last = f"device.attributes['{DRIVER}'].index == 10999"
    claim = claim_of("c", exactly(selectors=[{"cel": {"expression": last}}]))
    devices = books(slice_of("s", *many), claim)
    portions = 1
    while isinstance(found := answer(wanted(devices, "c"), devices, N0, SearchBudget(PORTION)), Undecided):
        portions += 1
    assert not isinstance(found, CannotAllocate) and found[0].results[0].id.device == "d10999"
    assert 1 < portions < 20
    # Known by now, of whichever claim that asks the same.
    budget = SearchBudget(PORTION)
    assert not isinstance(allocate(wanted(devices, "c"), devices, N0, budget), CannotAllocate)
    assert budget.left > PORTION - 1_000


def unlike(number: int, kinds: int, name: str, *requests: Any) -> Any:
    """So many devices of so many kinds, and a claim all of whose devices are to be of different ones."""
    made = [device(f"d{index:02}", attributes=attributes(a=index, b=index % kinds)) for index in range(number)]
    apart = [{"distinctAttribute": f"{DRIVER}/b"}]
    return books(slice_of("s", *made), claim_of(name, *requests, constraints=apart))


def hard() -> Any:
    """Six times four devices that are all of them apart by an attribute with seven values."""
    return unlike(40, 7, "hard", *(exactly(f"r{index}", count=4) for index in range(6)))


def test_a_search_that_was_cut_short_is_gone_on_with_and_not_begun_anew() -> None:
    devices = unlike(12, 5, "c", *(exactly(f"r{index}", count=2) for index in range(3)))
    demand = wanted(devices, "c")
    whole = SearchBudget(10_000_000)
    assert allocate(demand, devices, N0, whole) == CannotAllocate(CANNOT_ALLOCATE)
    needed = 10_000_000 - whole.left
    assert needed > 2_000
    portions, spent = 0, 0
    found: Any = Undecided(TIMED_OUT)
    while isinstance(found, Undecided):
        budget = SearchBudget(500)
        found = answer(demand, devices, N0, budget)
        spent += 500 - budget.left
        portions += 1
    assert found == CannotAllocate(CANNOT_ALLOCATE)
    assert portions >= needed // 500
    # A visit is paid for each time.
    assert needed <= spent <= needed + 20 * portions


def test_what_was_cut_short_is_kept_by_nobody() -> None:
    devices = hard()
    demand = wanted(devices, "hard")
    budget = SearchBudget(5_000)
    found = allocate(demand, devices, N0, budget)
    assert isinstance(found, Undecided) and found.reason == TIMED_OUT and -100 < budget.left <= 0
    first = answer(demand, devices, N0, SearchBudget(200))
    assert isinstance(first, Undecided) and first.search is not None
    taken = first.search.steps
    # Without steps nothing is done, and nothing is said that was not known.
    again = answer(demand, devices, N0, SearchBudget(0))
    assert isinstance(again, Undecided) and first.search.steps == taken
    second = answer(demand, devices, N0, SearchBudget(200))
    assert isinstance(second, Undecided) and second.search is first.search and second.search.steps > taken
    # What has changed since makes it a search for something else.
    devices.set_claim(claim_of("other", status=allocated_to("d00")))
    third = answer(demand, devices, N0, SearchBudget(200))
    assert isinstance(third, Undecided) and third.search is not first.search
