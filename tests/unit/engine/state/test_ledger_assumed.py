"""Room that was assumed for a bind: given back when the bind comes to nothing, kept when it does not."""

from __future__ import annotations

from tests.unit.engine.world import World, node

PORT = [
    {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}
]


def test_what_was_assumed_is_given_back_in_full() -> None:
    world = World(node("a"))
    pod = world.pod(containers=PORT)
    world.ledger.assume(pod, 0)
    assert world.ledger.columns.requested[0, 0] == 1000
    assert world.ledger.columns.ports
    assert world.ledger.forget(pod.uid) == "a"
    assert world.ledger.columns.requested[:, 0].tolist() == [0, 0, 0, 0]
    assert not world.ledger.columns.ports
    assert (world.ledger.placements, world.ledger.assumed) == ({}, 0)


def test_a_confirmed_pod_is_not_given_back() -> None:
    world = World(node("a"))
    pod = world.pod(containers=PORT)
    world.ledger.assume(pod, 0)
    world.ledger.confirm(pod.uid)
    assert world.ledger.assumed == 0
    assert world.ledger.forget(pod.uid) is None
    assert world.ledger.columns.requested[0, 0] == 1000
