"""DynamicResources among the other plugins of a profile: on a view that is kept from pod to pod."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.dra.records import read_claim
from agent_scheduler.engine.dra.reservation import ReservedClaims
from agent_scheduler.engine.plugins.dynamic_resources import DynamicResources
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.devices import (
    N0,
    N1,
    allocated_to,
    claim_of,
    class_of,
    device,
    exactly,
    slice_of,
)
from tests.support.engine import SPREAD, World, node


class Cluster(World):
    """Two nodes with two devices each, n0's in pool `p` and n1's in pool `q`."""

    def __init__(self) -> None:
        super().__init__(N0, N1, profile=SPREAD)
        self.add(class_of(), slice_of("s0", device("a"), device("b")))
        more = device("c"), device("d"), device("e")
        self.add(slice_of("s1", *more, pool={"name": "q"}, nodeName="n1"))

    def with_claim(self, name: str, claim: str) -> PodInfo:
        return self.pod(name, resourceClaims=[{"name": "mine", "resourceClaimName": claim}])

    def nodes(self, pod: PodInfo) -> list[str]:
        decision = self.decide(pod)
        return [] if isinstance(decision, Refusal) else [each.node_name for each in decision.candidates]

    def reserve(self, pod: PodInfo, node_name: str) -> ReservedClaims | None:
        plugin = DynamicResources(devices=self.devices)
        return plugin.reserve(self.state(pod, plugin), pod, self.node(node_name), "")


@pytest.mark.promise("S17")
def test_pods_of_one_template_are_one_class_and_each_sees_what_those_before_it_took() -> None:
    cluster = Cluster()
    pods = []
    for index in range(6):
        cluster.devices.set_claim(claim_of(f"c{index}"))
        pods.append(cluster.with_claim(f"p{index}", f"c{index}"))
    classes = {cluster.snapshot.handle.class_of(pod) for pod in pods}
    assert len(classes) == 1
    placed = []
    for pod in pods[:5]:
        name = cluster.nodes(pod)[0]
        placed.append(name)
        assert cluster.reserve(pod, name)
    assert sorted(placed) == ["n0", "n0", "n1", "n1", "n1"]
    refusal = cluster.decide(pods[5])
    assert isinstance(refusal, Refusal)
    assert refusal.message == "0/2 nodes are available: 2 cannot allocate all claims."
    assert refusal.plugins == {"DynamicResources"}
    assert cluster.reserve(pods[5], "n0") is None
    cluster.devices.forget(pods[0].uid)
    assert cluster.nodes(pods[5]) == [placed[0]]


def test_a_node_where_the_first_alternative_can_be_had_ranks_before_others() -> None:
    cluster = Cluster()
    options = [
        {"name": "three", "deviceClassName": "any", "count": 3},
        {"name": "one", "deviceClassName": "any"},
    ]
    cluster.devices.set_claim(claim_of("mine", {"name": "r", "firstAvailable": options}))
    pod = cluster.with_claim("p", "mine")
    assert cluster.nodes(pod)[0] == "n1"
    view = cluster.views.of(cluster.snapshot.handle.class_of(pod))
    columns = cluster.snapshot.columns
    rows = columns.all_rows()
    (scores,) = [
        values for name, values in view.plugin_scores(columns, rows).items() if name == "DynamicResources"
    ]
    assert dict(zip(("n0", "n1"), scores.tolist(), strict=True)) == {"n0": 2 * (700 // 8), "n1": 2 * 100}


def test_nobody_is_evicted_for_devices() -> None:
    cluster = Cluster()
    cluster.devices.set_claim(claim_of("mine", exactly(count=9)))
    cluster.decide(cluster.with_claim("p", "mine"))
    view = cluster.views.of(cluster.snapshot.handle.class_of(cluster.with_claim("p", "mine")))
    assert view.refused(cluster.snapshot.columns).curable.size == 0


def test_an_explanation_counts_the_devices_that_match_and_those_that_are_free() -> None:
    cluster = Cluster()
    cluster.devices.set_claim(claim_of("mine", exactly(count=2)))
    cluster.devices.set_claim(claim_of("other", status=allocated_to("a")))
    pod = cluster.with_claim("p", "mine")
    cluster.decide(pod)
    plugin = DynamicResources(cluster.devices)
    state = plugin.prepare(cluster.snapshot.handle.class_of(pod), cluster.snapshot.handle)
    assert state is not None
    assert plugin.missing(state, cluster.snapshot.columns, 0) == (
        "cannot allocate all claims; claim mine, request r: wants 2 of class any, 2 match, 1 of them free"
    )
    assert plugin.missing(state, cluster.snapshot.columns, 1) == ""


def test_what_was_worked_out_for_a_node_goes_with_it() -> None:
    cluster = Cluster()
    cluster.devices.set_claim(claim_of("mine"))
    pod = cluster.with_claim("p", "mine")
    assert set(cluster.nodes(pod)) == {"n0", "n1"}
    assert "n0" in cluster.devices.node_devices
    cluster.ledger.remove_node("n0")
    cluster.devices.forget_node("n0")
    assert "n0" not in cluster.devices.node_devices
    assert cluster.nodes(pod) == ["n1"]
    cluster.ledger.set_node(node("n0"))
    assert set(cluster.nodes(pod)) == {"n0", "n1"}


def test_a_claim_with_a_status_that_cannot_be_read_is_not_lost_and_keeps_its_pods_waiting() -> None:
    cluster = Cluster()
    body = b'{"metadata":{"name":"mine","namespace":"default","uid":"u","resourceVersion":"3"},"spec":{},"status":7}'
    cluster.devices.set_claim(read_claim(body))
    refusal = cluster.decide(cluster.with_claim("p", "mine"))
    assert isinstance(refusal, Refusal)
    assert "resourceclaim default/mine: Expected `object`, got `int` - at `$.status`" in refusal.message
