"""Extended resources that devices stand for: on which nodes, and what is asked for which container."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_scheduler.engine.dra.allocator import CANNOT_ALLOCATE, CannotAllocate, allocate
from agent_scheduler.engine.dra.demand import demand
from agent_scheduler.engine.dra.extended import claim_for, met_by_devices, requests_for
from agent_scheduler.engine.state.extended import ContainerNeed, ExtendedNeeds, needs_of
from agent_scheduler.objects import wire
from tests.support.devices import N0, N1, books, class_of, device, slice_of
from tests.support.engine import node

GPU = "example.com/gpu"


def needs(*containers: tuple[str, int, bool], resource: str = GPU) -> ExtendedNeeds:
    return ExtendedNeeds(
        tuple(
            ContainerNeed(name, brief, (("cpu", 1), (resource, number)) if number else (("cpu", 1),))
            for name, number, brief in containers
        )
    )


def test_devices_stand_for_a_resource_where_the_node_lacks_it_and_a_class_names_it() -> None:
    devices = books(class_of("gpu", extendedResourceName=GPU))
    asked = (
        GPU,
        "cpu",
        "example.com/other",
        "deviceclass.resource.kubernetes.io/gpu",
        "requests.example.com/x",
    )
    by_class = "deviceclass.resource.kubernetes.io/gpu"
    assert met_by_devices(asked, devices, N0) == {GPU, by_class}
    assert met_by_devices(asked, devices, node("n0", extended={GPU: "2"})) == {by_class}
    assert met_by_devices(asked, devices, node("n0", extended={GPU: "0"})) == {GPU, by_class}
    assert met_by_devices(asked, books(class_of("gpu")), N0) == {by_class}


def test_each_container_gets_a_request_that_the_kubelet_finds_by_its_place() -> None:
    devices = books(class_of("gpu", extendedResourceName=GPU))
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
    devices = books(class_of("gpu", extendedResourceName=GPU))
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
    devices = books(class_of("gpu", extendedResourceName=GPU))
    wanted = needs(("a", 2, False))
    assert claim_for(wanted, devices, node("n0", extended={GPU: "2"})) is None
    assert claim_for(wanted, devices, N0) == (
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
    wanted = demand((), devices, extended=needs(("a", 2, False)))
    found = allocate(wanted, devices, N0)
    assert not isinstance(found, CannotAllocate)
    assert [[each.id.device for each in claim.results] for claim in found] == [["a", "b"]]
    assert allocate(wanted, devices, N1) == CannotAllocate(CANNOT_ALLOCATE)
    assert allocate(wanted, devices, node("n1", extended={GPU: "8"})) == ()
