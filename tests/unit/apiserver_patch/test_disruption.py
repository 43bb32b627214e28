"""Budgets are kept true while pods come and go."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from agent_scheduler.apiserver.builtin import BUILTIN
from agent_scheduler.apiserver.disruption import Budgets, run
from agent_scheduler.apiserver.registry import Registry
from agent_scheduler.apiserver.store import Store
from agent_scheduler.apiserver.subresources import BUDGETS, PODS


@pytest.fixture
def registry() -> Registry:
    numbers = iter(range(10_000))
    return Registry(Store(clock=lambda: 1_767_225_600.0, uid=lambda: f"uid-{next(numbers)}"), BUILTIN)


def _insert(registry: Registry, name: tuple[str, str], obj: dict[str, Any]) -> None:
    metadata = {"namespace": "t", "uid": registry.store.uid(), "generation": 1, **obj.pop("metadata")}
    registry.store.insert(name, {"metadata": metadata, **obj})


def _budget(registry: Registry, minimum: int | str) -> None:
    spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": "x"}}}
    _insert(registry, BUDGETS, {"metadata": {"name": "b"}, "spec": spec})


def _ready_pod(registry: Registry, name: str, app: str = "x") -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pod = {"metadata": {"name": name, "labels": {"app": app}}, "spec": {"containers": []}, "status": status}
    _insert(registry, PODS, pod)


def _status(registry: Registry) -> dict[str, Any]:
    budget = registry.object(BUDGETS, "t/b")
    assert budget is not None
    return {key: budget["status"][key] for key in ("disruptionsAllowed", "currentHealthy", "expectedPods")}


def test_a_budgets_status_follows_its_pods(registry: Registry) -> None:
    budgets = Budgets(registry)
    _budget(registry, 1)
    for name in ("one", "two"):
        _ready_pod(registry, name)
    _ready_pod(registry, "other", app="y")
    budgets.step()
    assert _status(registry) == {"disruptionsAllowed": 1, "currentHealthy": 2, "expectedPods": 2}
    pods = registry.stored(PODS).table
    registry.store.remove(PODS, pods.records["t/one"])
    budgets.step()
    assert _status(registry) == {"disruptionsAllowed": 0, "currentHealthy": 1, "expectedPods": 1}


def test_what_was_there_before_is_looked_at(registry: Registry) -> None:
    _ready_pod(registry, "one")
    _budget(registry, "0%")
    budgets = Budgets(registry)
    budgets.step()
    assert _status(registry)["disruptionsAllowed"] == 1


def test_pods_of_namespaces_without_budgets_are_not_noted(registry: Registry) -> None:
    budgets = Budgets(registry)
    _ready_pod(registry, "one")
    assert not budgets.busy
    _budget(registry, 1)
    budgets.step()
    registry.store.remove(BUDGETS, registry.stored(BUDGETS).table.records["t/b"])
    _ready_pod(registry, "two")
    budgets.step()
    assert not budgets.busy


def test_nothing_is_written_when_nothing_changed(registry: Registry) -> None:
    budgets = Budgets(registry)
    _budget(registry, 1)
    _ready_pod(registry, "one")
    while budgets.busy:
        budgets.step()
    version = registry.store.rv
    _ready_pod(registry, "other", app="y")
    while budgets.busy:
        budgets.step()
    assert registry.store.rv == version + 1


async def test_the_task_wakes_for_a_change_and_lets_go_when_cancelled(registry: Registry) -> None:
    rested = asyncio.Event()

    async def sleep(seconds: float) -> None:
        rested.set()
        await asyncio.sleep(0)

    table = registry.stored(PODS).table
    followers = len(table.subscribers)
    task = asyncio.ensure_future(run(Budgets(registry), clock=lambda: 0.0, sleep=sleep))
    await asyncio.sleep(0)
    _budget(registry, 0)
    _ready_pod(registry, "one")
    await asyncio.wait_for(rested.wait(), 5)
    assert _status(registry)["disruptionsAllowed"] == 1
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert len(table.subscribers) == followers
