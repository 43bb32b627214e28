"""Simulated kubelets start pods with resource claims only when they may use these."""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kubernetes.kubelet import Kubelets
from embedded_kubernetes.kubelet_claims import REASON

from ..support import PODS, ClaimsWorld, cases, container

SHARE = "aaaaaaaa-aaaa-4aaa-aaaa-aaaaaaaaaaaa"
EXTENDED = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}


class NodeWorld(ClaimsWorld):
    """A server with kubelets on two nodes that have room, and without a claim controller."""

    def __init__(self) -> None:
        super().__init__()
        self.controllers = [Kubelets(self.store)]
        for name, zone in (("a", "east"), ("b", "west")):
            self.node(name, labels={"zone": zone})
        self.settle()

    def waits_for(self) -> list[str]:
        """Return the messages of the waiting pods."""
        said = []
        for reason, message, _ in self.warnings():
            assert reason == REASON
            said.append(message.removeprefix("Failed to prepare dynamic resources: "))
        return said

    def run_claimed(self, pod: str, claim: str, *, device: str) -> None:
        """Create a pod on node `a` with an allocated claim of its own."""
        self.add_claim(claim)
        self.add_pod(pod, gpu=f"claim/{claim}")
        self.allocate(claim, pod, node="a", device=device)
        self.bind(pod, "a")
        self.settle()


@pytest.fixture
def world() -> NodeWorld:
    return NodeWorld()


def test_a_pod_waits_until_its_claim_is_there_allocated_and_reserved_for_it(world: NodeWorld) -> None:
    world.add_pod(gpu="claim/c")
    world.add_pod("other", gpu="claim/c")
    world.bind("p", "a")
    world.settle()
    world.add_claim("c")
    world.settle()
    world.allocate("c", "other", node="a")
    world.settle(60)
    assert world.phase() == "Pending"
    assert world.waits_for() == [
        "there is no ResourceClaim c",
        "ResourceClaim c is not allocated",
        "ResourceClaim c is not reserved for this pod",
    ]
    world.reserve("c", "p")
    world.settle()
    assert world.phase() == "Running"


def test_a_pod_waits_for_the_name_of_its_generated_claim_and_takes_no_other_pods(world: NodeWorld) -> None:
    world.add_pod(gpu="template/t")
    world.bind("p", "a")
    world.settle()
    assert world.waits_for() == ["no ResourceClaim has been made yet for gpu"]
    world.add_claim("stranger")
    world.allocate("stranger", "p", node="a")
    told = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "stranger"}]}}
    world.patch(f"{PODS}/p/status", told)
    world.settle()
    assert world.waits_for()[1:] == ["ResourceClaim stranger was not made for this pod"]
    needless = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    world.patch(f"{PODS}/p/status", needless)
    world.settle()
    assert world.phase() == "Running"


@cases("""
    term | fits
    {matchFields: [{key: metadata.name, operator: In, values: [b]}]} | false
    {matchFields: [{key: metadata.name, operator: NotIn, values: [b]}]} | true
    {matchExpressions: [{key: zone, operator: In, values: [east]}]} | true
    {matchExpressions: [{key: zone, operator: NotIn, values: [east]}]} | false
    {matchExpressions: [{key: zone, operator: Exists}]} | true
    {matchExpressions: [{key: zone, operator: DoesNotExist}]} | false
    {matchExpressions: [{key: zone, operator: Gt, values: ['1']}]} | false
    """)
def test_a_pod_does_not_run_with_devices_of_other_nodes(world: NodeWorld, term: Any, fits: bool) -> None:
    world.add_claim("c")
    world.add_pod(gpu="claim/c")
    results = [{"request": "r", "driver": "d.example.com", "pool": "x", "device": "d"}]
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    body = {"status": {"allocation": allocation, "reservedFor": world.consumers("p")}}
    world.change("c/status", body)
    world.bind("p", "a")
    world.settle()
    assert world.phase() == ("Running" if fits else "Pending")
    assert world.waits_for() == ([] if fits else ["ResourceClaim c is allocated for other nodes"])


