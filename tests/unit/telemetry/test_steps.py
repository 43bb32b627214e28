"""The steps of the event loop: the longest of each kind, and those of a coroutine between its waits."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.steps import Stepwise
from kube_client.testing.virtual import virtual_time


def test_the_longest_step_of_each_kind_and_the_number_of_long_ones_are_told() -> None:
    metrics = ProcessMetrics(version="1")
    took = metrics.steps.of("decision")
    for seconds in (0.02, 0.05, 0.3, 0.06):
        took(seconds)
    told = metrics.families.text()
    assert 'agent_scheduler_longest_step_seconds{kind="decision"} 0.3\n' in told
    assert 'agent_scheduler_long_steps_total{kind="decision"} 2.0\n' in told
    for kind in ("watch", "session", "reconcile", "review"):
        assert f'agent_scheduler_longest_step_seconds{{kind="{kind}"}} 0' in told


@virtual_time
async def test_a_coroutine_is_measured_between_its_waits_and_ends_as_without_that() -> None:
    took: list[float] = []
    marks: list[str] = []
    ticks = itertools.count(step=1.0)

    async def work(result: object) -> object:
        await asyncio.sleep(1)
        try:
            await asyncio.sleep(100)
        except TimeoutError:
            return "never"
        if isinstance(result, Exception):
            raise result
        return result

    def measured(result: object) -> Stepwise[object]:
        return Stepwise(
            work(result),
            took.append,
            clock=lambda: next(ticks),
            begins=lambda: marks.append("begins"),
            ended=lambda: marks.append("ended"),
        )

    assert await measured(5) == 5
    assert took == [1.0, 1.0, 1.0]
    assert marks == ["begins", "ended"] * 3
    with pytest.raises(ZeroDivisionError):
        await measured(ZeroDivisionError())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await measured(6)


def test_a_step_that_may_cost_the_lease_is_told_and_shorter_ones_are_not() -> None:
    metrics, late = ProcessMetrics(version="1"), []
    took = metrics.steps.of("decision")
    took(9.0)
    metrics.steps.too_long = 5.0
    metrics.steps.was_too_long.connect(lambda: late.append(1))
    for seconds in (4.9, 0.01, 5.1):
        took(seconds)
    assert late == [1]
