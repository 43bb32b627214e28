"""DefaultPreemption: how many candidates are enough, and whom a victim that has left wakes."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.framework.args import DefaultPreemptionArgs
from agent_scheduler.engine.plugins.default_preemption import DefaultPreemption
from tests.support.engine import World, wakes


@pytest.mark.parametrize(("priority", "woken"), [(4, False), (5, False), (6, True), (7, True)])
def test_a_pod_that_ends_wakes_those_of_higher_priority(priority: int, woken: bool) -> None:
    world = World()
    gone = world.pod(priority=5, nodeName="n")
    plugin = DefaultPreemption(DefaultPreemptionArgs())
    assert wakes(plugin, world.pod(priority=priority), ev.ASSIGNED_POD_DELETE, gone, None) is woken


@pytest.mark.parametrize(
    ("percentage", "absolute", "nodes", "wanted"),
    [(10, 100, 50, 50), (10, 100, 500, 100), (10, 100, 5000, 500), (50, 0, 3, 1), (0, 2, 9, 2)],
)
def test_a_part_of_the_nodes_is_enough_but_not_less_than_a_number_of_them(
    percentage: int, absolute: int, nodes: int, wanted: int
) -> None:
    args = DefaultPreemptionArgs(
        min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
    )
    assert DefaultPreemption(args).wanted(nodes) == wanted
