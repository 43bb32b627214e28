"""The books of devices: what is seen and what is assumed, in any order, and whom a change is told."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import pytest

from agent_scheduler.engine.dra.allocator import CannotAllocate, allocate, answer
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.demand import demand, missing
from agent_scheduler.engine.dra.hints import frees
from agent_scheduler.engine.state.podclaims import PodClaim, PodRef
from tests.support.devices import (
    DRIVER,
    N0,
    N1,
    allocated_to,
    books,
    claim_of,
    class_of,
    counter,
    device,
    draws,
    exactly,
    key,
    slice_of,
    wanted,
)
from tests.support.terms import term


def take(devices: Devices, name: str, pod: str) -> bool:
    found = allocate(wanted(devices, name), devices, N0)
    assert not isinstance(found, CannotAllocate), found
    return devices.assume(key(name), found[0], pod)


def is_free(devices: Devices, name: str = "probe") -> bool:
    """Whether the one device can be had."""
    return not isinstance(allocate(wanted(devices, name), devices, N0), CannotAllocate)


def users(*uids: str) -> dict[str, Any]:
    return {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]}


#: What the status of a claim says that has the device and is reserved for `pod`.
BOTH = {**allocated_to("a"), **users("pod")}


def one_device() -> Devices:
    return books(slice_of("s", device("a")), claim_of("c"), claim_of("probe"))


def taken() -> Devices:
    """The one device is assumed for c, and that for `pod`."""
    devices = one_device()
    assert take(devices, "c", "pod")
    return devices


# ---- what is assumed


@pytest.mark.promise("S17")
def test_a_device_that_is_assumed_for_one_claim_is_not_assumed_for_another() -> None:
    devices = one_device()
    found = allocate(wanted(devices, "probe"), devices, N0)
    assert not isinstance(found, CannotAllocate)
    assert take(devices, "c", "pod")
    assert not devices.assume(key("probe"), found[0], "other")
    assert devices.is_pending(key("c")) and devices.allocation(key("c")) is None
    assert demand([PodClaim("c", key("c"))], devices).problem == (
        "resource claim default/c is in the process of being allocated"
    )
    assert devices.check() == []


def test_the_finalizer_that_comes_first_takes_nothing_back() -> None:
    devices = taken()
    devices.set_claim(claim_of("c", version=2, metadata={"finalizers": ["f"]}))
    assert devices.is_pending(key("c")) and not is_free(devices)


def test_a_pod_whose_claim_was_reserved_for_it_before_gives_back_the_devices_alone() -> None:
    devices = one_device()
    devices.set_claim(claim_of("c", version=2, status=users("pod")))
    assert take(devices, "c", "pod")
    ((before, after),) = devices.forget("pod")
    assert frees(before, after) and before.reserved_for == after.reserved_for == ("pod",)


def test_a_pod_that_was_taken_out_of_a_claim_is_out_of_it_before_the_watch_shows_that() -> None:
    devices = one_device()
    devices.set_claim(claim_of("c", version=2, status=BOTH))
    devices.unreserved(key("c"), "pod", "7")
    assert devices.is_unreserved(key("c"), "pod") and devices.reserved_for(key("c")) == set()
    devices.set_claim(claim_of("c", version=7, status=allocated_to("a")))
    assert not devices.is_unreserved(key("c"), "pod") and devices.check() == []


def test_what_was_written_is_a_fact_before_the_watch_shows_it_and_after() -> None:
    devices = taken()
    devices.written(key("c"), "pod", "7")
    assert devices.allocation(key("c")) is not None
    assert devices.forget("pod") == []
    devices.set_claim(claim_of("c", version=5))
    assert devices.allocation(key("c")) is not None and not is_free(devices)
    devices.set_claim(claim_of("c", version=7, status=BOTH))
    assert len(devices.assumed) == 0
    assert devices.reserved_for(key("c")) == {"pod"} and not is_free(devices)
    assert devices.check() == []


def test_a_watch_that_was_faster_than_the_answer_to_the_write_leaves_nothing_assumed() -> None:
    devices = taken()
    devices.set_claim(claim_of("c", version=7, status=BOTH))
    devices.written(key("c"), "pod", "7")
    assert len(devices.assumed) == 0
    assert devices.check() == []


def test_a_deallocation_that_came_after_our_write_frees_the_device() -> None:
    devices = taken()
    devices.written(key("c"), "pod", "7")
    devices.set_claim(claim_of("c", version=9))
    assert devices.allocation(key("c")) is None and is_free(devices)


def test_forgetting_frees_the_device_and_tells_it_as_a_deallocation() -> None:
    devices = taken()
    ((before, after),) = devices.forget("pod")
    assert frees(before, after) and before.reserved_for == ("pod",) and after.reserved_for == ()
    assert is_free(devices) and len(devices.assumed) == 0


def test_a_claim_that_is_deleted_or_made_anew_takes_what_is_assumed_of_it_along() -> None:
    devices = taken()
    devices.delete_claim(key("c"))
    assert is_free(devices) and devices.forget("pod") == []
    devices.set_claim(claim_of("c"))
    assert take(devices, "c", "pod")
    devices.set_claim(claim_of("c", version=9, metadata={"uid": "another"}))
    assert is_free(devices) and len(devices.assumed) == 0
    assert devices.check() == []


def test_what_somebody_else_allocated_meanwhile_stands_and_ours_does_not() -> None:
    devices = books(slice_of("s", device("a"), device("b")), claim_of("c"), claim_of("probe"))
    assert take(devices, "c", "pod")
    devices.set_claim(claim_of("c", version=4, status=allocated_to("b")))
    found = allocate(wanted(devices, "probe"), devices, N0)
    assert not isinstance(found, CannotAllocate) and [each.id.device for each in found[0].results] == ["a"]
    assert devices.check() == []


def test_what_was_given_back_is_nobodys_until_the_watch_shows_that_and_not_something_older() -> None:
    devices = books(slice_of("s", device("a")), claim_of("c", version=3, status=allocated_to("a")), claim_of("probe"))
    devices.deallocated(key("c"), "6")
    devices.set_claim(claim_of("c", version=5, status=allocated_to("a")))
    assert devices.is_deallocated(key("c")) and not is_free(devices)
    devices.set_claim(claim_of("c", version=6))
    assert not devices.is_deallocated(key("c")) and is_free(devices)
    assert devices.check() == []


def test_a_reservation_counts_as_the_api_servers_once_it_is_written() -> None:
    devices = taken()
    assert "pod" in devices.reserved_for(key("c")) and not devices.has_reserved(key("c"), "pod")
    devices.written(key("c"), "pod", "7")
    assert devices.has_reserved(key("c"), "pod") and not devices.has_reserved(key("c"), "other")


def test_an_older_version_of_a_claim_is_no_news() -> None:
    devices = books(slice_of("s", device("a")), claim_of("c", version=5, status=allocated_to("a")))
    assert not devices.set_claim(claim_of("c", version=4))
    assert devices.allocation(key("c")) is not None


def test_a_claim_is_reserved_for_256_pods_and_no_more_whether_seen_or_assumed() -> None:
    seen = [f"u{index}" for index in range(254)]
    devices = books(slice_of("s", device("a")), claim_of("c", status={**allocated_to("a"), **users(*seen)}))

    def problem(uid: str) -> str:
        return demand([PodClaim("c", key("c"))], devices, pod=PodRef("default", "p", uid)).problem

    assert devices.assume(key("c"), None, "one") and devices.assume(key("c"), None, "two")
    assert devices.assume(key("c"), None, "u3"), "it is reserved for that one"
    assert not devices.assume(key("c"), None, "three")
    assert (problem("three"), problem("two")) == ("resourceclaim in use", "")
    devices.forget("two")
    assert devices.assume(key("c"), None, "three")
    assert devices.check() == []
    full = {**allocated_to("a"), **users(*seen, "one", "two")}
    devices = books(slice_of("s", device("a")), claim_of("c", status=full))
    assert problem("three") == "resourceclaim in use"


@pytest.mark.parametrize("gone", ["missing", "deleting", "unallocated"])
def test_no_reservation_is_made_of_a_claim_that_cannot_have_one(gone: str) -> None:
    metadata = DELETED if gone == "deleting" else {}
    status = {} if gone == "unallocated" else allocated_to("a")
    devices = books(slice_of("s", device("a")))
    if gone != "missing":
        devices.set_claim(claim_of("c", metadata=metadata, status=status))
    assert not devices.assume(key("c"), None, "pod")
    assert len(devices.assumed) == 0


def test_overcommitment_by_others_is_found() -> None:
    devices = books(
        slice_of("s", device("a")), claim_of("c", status=allocated_to("a")), claim_of("d", status=allocated_to("a"))
    )
    assert devices.check() == [f"{DRIVER}/p/a is had 2 times"]


# ---- pods and their claims


def test_pods_of_one_template_have_the_same_demand_and_others_have_another() -> None:
    devices = books(claim_of("c0"), claim_of("c1"), claim_of("two", exactly(count=2)))
    assert wanted(devices, "c0") is wanted(devices, "c0")
    first, second = (demand([PodClaim("mine", key(name))], devices) for name in ("c0", "c1"))
    assert first is second
    assert demand([PodClaim("mine", key("two"))], devices) is not first


def test_a_claim_that_a_pod_names_twice_is_allocated_once() -> None:
    devices = books(slice_of("s", device("a")), claim_of("c"))
    both = demand([PodClaim("one", key("c")), PodClaim("other", key("c"))], devices)
    assert [each.name for each in both.to_allocate] == ["one"]


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OF_ANOTHER = {"ownerReferences": [{"kind": "Pod", "name": "q", "uid": "uid-q", "controller": True}]}
NOT_ITS_OWN = "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)"


@pytest.mark.parametrize(
    ("claim", "metadata", "said"),
    [
        (PodClaim("x", None), {}, 'pod "default/p": ResourceClaim not created yet'),
        (PodClaim("x", key("none")), {}, 'resourceclaim.resource.k8s.io "none" not found'),
        (PodClaim("x", key("c")), DELETED, 'resourceclaim "c" is being deleted'),
        (PodClaim("x", key("c"), "uid-p"), OF_ANOTHER, NOT_ITS_OWN),
    ],
)
def test_a_claim_that_cannot_be_used_is_told_in_known_words(
    claim: PodClaim, metadata: dict[str, Any], said: str
) -> None:
    devices = books(claim_of("c", metadata=metadata))
    pod = PodRef("default", "p", "uid-p")
    assert missing([claim], devices, pod) == said
    assert demand([claim], devices, pod=pod).problem == said


# ---- whom a change is told


def telling() -> tuple[Devices, list[Collection[str] | None]]:
    """Devices, and the nodes that they name to those who have to ask again."""
    told: list[Collection[str] | None] = []
    devices = Devices(told.append)
    devices.set_class(class_of())
    return devices, told


def random_slice(chance: random.Random, name: str) -> Any:
    place: dict[str, Any] = chance.choice(
        (
            {"nodeName": "n0"},
            {"nodeName": "n1"},
            {"allNodes": True},
            {"nodeSelector": {"nodeSelectorTerms": [term("kubernetes.io/hostname", "n1")]}},
            {"perDeviceNodeSelection": True},
        )
    )
    made = []
    for index in range(chance.randrange(3)):
        own: dict[str, Any] = {"nodeName": chance.choice(("n0", "n1"))} if "perDeviceNodeSelection" in place else {}
        if chance.random() < 0.3:
            own |= draws(1)
        if chance.random() < 0.3:
            own.update(allowMultipleAllocations=True, capacity={"m": {"value": "2"}})
        made.append(device(f"{name}-{index}", **own))
    counters = counter(chance.randrange(3)) if chance.random() < 0.5 else {}
    pool = {
        "name": chance.choice("pq"),
        "generation": chance.randrange(1, 3),
        "resourceSliceCount": chance.randrange(1, 3),
    }
    return slice_of(name, *made, pool=pool, **place, **counters)


@pytest.mark.parametrize("seed", range(12))
def test_whoever_has_another_answer_after_a_change_was_told(seed: int) -> None:
    """Random histories: what is kept is what would be found anew, the books are right, and a node whose answer is
    another one is among those that were named."""
    chance = random.Random(seed)
    devices, told = telling()
    shared = exactly("shared", capacity={"requests": {"m": "1"}})
    for index in range(8):
        devices.set_claim(claim_of(f"c{index}", chance.choice((exactly(), exactly(count=2), shared))))
    for probe, request in (("one", exactly()), ("all", exactly(allocationMode="All")), ("some", shared)):
        devices.set_claim(claim_of(probe, request))
    probes = [wanted(devices, probe) for probe in ("one", "all", "some")]
    before: dict[tuple[str, int], Any] = {}
    version = 1
    done = 0
    for _ in range(300):
        told.clear()
        version += 1
        name, pod = f"c{chance.randrange(8)}", f"pod{chance.randrange(4)}"
        match chance.randrange(6):
            case 0 | 1:
                devices.pools.set_slice(random_slice(chance, f"s{chance.randrange(4)}"))
            case 2:
                devices.pools.delete_slice(f"s{chance.randrange(4)}")
            case 3:
                found = allocate(wanted(devices, name), devices, chance.choice((N0, N1)))
                if not isinstance(found, CannotAllocate) and found and devices.allocation(key(name)) is None:
                    done += devices.assume(key(name), found[0], pod)
            case 4:
                devices.forget(pod)
            case 5:
                held = devices.assumed.held(pod)
                if held:
                    devices.written(held[0], pod, str(version))
                elif devices.assumed.get(key(name)) is None:
                    devices.set_claim(claim_of(name, chance.choice((exactly(), shared)), version=version))
        assert [each for each in devices.check() if "had 2 times" in each or "books" in each] == []
        named = {"n0", "n1"} if None in told else {each for names in told for each in names or ()}
        for number, demanded in enumerate(probes):
            for each in (N0, N1):
                fresh = allocate(demanded, devices, each)
                assert answer(demanded, devices, each) == fresh
                assert each.name in named or before.get((each.name, number), fresh) == fresh
                before[each.name, number] = fresh
    assert done, "nothing was ever taken"


def test_a_device_that_is_taken_on_one_node_concerns_that_node_alone() -> None:
    devices, told = telling()
    devices.pools.set_slice(slice_of("s0", device("a")))
    devices.pools.set_slice(slice_of("s1", device("a"), pool={"name": "q"}, nodeName="n1"))
    devices.set_claim(claim_of("c"))
    told.clear()
    stamp = devices.pools.stamp("n1")
    assert take(devices, "c", "pod")
    devices.written(key("c"), "pod", "2")
    devices.set_claim(claim_of("c", version=2, status=allocated_to("a")))
    assert told == [{"n0"}], "the watch shows what was known"
    assert devices.pools.stamp("n1") == stamp


def test_a_device_whose_counters_others_draw_on_concerns_the_nodes_of_these() -> None:
    devices, told = telling()
    whole = {"resourceSliceCount": 3}
    devices.pools.set_slice(slice_of("s0", pool=whole, allNodes=False, nodeName="n0", **counter(1)))
    devices.pools.set_slice(slice_of("s1", device("a", **draws(1)), pool=whole))
    devices.pools.set_slice(slice_of("s2", device("b", **draws(1)), pool=whole, nodeName="n1"))
    devices.set_claim(claim_of("c"))
    devices.set_claim(claim_of("probe"))
    assert not isinstance(answer(wanted(devices, "probe"), devices, N1), CannotAllocate)
    told.clear()
    assert take(devices, "c", "pod")
    assert told == [{"n0", "n1"}]
    assert isinstance(answer(wanted(devices, "probe"), devices, N1), CannotAllocate)


def test_of_classes_that_name_a_resource_the_newest_is_meant() -> None:
    resource = "example.com/gpu"
    devices = books(
        class_of("b", extendedResourceName=resource, metadata={"creationTimestamp": "2026-01-02T00:00:00Z"}),
        class_of("a", extendedResourceName=resource, metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}),
    )

    def named(asked: str) -> str:
        found = devices.class_of_resource(asked)
        return found.name if found else ""

    assert named(resource) == "b"
    devices.delete_class("b")
    assert named(resource) == named("deviceclass.resource.kubernetes.io/a") == "a"
    assert named("example.com/other") == ""
