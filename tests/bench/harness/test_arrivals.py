"""When a benchmark's pods come and go."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.harness.arrivals import Even, Given, GivenLives, Lives, Poisson, Waves


def test_even_arrivals_are_one_gap_apart() -> None:
    assert Even(200.0).due(4) == [0.0, 0.005, 0.01, 0.015]


def test_random_arrivals_rise_and_keep_their_rate() -> None:
    due = Poisson(50.0, seed=3).due(5_000)
    assert due == sorted(due)
    assert due[-1] == pytest.approx(100.0, rel=0.05)
    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert min(gaps) < 0.002 < 0.05 < max(gaps)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    assert Poisson(50.0, seed=3).due(10) == Poisson(50.0, seed=3).due(10) != Poisson(50.0, seed=4).due(10)


def test_all_pods_of_a_wave_are_due_at_one_instant() -> None:
    assert Waves(2, 5.0).due(5) == [0.0, 0.0, 5.0, 5.0, 10.0]


def test_a_trace_is_cut_to_the_pods_that_there_are() -> None:
    assert Given((0.0, 0.5, 2.0)).due(2) == [0.0, 0.5]
    assert GivenLives((1.0, None, 3.0)).seconds(2) == [1.0, None]


def test_lives_are_between_their_bounds_and_as_often_short_as_long() -> None:
    lives = Lives(1.0, 64.0).seconds(4_000)
    assert min(lives) >= 1.0
    assert max(lives) <= 64.0
    assert sum(life < 8.0 for life in lives) == pytest.approx(2_000, rel=0.05)
