"""What the queue says of one pod: where it is, and which events would wake it."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.queueing.views import find

from .queue_world import World, on, pod


def test_events_that_wake_a_pod_are_those_of_all_plugins_that_refused_it() -> None:
    labels = ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
    world = World(
        {"labels": [on(labels)], "room": [on(ev.ASSIGNED_POD_DELETE), on(labels)], "other": [on(ev.NODE_ADD)]}
    )
    world.refuse(pod("a"), "room", pending=("labels",))
    found = find(world.queue, pod("a").uid)
    assert found is not None
    assert found.wakes == {
        "labels": ("NodeAdd", "NodeUpdateLabel"),
        "room": ("AssignedPodDelete", "NodeAdd", "NodeUpdateLabel"),
    }


@pytest.mark.parametrize(
    ("event", "names"),
    [
        (ev.ANY, ("All",)),
        (ev.NODE_DELETE, ("NodeDelete",)),
        (ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE), ("TargetPodUpdate",)),
        (ClusterEvent(Resource.CSI_NODE, ActionType.ALL), ("CSINodeAdd", "CSINodeDelete", "CSINodeUpdate")),
        (
            ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN),
            ("AssignedPodDelete", "AssignedPodUpdateScaleDown"),
        ),
    ],
)
def test_an_event_is_told_by_what_it_is_made_of(event: ClusterEvent, names: tuple[str, ...]) -> None:
    assert event.parts() == names
