"""Indexed waking, in bursts and in portions too, wakes the pods that a full scan with every hint wakes: thousands of
random events."""

from __future__ import annotations

import pytest

from tests.support.examples import FACTOR, in_time

from .waking_history import History

pytestmark = [in_time, pytest.mark.drawn]


def first_of(*cases: object) -> list[object]:
    """The first case, and the others in the wide tests."""
    others = [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.wide) for each in cases[1:]
    ]
    return [cases[0], *others]


@pytest.mark.parametrize("seed", first_of(0, 1, 2))
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


@pytest.mark.parametrize("seed", first_of(5, 6, 7))
def test_in_bursts_the_same_pods_are_woken_as_by_the_same_events_one_by_one(seed: int) -> None:
    history = History(seed, bursts=True)
    history.run(4_000 * FACTOR)
    narrowed, scanned = history.recorders
    assert narrowed.incoming_total == scanned.incoming_total
    assert not narrowed.raised and narrowed.forgotten == scanned.forgotten > 0


@pytest.mark.parametrize(("seed", "portion"), first_of((21, 2), (20, 1), (22, 5), (23, 9), (24, 14)))
def test_in_portions_the_same_pods_are_woken_as_at_once(seed: int, portion: int) -> None:
    history = History(seed, portion=portion)
    history.run(2_500 * FACTOR)
    narrowed, scanned = history.recorders
    assert narrowed.unschedulable_gauge == scanned.unschedulable_gauge
    assert not narrowed.raised and narrowed.forgotten == scanned.forgotten > 0
    assert history.left > 125
