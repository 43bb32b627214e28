"""Disruption budgets are kept up to date, so that evictions are allowed or refused by the pods that are healthy."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import BUDGETS, PODS, World, named
from embedded_kubernetes.disruption import Budgets


@pytest.fixture
def world() -> World:
    world = World(nodes="n1")
    world.controllers = [Budgets(world.api.registry)]
    return world


def _budget(world: World, **spec: Any) -> None:
    world.post(BUDGETS, named("b", spec={"selector": {"matchLabels": {"app": "x"}}, **spec}))


def _status(world: World) -> dict[str, Any]:
    return world.get(f"{BUDGETS}/b")["status"]


def _numbers(world: World) -> tuple[int, ...]:
    """Return the allowed disruptions, and the healthy, required healthy and expected pods."""
    names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return tuple(_status(world)[name] for name in names)


def _evict(world: World, name: str, **more: Any) -> int:
    body = named(name, apiVersion="policy/v1", kind="Eviction", **more)
    return world.call("POST", f"{PODS}/{name}/eviction", body)[0]


def test_a_budget_follows_its_pods_as_they_come_turn_ready_and_go(world: World) -> None:
    _budget(world, minAvailable=1)
    for name in ("one", "two"):
        world.ready_pod(name)
    world.ready_pod("other", app="y")
    world.settle()
    assert _numbers(world) == (1, 2, 1, 2)
    world.report("one", ready=False)
    world.settle()
    assert _numbers(world) == (0, 1, 1, 2)
    world.delete(f"{PODS}/one", gracePeriodSeconds=0)
    world.settle()
    assert _numbers(world) == (0, 1, 1, 1)


def test_pods_that_ended_or_are_being_deleted_are_not_healthy(world: World) -> None:
    _budget(world, maxUnavailable=1)
    for name in ("one", "two", "three"):
        world.ready_pod(name)
    world.report("one", phase="Succeeded")
    world.delete(f"{PODS}/two")
    world.settle()
    assert _numbers(world) == (0, 1, 1, 2)


def test_a_budget_with_a_new_selector_is_counted_anew(world: World) -> None:
    world.ready_pod("one")
    world.ready_pod("two", app="y")
    world.ready_pod("three", app="y")
    _budget(world, minAvailable=1)
    world.settle(most=1)
    assert _numbers(world) == (0, 1, 1, 1)
    world.patch(f"{BUDGETS}/b", {"spec": {"selector": {"matchLabels": {"app": "y"}}}})
    world.settle(most=1)
    assert _numbers(world) == (1, 2, 1, 2)
    assert _status(world)["observedGeneration"] == 2


def test_what_was_there_before_the_controller_came_is_counted() -> None:
    world = World(nodes="n1")
    world.ready_pod("one")
    _budget(world, minAvailable="0%")
    world.controllers = [Budgets(world.api.registry)]
    world.settle()
    assert _numbers(world) == (1, 1, 0, 1)


def test_nothing_is_written_when_nothing_changed(world: World) -> None:
    _budget(world, minAvailable=1)
    world.ready_pod("one")
    world.settle()
    version = world.store.rv
    world.pod("other")
    world.settle()
    assert world.store.rv == version + 1


def test_pods_without_a_budget_in_their_namespace_wake_nobody(world: World) -> None:
    woken: list[str] = []
    world.controllers[0].wake = lambda: woken.append("woken")
    world.ready_pod("one")
    assert not woken
    _budget(world, minAvailable=1)
    world.settle()
    world.delete(f"{BUDGETS}/b")
    world.settle()
    woken.clear()
    world.report("one", ready=False)
    assert not woken


def test_evictions_are_granted_while_the_budget_has_room(world: World) -> None:
    _budget(world, minAvailable=1)
    for name in ("one", "two"):
        world.ready_pod(name)
    assert _evict(world, "one") == 429  # the budget has not been counted yet
    world.settle()
    assert _evict(world, "one", deleteOptions={"dryRun": ["All"]}) == 201
    assert (world.is_there(f"{PODS}/one"), _numbers(world)) == (True, (1, 2, 1, 2))
    assert _evict(world, "one") == 201
    assert list(_status(world)["disruptedPods"]) == ["one"]
    assert _evict(world, "two") == 429
    world.settle()
    assert _evict(world, "two") == 429
    world.ready_pod("three")
    world.settle()
    assert _evict(world, "two") == 201


def test_an_evicted_pod_that_stays_counts_as_healthy_again_after_two_minutes(world: World) -> None:
    _budget(world, minAvailable=1)
    for name in ("one", "two"):
        world.ready_pod(name)
    world.settle()
    noted = {"status": {"disruptedPods": {"one": "2027-01-15T08:00:00Z"}}}
    world.patch(f"{BUDGETS}/b/status", noted)
    world.settle(100)
    assert _numbers(world) == (0, 1, 1, 2)
    assert list(_status(world)["disruptedPods"]) == ["one"]
    world.settle(30)
    assert _numbers(world) == (1, 2, 1, 2)
    assert "disruptedPods" not in _status(world)


def test_the_condition_says_since_when_disruptions_are_allowed(world: World) -> None:
    _budget(world, minAvailable=1)
    world.ready_pod("one")
    world.settle()
    before = _status(world)["conditions"]
    assert [(found["type"], found["status"]) for found in before] == [("DisruptionAllowed", "False")]
    world.now += 60
    world.ready_pod("two")
    world.settle()
    after = _status(world)["conditions"]
    assert after[0]["status"] == "True"
    assert after[0]["lastTransitionTime"] > before[0]["lastTransitionTime"]
