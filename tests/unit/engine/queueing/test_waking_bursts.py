"""Bursts wake exactly the pods that the same events wake one by one, without pre-hints: 30,000 random events."""

from __future__ import annotations

import pytest

from .waking_history import History


@pytest.mark.parametrize("seed", range(5, 8))
def test_with_pre_hints_and_bursts_the_same_pods_are_in_the_same_places(seed: int) -> None:
    history = History(seed, bursts=True)
    history.run(10_000)
    narrowed, scanned = history.recorders
    assert narrowed.incoming_total == scanned.incoming_total
    assert not narrowed.raised and narrowed.forgotten == scanned.forgotten > 0
