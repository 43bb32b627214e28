"""A queue that goes on by other rules: nobody is lost, who was refused is tried again, and gates are asked anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.hints import HintMap
from agent_scheduler.engine.queueing.subqueues import QueueSettings

from .queue_world import PROFILE, Gate, World, on, pod

REASON = "RulesChanged"
SETTINGS = set(QueueSettings.__struct_fields__)


def reconfigure(world: World, *, gates: Sequence[Gate] = (), **rules: Any) -> None:
    settings: dict[str, Any] = {
        "hint_maps": {PROFILE: HintMap({"bar": [on(ev.NODE_ADD)]})},
        "pre_enqueue": {PROFILE: gates},
        "settings": QueueSettings(**{name: rules.pop(name) for name in SETTINGS & rules.keys()}),
        **rules,
    }
    world.queue.reconfigure(**settings)
    world.queue.check_invariants()


@pytest.mark.parametrize(("waited", "place"), [(0, "backoff"), (60, "active")])
def test_a_refused_pod_is_tried_again_once_its_backoff_is_over(waited: int, place: str) -> None:
    world = World()
    world.refuse(pod("a"), "foo")
    world.clock.step(waited)
    reconfigure(world)
    assert world.where(pod("a")) == place and world.ready > 0
    assert world.incoming(place, REASON) == 1
    assert world.pop().attempts == 2


def test_a_pod_in_flight_is_tried_again_if_it_is_refused_by_the_old_rules() -> None:
    world = World()
    entry = world.try_pod(pod("a"))
    reconfigure(world)
    world.queue.add_unschedulable(entry, unschedulable_plugins={"foo"})
    assert world.where(pod("a")) == "backoff"


def test_who_is_refused_by_the_new_rules_waits_for_their_events() -> None:
    world = World()
    reconfigure(world)
    world.refuse(pod("a"), "bar")
    assert world.where(pod("a")) == "unschedulable"
    world.queue.move_all(ev.NODE_ADD)
    assert world.where(pod("a")) == "backoff"


@pytest.mark.parametrize(("stays", "place"), [(False, "active"), (True, "gated")])
def test_a_gated_pod_waits_as_long_as_its_gate_is_there(stays: bool, place: str) -> None:
    gate = Gate("gate", lambda one: True)
    world = World(gates=[gate])
    world.queue.add(pod("a"))
    assert world.where(pod("a")) == "gated"
    reconfigure(world, gates=[gate] if stays else [])
    assert world.where(pod("a")) == place
    assert world.recorder.waiting_because_of("gate") == stays


def test_a_new_gate_holds_pods_that_were_ready() -> None:
    world = World()
    world.refuse(pod("b"), "foo")
    world.queue.move_all(ev.NODE_ADD)
    world.queue.add(pod("a"))
    assert (world.where(pod("a")), world.where(pod("b"))) == ("active", "backoff")
    reconfigure(world, gates=[Gate("gate", lambda one: True)])
    assert (world.where(pod("a")), world.where(pod("b"))) == ("gated", "gated")
    assert world.pop_names() == []
    assert world.recorder.waiting_because_of("gate") == 2


def test_backoff_and_patience_are_those_of_the_new_rules() -> None:
    world = World()
    reconfigure(world, initial_backoff=7.0, max_backoff=20.0, pop_from_backoff=False, max_in_unschedulable=50.0)
    world.refuse(pod("a"), "bar")
    assert world.queue.next_deadline() == world.clock.now + 50
    world.queue.move_all(ev.NODE_ADD)
    assert world.queue.next_deadline() == world.clock.now + 7


def test_a_pod_that_lost_a_race_has_the_retries_of_the_new_rules() -> None:
    world = World()
    entry = world.try_pod(pod("a"))
    reconfigure(world, max_urgent_retries=0)
    assert not world.queue.requeue_urgent(entry)


def test_a_profile_can_come_and_go() -> None:
    world = World()
    both = {PROFILE: HintMap({"bar": ()}), "other": HintMap({"bar": ()})}
    stranger = pod("x", scheduler_name="other")
    reconfigure(world, hint_maps=both, pre_enqueue={})
    world.queue.add(stranger)
    assert world.where(stranger) == "active"
    world.queue.delete(stranger.uid)
    reconfigure(world)
    assert world.where(stranger) is None
    with pytest.raises(ValueError, match="asks for scheduler 'other'"):
        world.queue.add(stranger)


@pytest.mark.parametrize(
    "rules", [{"max_urgent_retries": -1}, {"max_in_unschedulable": 0.0}, {"pre_enqueue": {"nobody": ()}}]
)
def test_rules_that_make_no_sense_change_nothing(rules: dict[str, Any]) -> None:
    world = World()
    world.refuse(pod("a"), "foo")
    with pytest.raises(ValueError):
        reconfigure(world, **rules)
    assert world.where(pod("a")) == "unschedulable"
    world.queue.move_all(ev.NODE_ADD)
    assert world.where(pod("a")) == "backoff"
