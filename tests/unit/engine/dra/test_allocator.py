"""What the allocator gives, refuses and writes: the rules that small random clusters rarely meet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.dra.allocation import Allocation, Use, allocated_devices
from agent_scheduler.engine.dra.allocator import CANNOT_ALLOCATE, CannotAllocate, allocate, answer
from agent_scheduler.engine.dra.catalogue import Devices, SearchBudget
from agent_scheduler.engine.dra.devices import DeviceId
from agent_scheduler.objects import dra
from tests.support.devices import (
    DRIVER,
    N0,
    N1,
    allocated_to,
    attributes,
    books,
    claim_of,
    class_of,
    counter,
    device,
    draws,
    exactly,
    slice_of,
    wanted,
)
from tests.support.engine import node
from tests.support.terms import expression, term

#: The selector of what can be used on n0 alone.
HERE = {"nodeSelectorTerms": [{"matchFields": [expression("metadata.name", "n0")]}]}


def given(devices: Devices, *names: str, at: Any = N0) -> tuple[Allocation, ...]:
    found = allocate(wanted(devices, *names), devices, at)
    assert not isinstance(found, CannotAllocate), found
    return found


def refusal(devices: Devices, *names: str, at: Any = N0) -> str:
    found = allocate(wanted(devices, *names), devices, at)
    assert isinstance(found, CannotAllocate), found
    return found.reason


def names_of(allocation: Allocation) -> list[str]:
    return [each.id.device for each in allocation.results]


def first_names(devices: Devices, name: str, at: Any = N0) -> list[str]:
    """The devices that a claim gets."""
    return names_of(given(devices, name, at=at)[0])


def test_devices_are_taken_in_the_order_of_pool_slice_and_place() -> None:
    devices = books(
        slice_of("s2", device("z"), pool={"name": "b"}),
        slice_of("s1", device("y"), device("x"), pool={"name": "a"}),
        claim_of("c", exactly(count=2)),
    )
    assert first_names(devices, "c") == ["y", "x"]


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "t", "value": "v"}, True),
        ({"key": "t", "operator": "Equal", "value": "w"}, False),
        ({"key": "u", "operator": "Exists"}, False),
        ({"key": "t", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "t", "operator": "Near", "value": "v"}, False),
    ],
)
def test_a_taint_is_tolerated_by_key_value_and_effect(toleration: dict[str, str], tolerated: bool) -> None:
    tainted = device("a", taints=[{"key": "t", "value": "v", "effect": "NoSchedule"}])
    devices = books(slice_of("s", tainted), claim_of("c", exactly(tolerations=[toleration])))
    assert isinstance(allocate(wanted(devices, "c"), devices, N0), CannotAllocate) is not tolerated


def test_parts_of_one_device_are_had_as_far_as_its_counters_go() -> None:
    def part(name: str, size: int) -> dict[str, Any]:
        return device(name, **draws(size))

    whole = {"resourceSliceCount": 2}
    devices = books(
        slice_of("s0", pool=whole, **counter(3)),
        slice_of("s1", part("two", 2), part("deux", 2), part("one", 1), pool=whole),
        claim_of("pair", exactly(count=2)),
        claim_of("three", exactly(count=3)),
        claim_of("single"),
    )
    assert first_names(devices, "pair") == ["two", "one"]
    assert refusal(devices, "three") == CANNOT_ALLOCATE
    devices.set_claim(claim_of("other", status=allocated_to("deux")))
    assert first_names(devices, "single") == ["one"]
    assert refusal(devices, "pair") == CANNOT_ALLOCATE
    # What the binder takes is judged by the same sums, of all that it takes at once.
    two, one = (Use(DeviceId(DRIVER, "p", name), False) for name in ("two", "one"))
    assert devices.pools.are_free([one]) and not devices.pools.are_free([two])
    devices.delete_claim(("default", "other"))
    assert devices.pools.are_free([two, one])
    assert not devices.pools.are_free([two, Use(DeviceId(DRIVER, "p", "deux"), False)])
    devices.pools.set_slice(slice_of("s1", part("odd", 2), pool={**whole, "name": "q"}))
    assert refusal(devices, "single") == CANNOT_ALLOCATE, "neither pool is whole now"


def test_what_devices_in_use_take_of_a_counter_adds_up() -> None:
    devices = books(
        slice_of("s", *(device(name, **draws(1)) for name in "abcd"), **counter(3)),
        *(claim_of(f"has-{name}", status=allocated_to(name)) for name in "abc"),
        claim_of("fourth"),
    )
    assert refusal(devices, "fourth") == CANNOT_ALLOCATE
    devices.delete_claim(("default", "has-b"))
    assert first_names(devices, "fourth") == ["b"]


def test_a_number_and_a_text_that_look_alike_do_not_match() -> None:
    devices = books(
        slice_of("s", device("a", attributes=attributes(x=1)), device("b", attributes=attributes(x="1"))),
        claim_of("c", exactly(count=2), constraints=[{"matchAttribute": f"{DRIVER}/x"}]),
    )
    assert refusal(devices, "c") == CANNOT_ALLOCATE


def test_of_alternatives_the_first_that_can_be_had_is_taken_and_ranks_the_node() -> None:
    options = [{"name": "two", "deviceClassName": "any", "count": 2}, {"name": "one", "deviceClassName": "any"}]
    devices = books(
        slice_of("s", device("a"), device("b")),
        slice_of("t", device("c"), pool={"name": "q"}, nodeName="n1"),
        claim_of("c", {"name": "r", "firstAvailable": options}),
    )
    (first,), (second,) = given(devices, "c"), given(devices, "c", at=N1)
    assert [each.request for each in first.results] == ["r/two", "r/two"]
    assert [each.request for each in second.results] == ["r/one"]
    assert (first.preference, second.preference) == (8, 7)


def test_a_pool_is_had_only_in_its_newest_generation_and_only_whole() -> None:
    old = slice_of("old", device("a"))
    devices = books(old, claim_of("c"))
    assert first_names(devices, "c") == ["a"]
    devices.pools.set_slice(slice_of("new-1", device("b"), pool={"generation": 2, "resourceSliceCount": 2}))
    assert refusal(devices, "c") == CANNOT_ALLOCATE
    devices.pools.set_slice(slice_of("new-2", device("c"), pool={"generation": 2, "resourceSliceCount": 2}))
    assert first_names(devices, "c") == ["b"]
    devices.pools.delete_slice("new-1")
    devices.pools.delete_slice("new-2")
    assert first_names(devices, "c") == ["a"]


def test_a_pool_that_names_a_device_twice_is_invalid() -> None:
    devices = books(
        slice_of("s", device("a"), device("a")), claim_of("c"), claim_of("all", exactly(allocationMode="All"))
    )
    assert refusal(devices, "c") == "invalid resource pools were encountered"
    assert refusal(devices, "all") == (
        f"claim all, request r: asks for all devices, but resource pool {DRIVER}/p is currently invalid"
    )


def test_what_of_a_slice_cannot_be_read_is_named_to_whom_it_keeps_from_devices() -> None:
    odd = slice_of("s", device("a", capacity={"m": {"value": "much"}}))
    devices = books(odd, claim_of("c"))
    assert refusal(devices, "c").startswith(
        "invalid resource pools were encountered: resource slice s: spec.devices[0]: invalid quantity 'much'"
    )
    assert refusal(books(slice_of("s", device(3), nodeName="n0"), claim_of("c")), "c").startswith(  # type: ignore[arg-type]
        "invalid resource pools were encountered: resource slice s: Expected `str`, got `int`"
    )


def test_a_claim_or_class_that_cannot_be_read_or_is_missing_refuses_every_node_with_the_place() -> None:
    devices = books(
        claim_of("unknown", {"name": "r"}),
        claim_of("mode", exactly(allocationMode="Some")),
        claim_of("shape", exactly(count="two")),
        claim_of("long", exactly(selectors=[{"cel": {"expression": f"'{'x' * 6_000}' != ''"}}] * 2)),
        claim_of("missing", exactly(class_name="none")),
        claim_of("odd", exactly(class_name="odd")),
        class_of("odd", selectors=[{}]),
    )
    unknown, mode, shape, long = (wanted(devices, name).problem for name in ("unknown", "mode", "shape", "long"))
    assert unknown == "resource claim default/unknown, request r: unknown request type"
    assert mode.endswith("request r: unsupported count mode Some")
    assert long.endswith("request r: 12016 characters of CEL expressions; allowed: 10240 in all selectors")
    assert "spec: Expected `int | null`, got `str` - at `$.devices.requests[0].exactly.count`" in shape
    assert refusal(devices, "missing") == "request r: device class none does not exist"
    assert refusal(devices, "odd").startswith("device class odd: spec.selectors[0]: ")


def test_no_claim_gets_more_devices_than_its_status_can_hold() -> None:
    many = [device(f"d{index:02}") for index in range(40)]
    devices = books(slice_of("s", *many), *(claim_of(str(each), exactly("a", count=each)) for each in (32, 33)))
    assert len(given(devices, "32")[0].results) == 32
    assert refusal(devices, "33") == "claim 33: number of requested devices 33 exceeds the claim limit of 32"


def test_equal_devices_do_not_make_a_search_long() -> None:
    """Thirty that are alike and match no constraint with the others: each place tries one of them."""
    alike = [device(f"d{index:02}", attributes=attributes(x=0)) for index in range(30)]
    other = [device("z0", attributes=attributes(x=1)), device("z1", attributes=attributes(x=1))]
    devices = books(
        slice_of("s", *alike, *other),
        claim_of(
            "c",
            exactly("r0", count=8),
            exactly("r1", count=8),
            exactly("r2", selectors=[{"cel": {"expression": f"device.attributes['{DRIVER}'].x == 1"}}]),
            constraints=[{"matchAttribute": f"{DRIVER}/x"}],
        ),
    )
    budget = SearchBudget()
    assert allocate(wanted(devices, "c"), devices, N0, budget) == CannotAllocate(CANNOT_ALLOCATE)
    assert budget.left > 9_000


def test_requests_that_cannot_all_be_met_are_refused_and_not_searched_for() -> None:
    """More alternatives than anybody could try, for fewer devices than requests; and one that no device matches."""
    apart = [device(f"d{index:02}", attributes=attributes(a=index)) for index in range(11)]
    options = [{"name": f"o{each}", "deviceClassName": "any", "count": 8 - each} for each in range(8)]
    many = [{"name": f"r{index}", "firstAvailable": options} for index in range(12)]
    nowhere = exactly("last", selectors=[{"cel": {"expression": "device.driver == ''"}}])
    devices = books(slice_of("s", *apart), claim_of("many", *many), claim_of("none", *many[:6], nowhere))
    assert refusal(devices, "many") == CANNOT_ALLOCATE
    assert refusal(devices, "none") == CANNOT_ALLOCATE


def test_a_pod_may_have_more_devices_than_python_has_frames() -> None:
    many = [device(f"d{index:04}") for index in range(32 * 40)]
    names = [f"c{index}" for index in range(40)]
    devices = books(slice_of("s", *many), *(claim_of(name, exactly(count=32)) for name in names))
    assert sum(len(each.results) for each in given(devices, *names)) == 32 * 40


def test_binding_conditions_of_a_device_are_written_into_its_result() -> None:
    conditions = {"bindingConditions": ["attached", "powered"], "bindingFailureConditions": ["broken"]}
    devices = books(slice_of("s", device("a", **conditions), device("b")), claim_of("c", exactly(count=2)))
    (found,) = given(devices, "c")
    status = found.status("uid", "2026-01-01T00:00:00Z")
    first, second = status["devices"]["results"]
    assert {name: first[name] for name in conditions} == conditions
    assert not conditions.keys() & second.keys()
    assert status["allocationTimestamp"] == "2026-01-01T00:00:00Z"
    assert found.drivers_to_wait_for == {DRIVER}


def test_devices_without_binding_conditions_come_first() -> None:
    """Of pools, and of the slices of a pool; whatever their names are."""
    late = {"bindingConditions": ["attached"]}
    devices = books(
        slice_of("a", device("a0"), device("a1", **late), pool={"name": "a"}),
        slice_of("b0", device("b0", **late), pool={"name": "b", "resourceSliceCount": 2}),
        slice_of("b1", device("b1"), pool={"name": "b", "resourceSliceCount": 2}),
        slice_of("c", device("c0"), pool={"name": "c"}),
        claim_of("c", exactly(count=5)),
    )
    assert first_names(devices, "c") == ["c0", "a0", "a1", "b1", "b0"]


def test_a_device_that_binds_to_its_node_makes_its_claim_one_for_this_node() -> None:
    devices = books(slice_of("s", device("a", bindsToNode=True), allNodes=True), claim_of("c"))
    (found,) = given(devices, "c")
    assert found.status("uid")["nodeSelector"] == HERE


@pytest.mark.parametrize(
    ("in_use", "given_to_admin"),
    [("", ["a"]), ("b", ["b"]), ("a", [])],
    ids=["of what is free", "of what a device that is had needs no more", "of none"],
)
def test_counters_that_are_used_up_keep_admin_access_from_a_device_too(in_use: str, given_to_admin: list[str]) -> None:
    devices = books(
        slice_of("s", device("a", **draws(2)), device("b", **draws(1)), **counter(2)),
        claim_of("c", exactly(adminAccess=True)),
        claim_of("both", exactly("r0"), exactly("r1", adminAccess=True)),
    )
    # So do those that another request of the same claim uses up.
    assert refusal(devices, "both") == CANNOT_ALLOCATE
    if in_use:
        devices.set_claim(claim_of("other", status=allocated_to(in_use)))
    found = allocate(wanted(devices, "c"), devices, N0)
    assert ([] if isinstance(found, CannotAllocate) else names_of(found[0])) == given_to_admin


def test_a_claim_that_is_allocated_can_be_used_where_its_devices_can() -> None:
    devices = books(slice_of("s", device("a")), claim_of("c", status=allocated_to("a")))
    assert given(devices, "c") == ()
    assert refusal(devices, "c", at=N1) == "resourceclaim not available on the node"


def test_the_status_names_devices_configuration_and_nodes_as_the_api_has_them() -> None:
    opaque = {"driver": DRIVER, "parameters": {"kind": "P"}}
    devices = books(
        slice_of("s", device("a"), device("b")),
        class_of("any", config=[{"opaque": opaque}]),
        claim_of(
            "c",
            exactly("r0", tolerations=[{"operator": "Exists", "key": "t"}]),
            exactly("r1", adminAccess=True),
            config=[{"requests": ["r1"], "opaque": opaque}, {"requests": ["r9"], "opaque": opaque}],
        ),
    )
    (found,) = given(devices, "c")
    one, other = ({"driver": DRIVER, "pool": "p", "device": name} for name in "ab")
    assert found.status("uid") == {
        "devices": {
            "results": [
                {"request": "r0", **one, "tolerations": [{"key": "t", "operator": "Exists"}]},
                {"request": "r1", **other, "adminAccess": True},
            ],
            "config": [
                {"source": "FromClass", "opaque": opaque},
                {"source": "FromClaim", "requests": ["r1"], "opaque": opaque},
            ],
        },
        "nodeSelector": HERE,
    }


@pytest.mark.parametrize(
    ("place", "selector"),
    [({"allNodes": True}, None), ({"nodeSelector": {"nodeSelectorTerms": [term("zone", "a")]}}, term("zone", "a"))],
)
def test_a_claim_with_devices_for_many_nodes_can_be_used_on_all_of_them(place: dict[str, Any], selector: Any) -> None:
    devices = books(slice_of("s", device("a"), **place), claim_of("c"))
    (found,) = given(devices, "c", at=node("n0", labels={"zone": "a"}))
    status = found.status("uid")
    assert status.get("nodeSelector") == (None if selector is None else {"nodeSelectorTerms": [selector]})


def test_a_shared_device_is_used_by_many_up_to_its_capacity_each_use_with_a_name_of_its_own() -> None:
    shared = device("a", capacity={"m": {"value": "10Gi"}}, allowMultipleAllocations=True)
    asks: dict[str, Any] = {"capacity": {"requests": {"m": "4Gi"}}}
    devices = books(slice_of("s", shared), *(claim_of(f"c{index}", exactly(**asks)) for index in range(3)))
    ids = set()
    for index in range(2):
        (found,) = given(devices, f"c{index}")
        (result,) = found.status(f"uid-c{index}")["devices"]["results"]
        assert result["consumedCapacity"] == {"m": "4Gi"}
        ids.add(result["shareID"])
        assert devices.assume(("default", f"c{index}"), found, f"pod{index}")
        assert devices.check() == []
    assert len(ids) == 2
    assert refusal(devices, "c2") == CANNOT_ALLOCATE


def test_what_is_written_is_read_back_as_what_was_assumed() -> None:
    shared = device("a", capacity={"m": {"value": "3"}, "k": {"value": "1k"}}, allowMultipleAllocations=True)
    devices = books(slice_of("s", shared, device("b")), claim_of("c", exactly(count=2)))
    (found,) = given(devices, "c")
    written = msgspec.json.encode(found.status("uid-c"))
    assert allocated_devices(msgspec.json.decode(written, type=dra.AllocationResult)) == found.allocated


def test_a_device_that_others_take_changes_nothing_for_those_who_would_get_another() -> None:
    devices = books(
        slice_of("s", device("a"), device("b"), device("c"), allNodes=True),
        claim_of("c"),
        claim_of("d", status=allocated_to("b")),
        claim_of("two", exactly(count=2)),
        claim_of("three", exactly(count=3)),
    )
    one, two, three = (wanted(devices, name) for name in ("c", "two", "three"))
    first, second, third = (answer(each, devices, N0) for each in (one, two, three))
    devices.set_claim(claim_of("d", version=2, status=allocated_to("c")))
    assert answer(one, devices, N0) == first, "a device was given back"
    first, second = answer(one, devices, N0), answer(two, devices, N0)
    devices.set_claim(claim_of("e", status=allocated_to("b")))
    assert answer(one, devices, N0) is first
    assert not isinstance(second, CannotAllocate) and answer(two, devices, N0) == CannotAllocate(CANNOT_ALLOCATE)
    assert third == answer(three, devices, N0) == CannotAllocate(CANNOT_ALLOCATE)


def test_nodes_that_see_the_same_pools_share_an_answer_and_one_with_a_pool_of_its_own_does_not() -> None:
    devices = books(slice_of("s", device("a"), allNodes=True), claim_of("c"))
    demand = wanted(devices, "c")
    assert answer(demand, devices, N0) is answer(demand, devices, N1)
    devices.pools.set_slice(slice_of("t", device("b"), pool={"name": "a-pool"}, nodeName="n1"))
    first, second = answer(demand, devices, N0), answer(demand, devices, N1)
    assert not isinstance(first, CannotAllocate) and not isinstance(second, CannotAllocate)
    assert (names_of(first[0]), first[0].selector) == (["a"], None)
    assert names_of(second[0]) == ["b"]
    bound = books(slice_of("s", device("a", bindsToNode=True), allNodes=True), claim_of("c"))
    places = [given(bound, "c", at=each)[0].allocated.reach for each in (N0, N1)]
    assert places[0] != places[1]
    assert [answer(wanted(bound, "c"), bound, each) for each in (N0, N1)] == [
        given(bound, "c", at=each) for each in (N0, N1)
    ]


def test_an_answer_is_kept_until_devices_labels_or_classes_change() -> None:
    devices = books(slice_of("s", device("a")), claim_of("c"), claim_of("d"))
    demand = wanted(devices, "c")
    first = answer(demand, devices, N0)
    assert answer(demand, devices, N0) is first
    assert answer(demand, devices, N1) == CannotAllocate(CANNOT_ALLOCATE)
    assert not isinstance(first, CannotAllocate)
    assert devices.assume(("default", "d"), first[0], "pod")
    assert answer(demand, devices, N0) == CannotAllocate(CANNOT_ALLOCATE)
    devices.forget("pod")
    assert answer(demand, devices, N0) == first
    devices.set_class(class_of("any", "false"))
    assert answer(demand, devices, N0) == CannotAllocate(CANNOT_ALLOCATE)