def test_a_device_that_was_given_away_twice_is_one_pods_at_a_time(world: NodeWorld) -> None:
    world.run_claimed("p", "c", device="gpu-0")
    world.run_claimed("q", "d", device="gpu-0")
    world.run_claimed("r", "e", device="gpu-1")
    assert [world.phase(name) for name in ("p", "q", "r")] == ["Running", "Pending", "Running"]
    assert world.waits_for() == ["device gpu-0 of pool a is in use by ResourceClaim c"]
    world.delete(f"{PODS}/r")
    world.settle(5)
    assert world.phase("q") == "Pending"
    world.delete(f"{PODS}/p")
    world.settle(5)
    assert world.phase("q") == "Running"


def test_a_device_is_in_use_until_the_last_pod_of_its_claim_has_ended(world: NodeWorld) -> None:
    world.add_claim("c")
    for name in ("p", "q"):
        world.add_pod(name, gpu="claim/c")
    world.allocate("c", "p", "q", node="a", device="gpu-0")
    for name in ("p", "q"):
        world.bind(name, "a")
    world.run_claimed("r", "d", device="gpu-0")
    world.delete(f"{PODS}/p")
    world.settle(5)
    assert world.phase("r") == "Pending"
    world.report("q", phase="Succeeded")
    world.settle()
    assert world.phase("r") == "Running"


def test_a_pod_whose_claims_have_one_device_between_them_does_not_run(world: NodeWorld) -> None:
    for name in ("c", "d"):
        world.add_claim(name)
    world.add_pod(one="claim/c", two="claim/d")
    for name in ("c", "d"):
        world.allocate(name, "p", node="a", device="gpu-0")
    world.bind("p", "a")
    world.settle()
    assert world.phase() == "Pending"
    assert world.waits_for() == ["device gpu-0 of pool a is in use by ResourceClaim c"]


def test_devices_for_administration_and_shared_ones_are_in_nobodys_way(world: NodeWorld) -> None:
    world.run_claimed("p", "c", device="gpu-0")
    for pod, claim, more in (("q", "d", {"adminAccess": True}), ("r", "e", {"shareID": SHARE})):
        world.add_claim(claim)
        world.add_pod(pod, gpu=f"claim/{claim}")
        result = {"request": "r", "driver": "d.example.com", "pool": "a", "device": "gpu-0", **more}
        allocation = {"devices": {"results": [result]}}
        world.change(f"{claim}/status", {"status": {"allocation": allocation, "reservedFor": world.consumers(pod)}})
        world.bind(pod, "a")
    world.settle()
    assert (world.phase("q"), world.phase("r")) == ("Running", "Running")


def test_a_pod_whose_node_goes_while_it_waits_does_not_start_and_others_do(world: NodeWorld) -> None:
    world.add_pod(gpu="claim/c")
    world.bind("p", "a")
    world.settle()
    world.delete("/api/v1/nodes/a")
    world.add_claim("c")
    world.allocate("c", "p", node="a")
    world.settle(60)
    assert world.phase() == "Pending"
    world.add_pod("other")
    world.bind("other", "b")
    world.settle()
    assert world.phase("other") == "Running"


def test_a_pod_that_waits_and_is_being_deleted_does_not_start_any_more(world: NodeWorld) -> None:
    world.add_claim("c")
    world.add_pod(gpu="claim/c")
    world.bind("p", "a")
    world.settle()
    world.delete(f"{PODS}/p")
    world.settle()
    world.allocate("c", "p", node="a")
    world.settle()
    assert world.phase() == "Pending"


def test_kubelets_that_start_anew_know_what_running_pods_use(world: NodeWorld) -> None:
    world.run_claimed("p", "c", device="gpu-0")
    world.controllers = [Kubelets(world.store)]
    world.settle()
    world.run_claimed("q", "d", device="gpu-0")
    assert world.phase("q") == "Pending"
    world.delete(f"{PODS}/p")
    world.settle(5)
    assert world.phase("q") == "Running"


def test_a_claim_stands_in_for_the_extended_resource_that_it_was_made_for(world: NodeWorld) -> None:
    world.pod("p", spec={"containers": [container(resources=EXTENDED)]})
    world.add_claim("c")
    world.allocate("c", "p", node="a")
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}}
    world.patch(f"{PODS}/p/status", {"status": status})
    world.bind("p", "a")
    world.pod("without", spec={"containers": [container(resources=EXTENDED)]})
    world.bind("without", "a")
    world.settle()
    assert world.phase() == "Running"
    assert world.phase("without") == "Failed"
