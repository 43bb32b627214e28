"""The generated agent burst."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from bench.demo.scenario import agent_burst, case_of
from bench.harness.arrivals import ClosedLoop, Given


def test_a_seed_names_a_burst_exactly() -> None:
    assert agent_burst(pods=500, seed=7) == agent_burst(pods=500, seed=7)
    assert agent_burst(pods=500, seed=7) != agent_burst(pods=500, seed=8)


@pytest.mark.parametrize(("pods", "waves"), [(1, 5), (5, 5), (6, 5), (1000, 7), (1000, 1)])
def test_a_burst_has_exactly_its_pods_in_all_its_waves(pods: int, waves: int) -> None:
    burst = agent_burst(pods=pods, seed=3, waves=waves)
    assert len({pod.name for pod in burst.pods}) == pods
    counts = Counter(pod.labels["wave"] for pod in burst.pods)
    assert len(counts) == min(pods, waves)


def test_by_default_all_pods_of_a_burst_are_created_as_fast_as_the_server_answers() -> None:
    burst = agent_burst(pods=50, seed=3)
    assert {pod.arrival for pod in burst.pods} == {0.0}
    assert case_of(burst, workers=1, patience=1.0).load.arrival == ClosedLoop()
    waves = agent_burst(pods=50, seed=3, waves=2)
    assert isinstance(case_of(waves, workers=1, patience=1.0).load.arrival, Given)


def test_a_wave_is_over_before_the_next_begins() -> None:
    burst = agent_burst(pods=2000, seed=1, waves=4, gap=3.0, spread=1.0)
    assert all(a.arrival <= b.arrival for a, b in pairwise(burst.pods))
    for pod in burst.pods:
        wave = int(pod.labels["wave"])
        assert 3.0 * wave <= pod.arrival <= 3.0 * wave + 1.0


def test_a_burst_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one pod"):
        agent_burst(pods=0, seed=1)
    with pytest.raises(ValueError, match="at least 0"):
        agent_burst(pods=1, seed=1, gap=-1)
