"""Claims are reserved for exactly those pods that may run, and unused ones are deallocated."""

from __future__ import annotations

import pytest

from embedded_kubernetes.resource_claims import DELETE_PROTECTION

from ..support import CLAIMS, PODS, ClaimsWorld, container


@pytest.fixture
def world() -> ClaimsWorld:
    return ClaimsWorld()


def test_a_pod_that_is_deleted_before_it_has_a_node_loses_its_reservation_at_once(world: ClaimsWorld) -> None:
    world.add_claim()
    world.pod(
        "p", finalizers=["example.com/hold"], spec={"resourceClaims": [{"name": "g", "resourceClaimName": "shared"}]}
    )
    world.allocate("shared", "p")
    world.delete(f"{PODS}/p")
    assert world.is_there(f"{PODS}/p")
    world.settle()
    assert not world.is_allocated("shared")


def test_a_finalizer_of_somebody_else_keeps_the_claim(world: ClaimsWorld) -> None:
    world.add_claim()
    world.allocate("shared")
    world.change("shared", {"metadata": {"finalizers": ["example.com/hold", DELETE_PROTECTION]}})
    world.delete(f"{CLAIMS}/shared")
    world.settle()
    found = world.claims()["shared"]
    assert found["metadata"]["finalizers"] == ["example.com/hold"]
    assert "allocation" not in found["status"]


def test_a_claim_reserved_for_something_else_than_pods_is_left_alone(world: ClaimsWorld) -> None:
    world.add_claim()
    world.allocate("shared")
    other = {"apiGroup": "example.com", "resource": "things", "name": "x", "uid": "u"}
    gone = {"resource": "pods", "name": "gone", "uid": "g"}
    world.change("shared/status", {"status": {"reservedFor": [other, gone]}})
    world.settle()
    assert world.reserved("shared") == ["x", "gone"]


def test_a_claim_has_at_most_256_reservations_and_gives_a_free_one_to_who_waits(world: ClaimsWorld) -> None:
    world.add_claim()
    for number in range(257):
        world.add_pod(f"p{number}", node="n1", gpu="claim/shared")
    world.allocate("shared")
    world.settle()
    reserved = world.reserved("shared")
    assert len(reserved) == 256
    world.delete(f"{PODS}/{reserved[0]}", gracePeriodSeconds=0)
    world.settle()
    assert {*world.reserved("shared")} == {f"p{number}" for number in range(257)} - {reserved[0]}


def test_the_claim_that_a_scheduler_made_for_extended_resources_goes_with_its_pod(world: ClaimsWorld) -> None:
    asked = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    containers = [container(resources=asked)]
    uid = world.pod("p", spec={"containers": containers, "nodeName": "n1"})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    world.add_claim("extended", ownerReferences=[owner])
    world.allocate("extended", "p")
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "extended", "requestMappings": [mapping]}}
    world.patch(f"{PODS}/p/status", {"status": status})
    world.settle()
    assert world.is_allocated("extended")
    world.report("p", phase="Succeeded")
    world.settle()
    assert world.claims() == {}
