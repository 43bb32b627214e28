"""Bursts wake the pods that the same events wake one by one, without pre-hints: thousands of random events."""

from __future__ import annotations

import pytest

from tests.support.examples import FACTOR, in_time

from .waking_history import History


@in_time
@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(5, 8))
def test_with_pre_hints_and_bursts_the_same_pods_are_in_the_same_places(seed: int) -> None:
    history = History(seed, bursts=True)
    history.run(4_000 * FACTOR)
    narrowed, scanned = history.recorders
    assert narrowed.incoming_total == scanned.incoming_total
    assert not narrowed.raised and narrowed.forgotten == scanned.forgotten > 0
