"""What GPUs have free beside pods that are thought to have come or gone."""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace

from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.decide.trial import START, Trial, WhatIf
from agent_scheduler.engine.state.gpus import RESOURCE
from tests.support.engine import World, node


def _share(world: World, amount: int) -> Any:
    return world.pod(requests={RESOURCE: str(amount)})


def test_a_pod_that_leaves_gives_its_devices_back_and_takes_them_again() -> None:
    world = World(node("a", extended={RESOURCE: "2000"}))
    first, second = _share(world, 700), _share(world, 400)
    world.ledger.set_pod(replace(first, node_name="a", gpus=(1,)), "a")
    columns = world.ledger.columns
    with WhatIf(world.ledger, columns) as there:
        there.remove(first, 0)
        assert columns.gpus[0] == (1000, 1000)
        assert there.gpus_now(0) == (1000, 300)
        there.place(second, 0)
        assert columns.gpus[0] == (600, 1000)
        there.place(first, 0)
        assert columns.gpus[0] == (600, 300) == there.gpus_now(0)
        there.remove(second, 0)
        assert columns.gpus[0] == (1000, 300)
    assert columns.gpus[0] == (1000, 300) and not columns.hypothetical_gpus


def test_a_pod_that_is_placed_while_it_is_thought_of_counts_once() -> None:
    world = World(node("a", extended={RESOURCE: "2000"}))
    snapshot = Snapshot(world.ledger)
    trial = Trial(world.ledger, snapshot, {}, cast(Any, None))
    first, second, third = (_share(world, 400) for _ in range(3))
    trial.reset()
    trial.place(first, 0)
    world.ledger.assume(first, 0)
    trial.place(second, 0)
    assert snapshot.columns.gpus[0] == (200, 1000) and snapshot.columns.gpu_most[0] == 1000
    trial.place(third, 0)
    assert snapshot.columns.gpus[0] == (200, 600)
    trial.remove(first, 0)
    assert snapshot.columns.gpus[0] == (600, 600)
    trial.rollback(START)
    assert snapshot.columns.gpus[0] == (1000, 1000)
    trial.reset()
    assert snapshot.columns.gpus[0] == (600, 1000)
