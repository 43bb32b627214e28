"""The allocator against a search that tries everything: it finds an allocation exactly where there is one, and what it
finds is what the claims ask for."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_scheduler.engine.dra import search
from agent_scheduler.engine.dra.allocator import CannotAllocate, allocate
from agent_scheduler.engine.dra.demand import demand
from agent_scheduler.engine.state.podclaims import Demand, PodClaim
from tests.decisions.devices.engine import NAMESPACE, DeviceEngine
from tests.decisions.devices.validity import Obj, problems
from tests.support.examples import examples
from tests.unit.engine.dra.clusters import Drawn, clusters, everything, is_small


def demand_of(engine: DeviceEngine, claims: tuple[Obj, ...]) -> Demand:
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
    for node in engine.ledger.columns.nodes[:2]:
        assert node is not None
        found = allocate(wanted, engine.devices, node)
        possible = next(everything(drawn.cluster, node.name, drawn.claims), None)
        if isinstance(found, CannotAllocate):
            # As kube-scheduler: an alternative that asks for all is not passed over while a pool is being updated.
            waits = "asks for all devices, but resource pool" in found.reason
            assert waits or possible is None, (node.name, found, possible)
            continue
        given = [
            each.status(claim["metadata"]["name"]) for each, claim in zip(found, drawn.claims, strict=True)
        ]
        assert problems(drawn.cluster, node.name, drawn.claims, given) == [], (node.name, given)
        assert possible is not None


@examples(80)
@given(clusters())
def test_what_was_found_can_be_taken_and_given_back(drawn: Drawn) -> None:
    engine = DeviceEngine(drawn.cluster, drawn.claims)
    devices = engine.devices
    wanted = demand_of(engine, drawn.claims)
    node = engine.ledger.columns.nodes[0]
    assert node is not None
    found = allocate(wanted, devices, node)
    if isinstance(found, CannotAllocate):
        return
    for claim, allocation in zip(drawn.claims, found, strict=True):
        assert devices.assume((NAMESPACE, claim["metadata"]["name"]), allocation, "pod")
        assert devices.check() == []
    devices.forget("pod")
    assert devices.check() == []
    assert len(devices.assumed) == 0
    assert demand_of(engine, drawn.claims) is wanted
    assert allocate(wanted, devices, node) == found
