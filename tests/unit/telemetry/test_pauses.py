"""The garbage collector's policy and the loop's lag."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.pauses import THRESHOLDS, GcPolicy, LoopLag
from kube_client.testing.loop import SimLoop
from kube_client.testing.virtual import virtual_time


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


def test_no_collection_of_a_growing_process_looks_at_many_objects(policy: tuple[GcPolicy, Metrics]) -> None:
    looked_at: list[int] = []

    def count(phase: str, info: Mapping[str, Any]) -> None:
        if phase == "start":
            young = range(info["generation"] + 1)
            looked_at.append(sum(len(gc.get_objects(generation=each)) for each in young))

    collector, _ = policy
    collector.start()
    collector.freeze()
    gc.callbacks.append(count)
    try:
        kept = [[index] for index in range(300_000)]
    finally:
        gc.callbacks.remove(count)
    assert len(kept) / THRESHOLDS[0] / 2 < len(looked_at)
    # So many take 20 ms at most.
    assert max(looked_at) < 25_000


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


@virtual_time
async def test_a_blocked_loop_is_seen() -> None:
    seen: list[float] = []
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    lag = LoopLag(seen.append, loop=loop, interval=1.0, clock=loop.time)
    lag.start()
    lag.start()
    await asyncio.sleep(3.5)
    assert seen == [0.0] * 3
    loop.jump(5.0)  # as if something had blocked the loop meanwhile
    await asyncio.sleep(0.25)
    assert seen[3:] == [pytest.approx(4.5)]
    lag.stop()
    lag.stop()
    await asyncio.sleep(60)
    assert len(seen) == 4


@pytest.mark.parametrize("name", ["agent_scheduler_loop_lag_seconds", "agent_scheduler_gc_pause_seconds"])
def test_a_reading_tells_whether_50_ms_were_passed(name: str) -> None:
    metrics = Metrics(version="1")
    metrics.loop_lag_seconds.labels().observe(0.0501)
    metrics.gc_pause_seconds.labels("0").observe(0.0501)
    generation = 'generation="0",' if "gc" in name else ""
    told = metrics.families.text()
    assert f'{name}_bucket{{{generation}le="0.05"}} 0\n' in told
    assert f'{name}_bucket{{{generation}le="0.06"}} 1\n' in told
