"""The loop that drives a controller: it waits for a wake or a time, and its faults are seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from embedded_kubernetes import controllers


class _Scripted:
    """Answers `advance` from a list, and ends the loop's task when that is used up."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self.answers = list(answers)
        self.wake: Callable[[], None] = controllers.nobody
        self.turns = 0
        self.turned = asyncio.Event()

    def advance(self, *, most: int = 64) -> float | None:
        self.turns += 1
        self.turned.set()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _next_turn(scripted: _Scripted) -> None:
    scripted.turned.clear()
    await asyncio.wait_for(scripted.turned.wait(), 60)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_turns_at_once_while_there_is_more_and_then_waits_for_a_wake() -> None:
    scripted = _Scripted(-float("inf"), 5.0, None)
    task = asyncio.create_task(controllers.run(scripted, clock=lambda: 10.0))
    while scripted.turns < 3:
        await _next_turn(scripted)
    for _ in range(10):
        await asyncio.sleep(0)
    assert scripted.turns == 3
    scripted.wake()
    await _next_turn(scripted)
    assert scripted.turns == 4
    await _cancel(task)


async def test_it_turns_again_when_the_time_has_come() -> None:
    scripted = _Scripted(10.01, None)
    task = asyncio.create_task(controllers.run(scripted, clock=lambda: 10.0))
    while scripted.turns < 2:
        await _next_turn(scripted)
    await _cancel(task)


async def test_a_fault_of_a_controller_ends_its_task() -> None:
    scripted = _Scripted(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        await controllers.run(scripted, clock=lambda: 0.0)
