"""The model of several schedulers obeys the laws of conservation, and agrees with what can be computed without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from bench.shard_model import EventCost, Plane, ShardWorld, most_pods, simulate
from bench.sizing import Several, memory_of, predicted
from bench.sizing_costs import SizeCosts

FREE = Plane(lanes=100, writes=((1e-6, 1.0),), fan_out=0.0)
SLOW = Plane(lanes=10, writes=((0.01, 0.5), (0.03, 0.5)), fan_out=1e-5, others=2)
OWN, FOREIGN = EventCost(5e-4, 3e-4), EventCost(2e-4, 1e-4)
BUSY, SEEN = EventCost(2e-3, 2e-3), EventCost(6e-4, 6e-4)
WORLD = ShardWorld(shards=4, own=OWN, foreign=FOREIGN, plane=SLOW, rate=60.0, seconds=4.0, nodes=40, life=0.5)


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize("places", [1_000_000, 80, 45])
@pytest.mark.parametrize("wave", [1, 50])
def test_each_pod_is_bound_or_rejected_and_nothing_is_used_more_than_wholly(
    mode: Literal["soft", "hard"], places: int, wave: int
) -> None:
    result = simulate(replace(WORLD, mode=mode, places=places, wave=wave))
    assert result.pods == result.bound + result.rejected > 0
    assert 0 < result.mean <= result.busiest <= 1
    assert 0 < result.plane <= 1
    assert 0 < result.p50 <= result.p99
    # In mode `hard` only the scheduler of a shard assigns its places, and it knows of all of its own.
    assert result.rejected == 0 or mode == "soft"
    assert result.delayed == 0 or places < 100
    assert result.delayed > 0 or places > 45


def test_a_world_has_one_outcome_for_each_seed() -> None:
    assert simulate(WORLD) == simulate(WORLD)
    assert simulate(WORLD) != simulate(replace(WORLD, seed=2))


def test_schedulers_that_do_not_know_of_each_other_give_a_place_away_twice() -> None:
    crowded = replace(WORLD, mode="soft", places=40, wave=40, rate=400.0, seconds=2.0)
    assert simulate(crowded).rejected > 0
    assert simulate(replace(crowded, shards=1)).rejected == 0


@pytest.mark.parametrize("shards", [1, 2, 4, 8])
def test_latencies_grow_without_end_above_the_rate_that_costs_allow(shards: int) -> None:
    world = replace(
        WORLD, shards=shards, plane=FREE, seconds=10.0, life=0.01, bind_concurrency=1000, own=BUSY, foreign=SEEN
    )
    below, above = (simulate(replace(world, rate=share * most_pods(world))) for share in (0.85, 1.3))
    assert below.mean == pytest.approx(0.85, rel=0.1)
    assert below.p99 < 0.1 < 0.5 < above.p99
    assert above.mean == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("plane", [FREE, SLOW])
def test_more_schedulers_allow_more_pods_and_bind_no_fewer(plane: Plane) -> None:
    worlds = [replace(WORLD, plane=plane, shards=shards, rate=600.0, life=0.01) for shards in (1, 2, 4, 8)]
    allowed = [most_pods(each) for each in worlds]
    assert allowed == sorted(set(allowed))
    rates = [simulate(each).pods_per_second for each in worlds]
    assert min(rates[1:]) >= 0.97 * rates[0]
    # Ten lanes carry out 500 writes per second, and a pod needs at least its creation and its bind.
    assert plane is FREE or max(rates) < 250


def test_events_are_sent_to_each_watch() -> None:
    """Five events of each pod, to four schedulers and two others; some pods end after the last arrival."""
    long = replace(WORLD, seconds=40.0)
    assert simulate(long).events_per_second == pytest.approx(60 * 5 * 6, rel=0.1)


def test_the_memory_of_a_node_and_of_a_pod_are_told_apart() -> None:
    def size(nodes: int, pods: int) -> SizeCosts:
        rest = dict.fromkeys(set(SizeCosts.__struct_fields__) - {"nodes", "pods", "memory"}, 0.0)
        return SizeCosts(nodes=nodes, pods=pods, memory=70e6 + 3000 * nodes + 1500 * pods, **rest)

    found = memory_of([size(1000, 0), size(100_000, 0), size(100_000, 200_000), size(10_000, 50_000)])
    assert found == pytest.approx((70e6, 3000, 1500))


def test_the_prediction_of_the_runs_that_it_is_made_from_is_exact() -> None:
    one = Several(schedulers=1, pods_per_second=4000, cpu=2e-4, server_cpu=2e-4)
    two = Several(schedulers=2, pods_per_second=3900, cpu=3e-4, server_cpu=1.5e-4)
    assert predicted([one, two], 1)[1] == pytest.approx(one.cpu)
    assert predicted([one, two], 2) == pytest.approx((two.pods_per_second, two.cpu))
    assert predicted([one, two], 4)[1] == pytest.approx(5e-4)
