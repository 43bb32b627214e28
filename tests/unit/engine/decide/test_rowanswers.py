"""What the engine keeps from decision to decision changes none: compared with an engine that has kept nothing."""

from __future__ import annotations

import pytest

from tests.support.examples import FACTOR, in_time

from .changing import Cluster
from .live import Answer

TURNS = 35


@pytest.mark.promise("S7")
@in_time
@pytest.mark.drawn
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(1, 5))])
def test_every_decision_is_that_of_an_engine_that_has_kept_nothing(seed: int) -> None:
    def compare(kept: Answer, anew: Answer, what: str) -> None:
        assert kept == anew, what

    for number in range(FACTOR):
        cluster = Cluster(seed + 1000 * number)
        for _ in range(TURNS):
            cluster.turn(compare)
