"""Conditions of every test of a whole process: time is virtual, and no pod is bound only because of the flush."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from embedded_kubernetes import patching
from kube_client.testing.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories


@pytest.fixture(autouse=True)
def nobody_is_rescued_by_the_flush(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a pod was bound after the flush of leftovers woke it: an event should have woken it before."""
    rescued: list[str] = []
    scheduled = SchedulingQueue.scheduled

    def noticing(queue: SchedulingQueue, entry: QueuedPodInfo) -> None:
        if entry.was_flushed:
            rescued.append(entry.pod.name)
        scheduled(queue, entry)

    monkeypatch.setattr(SchedulingQueue, "scheduled", noticing)
    yield
    assert rescued == []


#: Fields of objects with fields of their own, and maps of which each client owns some keys. All others are maps
#: that belong to the client that writes them.
_FIELDS = frozenset({"metadata", "spec", "status", "state", "series", "annotations", "labels"})


@pytest.fixture(autouse=True)
def no_key_is_left_in_a_map_that_is_patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a patch leaves keys in a map: a merge patch keeps what it does not name.

    Maps are therefore written by `kube_client.merging.replacement`. Tests patch like users, who name no UID.
    """
    left: list[str] = []
    merged = patching.patch.merge_patch

    def noticing(doc: Any, body: Any, **more: Any) -> Any:
        if isinstance(body, dict) and "uid" in (body.get("metadata") or ()):
            left.extend(_left_alone(doc, body, doc.get("kind", "")))
        return merged(doc, body, **more)

    monkeypatch.setattr(patching.patch, "merge_patch", noticing)
    yield
    assert left == []


def _left_alone(doc: dict[str, Any], body: dict[str, Any], at: str) -> Iterator[str]:
    for name, value in body.items():
        there = doc.get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            if name in _FIELDS:
                yield from _left_alone(there, value, f"{at}.{name}")
            elif value:
                # An empty map only states that there is to be a map.
                yield from (f"{at}.{name}.{key}" for key in there.keys() - value.keys())
