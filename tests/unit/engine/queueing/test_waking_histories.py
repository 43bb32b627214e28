"""Indexed waking wakes the pods that a full scan with every hint wakes: thousands of random events one by one."""

from __future__ import annotations

import pytest

from tests.support.examples import FACTOR, in_time

from .waking_history import History


@in_time
@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(3))
def test_with_and_without_pre_hints_the_same_pods_are_in_the_same_places(seed: int) -> None:
    history = History(seed)
    history.run(4_000 * FACTOR)
    narrowed, scanned = history.recorders
    assert narrowed.incoming_total == scanned.incoming_total
    assert narrowed.unschedulable_gauge == scanned.unschedulable_gauge
    # Something was at stake: every plugin was spared questions, and every plugin still woke pods.
    assert not scanned.pre_hints and not narrowed.raised
    # These two hear of new nodes, which always help, and of the pod itself, which needs no looking for.
    plugins = {*history.plugins} - {"NoNodes", "PodSpec"}
    assert {plugin for plugin, _, named in narrowed.pre_hints if named is not None} == plugins
    assert {plugin for plugin, _, hint in narrowed.hints if hint == "Queue"} >= plugins
    assert 3 * len(narrowed.hints) < 2 * len(scanned.hints)
