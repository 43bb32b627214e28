"""What is taken for a pod's claims at once, and the claim for extended resources that devices stand for."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.dra.allocator import CANNOT_ALLOCATE, LEFT_OVER, CannotAllocate, allocate, answer, lacking
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.demand import PodClaim, PodRef, demand, demand_of
from agent_scheduler.engine.dra.extended import claim_for, met_by_devices, requests_for
from agent_scheduler.engine.dra.extended_claim import manifest, name_of
from agent_scheduler.engine.dra.records import EXTENDED_RESOURCE_CLAIM, ResourceClaimInfo, read_claim
from agent_scheduler.engine.dra.reservation import Due, Lost, ReservedClaims, Write, due, reserve, to_deallocate
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.extended import ContainerNeed, ExtendedNeeds, needs_of
from agent_scheduler.engine.state.podclaims import ClaimDemand
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects import wire
from tests.support.devices import N0, N1, allocated_to, books, claim_of, class_of, device, key, slice_of, wanted
from tests.support.engine import node, pod_json, read_pod
from tests.support.handles import handle_of

POD = PodRef("default", "p", "uid-p")


def users(*uids: str) -> dict[str, Any]:
    return {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]}


@pytest.mark.promise("L10")
@pytest.mark.parametrize(
    ("reserved_for", "may"), [((), True), (("uid-p",), True), (("other",), False), (("uid-p", "other"), False)]
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
    assert {each.problem for each in others} == {"resource claim default/c is in the process of being allocated"}
    (shared,) = demand(SHARED, devices, group=GROUP).allocated
    assert shared.key == key("c") and shared.reach is not None


def test_a_member_that_counts_on_the_allocation_for_another_waits_until_it_is_written_and_loses_it_with_it() -> None:
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


def test_a_claim_that_was_allocated_alike_meanwhile_keeps_its_consumers() -> None:
    """As for a process that begins with an old list, after another one has allocated the claim."""
    devices = books(slice_of("s", device("a")), claim_of("c"))
    found = reserve(SHARED, wanted(devices, "c"), devices, N0, POD)
    assert isinstance(found, ReservedClaims)
    (part,) = found.claims
    protecting = due(found, part, devices, "")
    assert isinstance(protecting, Write)
    assert msgspec.json.decode(protecting.body)["metadata"]["resourceVersion"] == "1", "else it hides changes"
    devices.set_claim(claim_of("c", version=2, status={**allocated_to("a"), **users("uid-q")}))
    assert devices.allocation(key("c")) == part.allocated
    step = due(found, part, devices, "")
    assert isinstance(step, Write) and step.strategic
    assert msgspec.json.decode(step.body)["status"].keys() == {"reservedFor"}


GPU = "example.com/gpu"


def gpus(*names: str) -> Devices:
    return books(class_of("gpu", extendedResourceName=GPU), slice_of("s", *(device(each) for each in names)))


def needs(*containers: tuple[str, int, bool], resource: str = GPU) -> ExtendedNeeds:
    return ExtendedNeeds(
        tuple(
            ContainerNeed(name, brief, (("cpu", 1), (resource, number)) if number else (("cpu", 1),))
            for name, number, brief in containers
        )
    )


def test_devices_stand_for_a_resource_where_the_node_lacks_it_and_a_class_names_it() -> None:
    devices = gpus()
    by_class = "deviceclass.resource.kubernetes.io/gpu"
    asked = (GPU, "cpu", "example.com/other", by_class, "requests.example.com/x")
    assert met_by_devices(asked, devices, N0) == {GPU, by_class}
    assert met_by_devices(asked, devices, node("n0", extended={GPU: "2"})) == {by_class}
    assert met_by_devices(asked, devices, node("n0", extended={GPU: "0"})) == {GPU, by_class}
    assert met_by_devices(asked, books(class_of("gpu")), N0) == {by_class}


def test_each_container_gets_a_request_that_the_kubelet_finds_by_its_place() -> None:
    devices = gpus()
    spec, mapped = requests_for(needs(("init", 0, True), ("a", 2, False), ("b", 1, False)), [GPU], devices)
    assert [(each.name, each.options[0].number) for each in spec.requests] == [
        ("container-1-request-1", 2),
        ("container-2-request-1", 1),
    ]
    assert [tuple(each) for each in mapped] == [
        ("a", GPU, "container-1-request-1"),
        ("b", GPU, "container-2-request-1"),
    ]


def test_a_container_that_ends_first_uses_what_later_ones_get_and_asks_only_for_more() -> None:
    devices = gpus()
    spec, mapped = requests_for(needs(("i", 3, True), ("j", 2, True), ("a", 1, False)), [GPU], devices)
    assert [(each.name, each.options[0].number) for each in spec.requests] == [
        ("container-0-request-1", 2),
        ("container-2-request-1", 1),
    ]
    assert {(each.container, each.request) for each in mapped} == {
        ("a", "container-2-request-1"),
        ("i", "container-2-request-1"),
        ("i", "container-0-request-1"),
        ("j", "container-2-request-1"),
        ("j", "container-0-request-1"),
    }


def read(spec: dict[str, Any]) -> wire.PodSpec:
    return msgspec.json.decode(msgspec.json.encode(spec), type=wire.PodSpec)


def test_what_a_pod_needs_is_read_from_its_containers() -> None:
    def pod(*names: str, **spec: Any) -> wire.PodSpec:
        containers = [{"name": name, "resources": {"requests": {"cpu": "1", GPU: "2"}}} for name in names]
        return read({"containers": containers, **spec})

    plain = {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi"}}}
    assert needs_of(read({"containers": [plain]})) is None
    inits = [
        {"name": "i", "resources": {"requests": {GPU: "1"}}},
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {GPU: "odd"}}},
    ]
    found = needs_of(pod("a", initContainers=inits))
    assert found is not None and found.resources == {GPU}
    assert [(each.name, each.short_lived, dict(each.requests)[GPU]) for each in found.containers] == [
        ("i", True, 1),
        ("s", False, 0),
        ("a", False, 2),
    ]
    assert needs_of(pod("a")) == needs_of(pod("a"))


def test_the_claim_to_be_made_says_what_the_kubelet_has_to_find() -> None:
    devices = gpus()
    wanting = needs(("a", 2, False))
    assert claim_for(wanting, devices, node("n0", extended={GPU: "2"})) is None
    assert claim_for(wanting, devices, N0) == (
        {
            "devices": {
                "requests": [
                    {
                        "name": "container-0-request-1",
                        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
                    }
                ]
            }
        },
        [{"containerName": "a", "resourceName": GPU, "requestName": "container-0-request-1"}],
    )


def test_a_pod_gets_devices_for_its_resource_as_one_claim_more() -> None:
    devices = books(class_of("gpu", extendedResourceName=GPU), slice_of("s", device("a"), device("b")))
    wanting = demand((), devices, extended=needs(("a", 2, False)))
    found = allocate(wanting, devices, N0)
    assert not isinstance(found, CannotAllocate)
    assert [[each.id.device for each in claim.results] for claim in found] == [["a", "b"]]
    assert allocate(wanting, devices, N1) == CannotAllocate(CANNOT_ALLOCATE)
    assert allocate(wanting, devices, node("n1", extended={GPU: "8"})) == ()


CLASSES = PodClasses()


def asking(name: str = "p", number: int = 1, **spec: object) -> PodInfo:
    return read_pod(pod_json(name, requests={"cpu": "1", GPU: str(number)}, **spec), CLASSES)


def ref(pod: PodInfo) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)


def wanting(pod: PodInfo, devices: Devices) -> ClaimDemand:
    found = demand_of(pod, devices)
    assert found is not None
    return found


def reserved(pod: PodInfo, devices: Devices) -> ReservedClaims | CannotAllocate:
    return reserve(pod.claims, wanting(pod, devices), devices, N0, ref(pod))


def made(pod: PodInfo, name: str = "c", version: int = 1) -> ResourceClaimInfo:
    """The claim that an attempt on n0 made for the pod."""
    devices = gpus("a")
    found = reserved(pod, devices)
    assert isinstance(found, ReservedClaims) and found.in_memory is not None
    body = msgspec.json.decode(manifest(ref(pod), name, found.in_memory.spec))
    body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(version)}
    return read_claim(msgspec.json.encode(body))


def test_the_name_follows_from_the_pods_uid_and_looks_generated() -> None:
    pod = PodRef("default", "web", "uid-1")
    assert name_of(pod) == name_of(pod) != name_of(pod, 1)
    assert name_of(pod) != name_of(pod._replace(uid="uid-2"))
    assert re.fullmatch(r"web-extended-resources-[bcdfghjklmnpqrstvwxz2456789]{5}", name_of(pod))
    assert len(name_of(pod._replace(name="x" * 253))) == 63


def test_the_claim_is_its_pods_own_and_protected() -> None:
    pod = asking()
    claim = made(pod)
    assert (claim.controller, claim.extended, claim.protected) == (pod.uid, True, True)
    assert [each.options[0].number for each in claim.spec.requests] == [1]


def test_what_is_promised_to_one_pod_is_promised_to_no_other() -> None:
    devices = gpus("a")
    first, second = asking("first"), asking("second")
    kept = answer(wanting(second, devices), devices, N0)
    assert not isinstance(kept, CannotAllocate)
    assert isinstance(reserved(first, devices), ReservedClaims)
    assert reserved(second, devices) == CannotAllocate(CANNOT_ALLOCATE)
    # Even if it was decided before.
    spec = made(second).spec
    assert not devices.assume_in_memory(second.uid, spec, kept[-1])
    assert devices.check() == []


def test_a_promise_that_is_given_up_frees_its_devices_for_everybody() -> None:
    devices = gpus("a")
    first, second = asking("first"), asking("second")
    assert isinstance(reserved(first, devices), ReservedClaims)
    ((before, after),) = devices.forget(first.uid)
    assert before.allocation is not None and after.allocation is None
    assert devices.forget(first.uid) == []
    assert isinstance(reserved(second, devices), ReservedClaims)
    assert devices.check() == []


def test_a_promise_that_is_kept_is_the_claims_from_then_on() -> None:
    devices = gpus("a")
    pod = asking()
    found = reserved(pod, devices)
    assert isinstance(found, ReservedClaims) and found.in_memory is not None
    claim = made(pod)
    assert not devices.replace_in_memory(claim.key, found.in_memory.allocation, pod.uid), "it is not there yet"
    again = reserved(pod, devices)
    assert isinstance(again, ReservedClaims) and again.in_memory is not None
    devices.set_claim(claim)
    assert devices.replace_in_memory(claim.key, again.in_memory.allocation, pod.uid)
    assert devices.is_pending(claim.key)
    assert allocate(wanting(asking("other"), devices), devices, N0) == CannotAllocate(CANNOT_ALLOCATE)
    devices.written(claim.key, pod.uid, "2")
    assert devices.allocation(claim.key) is not None and devices.forget(pod.uid) == []
    assert devices.check() == []


def test_a_claim_that_an_attempt_left_behind_keeps_its_pod_from_every_node() -> None:
    devices = gpus("a", "b")
    pod, other = asking(), asking("other")
    claim = made(pod)
    devices.set_claim(claim)
    for place in (N0, N1):
        assert allocate(wanting(pod, devices), devices, place) == CannotAllocate(LEFT_OVER)
    assert LEFT_OVER == "cannot schedule extended resource claim"
    assert not isinstance(allocate(wanting(other, devices), devices, N0), CannotAllocate)
    assert wanting(pod, devices).left_over == (claim.key,)
    devices.delete_claim(claim.key)
    assert wanting(pod, devices) is wanting(other, devices)
    # One that only looks like it.
    devices.set_claim(msgspec.structs.replace(claim, extended=False))
    assert wanting(pod, devices).left_over == ()


def test_an_annotation_of_another_value_is_none() -> None:
    body = {"metadata": {"name": "c", "annotations": {EXTENDED_RESOURCE_CLAIM: "false"}}, "spec": {}}
    assert not read_claim(msgspec.json.encode(body)).extended


def test_pods_that_ask_for_the_same_are_one_class_and_plain_ones_stay_what_they_are() -> None:
    devices = gpus("a")
    handle = handle_of(Ledger(), devices=devices)
    one, two, more = asking("one"), asking("two"), asking("more", 2)
    plain = read_pod(pod_json("plain", requests={"cpu": "1"}), CLASSES)
    assert one.cls is not handle.class_of(one) is handle.class_of(two) is not handle.class_of(more)
    assert plain.extended is None and handle.class_of(plain) is plain.cls
    unnamed = handle_of(Ledger(), devices=books(class_of("gpu")))
    assert unnamed.class_of(one) is one.cls


def test_pods_whose_containers_ask_otherwise_for_the_same_are_two_classes() -> None:
    handle = handle_of(Ledger(), devices=gpus("a"))
    resources = {"resources": {"requests": {GPU: "1"}}}
    together = asking("together", 2, initContainers=[])
    apart = read_pod(
        pod_json("apart", containers=[{"name": "a", **resources}, {"name": "b", **resources}], initContainers=[]),
        CLASSES,
    )
    assert apart.requests[GPU] == together.requests[GPU] == 2
    assert handle.class_of(apart) is not handle.class_of(together)


def test_an_explanation_counts_the_devices_that_stand_for_the_resource() -> None:
    devices = gpus("a", "b")
    pod = asking(number=3)
    refused = allocate(wanting(pod, devices), devices, N0)
    assert isinstance(refused, CannotAllocate)
    assert lacking(refused, wanting(pod, devices), devices, N0) == (
        "cannot allocate all claims; claim <extended-resources>, request container-0-request-1: "
        "wants 3 of class gpu, 2 match, 2 of them free"
    )
