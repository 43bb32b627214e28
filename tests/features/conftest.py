"""What holds in every test of a whole process: time is virtual, and no pod is rescued by the flush."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from tests.support.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories


@pytest.fixture(autouse=True)
def nobody_is_rescued_by_the_flush(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pod that is bound after the flush of leftovers woke it slept through the event that should have."""
    rescued: list[str] = []
    scheduled = SchedulingQueue.scheduled

    def noticing(queue: SchedulingQueue[Any], entry: QueuedPodInfo[Any]) -> None:
        if entry.was_flushed:
            rescued.append(entry.pod.name)
        scheduled(queue, entry)

    monkeypatch.setattr(SchedulingQueue, "scheduled", noticing)
    yield
    assert rescued == []
