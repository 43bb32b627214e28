"""The garbage collector's policy and the loop's lag."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

from agent_scheduler.telemetry.gcpolicy import THRESHOLDS, GcPolicy
from agent_scheduler.telemetry.looplag import LoopLag
from agent_scheduler.telemetry.metrics import Metrics


@pytest.fixture
def policy() -> Iterator[tuple[GcPolicy, Metrics]]:
    metrics = Metrics(version="1")
    made = GcPolicy(metrics)
    yield made, metrics
    made.stop()


def test_pauses_are_measured_by_generation(policy: tuple[GcPolicy, Metrics]) -> None:
    collector, metrics = policy
    collector.start()
    gc.collect(0)
    gc.collect(2)
    assert metrics.gc_pause_seconds.labels("0").count >= 1
    assert metrics.gc_pause_seconds.labels("2").count == 1
    assert metrics.gc_pause_seconds.labels("2").total > 0


def test_what_is_frozen_is_left_out_of_collections(policy: tuple[GcPolicy, Metrics]) -> None:
    collector, _ = policy
    kept = [[index] for index in range(1000)]
    collector.start()
    assert collector.freeze() >= len(kept)
    assert gc.get_threshold() == THRESHOLDS
    assert not any(item is kept for item in gc.get_objects())
    assert kept


def test_stopping_puts_back_what_was_there() -> None:
    before = gc.get_threshold(), len(gc.callbacks)
    collector = GcPolicy(Metrics(version="1"))
    collector.start()
    collector.start()
    collector.freeze()
    collector.stop()
    collector.stop()
    assert (gc.get_threshold(), len(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0


async def test_a_blocked_loop_is_seen() -> None:
    seen: list[float] = []
    done = asyncio.Event()

    def observe(seconds: float) -> None:
        seen.append(seconds)
        done.set()

    jump = 0.0

    def clock() -> float:
        return time.monotonic() + jump

    lag = LoopLag(observe, loop=asyncio.get_running_loop(), interval=0.001, clock=clock)
    lag.start()
    lag.start()
    jump = 5.0  # as if something had blocked the loop for so long
    await done.wait()
    lag.stop()
    lag.stop()
    assert 5.0 <= seen[0] < 65.0
    assert lag.worst == max(seen)
    count = len(seen)
    await asyncio.sleep(0.01)
    assert len(seen) == count
