"""A scheduler's process sends traces, and ends even if no collector receives them."""

from __future__ import annotations

from tests.support.collector import collector, tracing

from .conftest import Start
from .plane import ControlPlane


async def test_a_process_sends_what_it_has_when_it_is_stopped(plane: ControlPlane, start: Start) -> None:
    tracing()
    await plane.add_node("node")
    await plane.add_pod("pod")
    await plane.add_pod("large", cpu="999")
    with collector() as into:
        scheduler = start(config={"tracing": {"endpoint": into.url, "samplingRatePerMillion": 1_000_000}})
        await plane.bound("pod")
        await plane.event("large", "FailedScheduling")
        # Before the SDK sends by itself, which it does every five seconds.
        assert await scheduler.terminate() == 0
        results = [span.attributes["scheduling.result"] for span in into.spans if not span.parent]
        assert sorted(results) == ["scheduled", "stopped"]
